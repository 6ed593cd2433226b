"""``relaygen calibrate``: what it prints, keeps, refuses, and how it stops and goes on."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from relaygen._progress import Step
from relaygen.cli import _steps, main
from relaygen.cli._steps import PlainSteps, left_text
from relaygen.policies import MarginPolicy
from relaygen.profiles import load, make_policy
from tests.calibrate.commanding import Stage

from .playing import environment


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"id": f"g{n}", "question": f"Number {n} ?"}) for n in range(12)]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    return Stage(monkeypatch)


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["calibrate", *args])


ASK = ("--data", "q.jsonl", "--out", "pair.toml")


def test_one_command_makes_a_profile_and_a_report(stage: Stage, tmp_path: Path) -> None:
    result = call(*ASK)
    assert result.exit_code == 0, result.output
    profile = load(tmp_path / "pair.toml")
    assert profile.name == "pair"
    assert all(cue in result.stdout for cue in profile.cues)
    assert all(level in result.stdout for level in ("careful", "balanced", "fast"))
    lines = result.stdout.splitlines()
    assert lines[-3].split() == ["profile", "pair.toml"]
    assert (tmp_path / lines[-2].split()[1]).read_text("utf-8").startswith("<!doctype html>")
    assert lines[-1] == 'next     relaygen run --profile pair.toml --level balanced "…"'
    assert "writing traces: 12 of 12" in result.stderr
    assert "scoring: 12 of 12" in result.stderr
    assert "\x1b" not in result.output
    assert (stage.asked[0].large, stage.asked[0].policy) == (None, "large")


def test_again_it_asks_nothing_and_says_the_same(stage: Stage) -> None:
    first = call(*ASK)
    second = call(*ASK)
    assert second.stdout == first.stdout
    assert [len(engine.requests) + engine.scored for engine in stage.engines[2:]] == [0, 0]


def test_steps_alone(stage: Stage, tmp_path: Path) -> None:
    work = tmp_path / "kept"
    ask = (*ASK, "--work", "kept", "--n", "4")
    for step, file in (
        ("traces", "traces.jsonl"),
        ("score", "scores.jsonl"),
        ("select", "calibration.json"),
        ("report", "report.html"),
    ):
        assert not (work / file).exists()
        result = call(*ask, "--step", step)
        assert result.exit_code == 0, result.output
        assert (work / file).exists()
    assert len(stage.asked) == 2  # the last two need no engine
    assert (tmp_path / "pair.toml").exists()


@pytest.mark.parametrize(
    ("args", "roles"),
    [
        ((), {"large", "small"}),
        (("--step", "traces"), {"large"}),
        (("--scorer", "large"), {"large"}),
        (("--scorer", "large", "--n", "8", "--check", "2"), {"large", "small"}),
    ],
)
def test_only_models_that_are_asked_are_opened(
    stage: Stage, args: tuple[str, ...], roles: set[str]
) -> None:
    result = call(*ASK, *args)
    assert result.exit_code == 0, result.output
    assert stage.roles[0] == roles


def test_a_file_whose_name_is_no_text(stage: Stage, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jsonl")
    (tmp_path / name).write_bytes((tmp_path / "q.jsonl").read_bytes())
    ask = ("--data", name, "--large", f"{name}.gguf", "--n", "4")
    result = call(*ask, "--out", "pair.toml")
    assert result.exit_code == 0, result.output
    assert "caf?.jsonl, 4 of 12" in load("pair.toml").provenance.questions
    assert "no valid UTF-8" in call(*ask, "--out", f"{name}.toml").stderr


def test_to_score_opens_the_scorer_alone(stage: Stage) -> None:
    assert call(*ASK, "--step", "traces").exit_code == 0
    assert call(*ASK, "--step", "score").exit_code == 0
    assert stage.roles == [{"large"}, {"small"}]


def test_levels_of_the_margin_policy(stage: Stage) -> None:
    assert call(*ASK).exit_code == 0
    relay = Path("pair.toml").read_bytes()
    assert Path("calibration-pair/report.html").read_text("utf-8").count('class="used"') == 3
    result = call(*ASK, "--policy", "margin", "--step", "select")
    assert result.exit_code == 0, result.output
    profile = load("pair.toml")
    told = json.loads(Path("calibration-pair/calibration.json").read_text())
    for level in told["levels"]:
        at = profile.at(level["name"])
        policy = make_policy("relay", at)
        assert isinstance(policy, MarginPolicy)
        best = level["best"]
        assert (at.cues, policy.stay, policy.leave) == (
            *(tuple(best["cues"]), best["stay"], best["leave"]),
        )
        assert f"margin:{best['stay']:.2f}:{best['leave']:.2f}" in result.stdout
    assert isinstance(make_policy("relay", profile), MarginPolicy)  # and where no level is named
    assert call(*ASK, "--policy", "margin", "--step", "report").exit_code == 0
    html = Path("calibration-pair/report.html").read_text("utf-8")
    rows = [row for row in html.split("<tr>") if 'class="used"' in row]
    assert len(rows) == 3
    assert all('<td class="left">margin' in row for row in rows)
    assert '<td class="left">margin' in html
    assert f"<b>{100 * told['levels'][0]['best']['utilization']:.0f} %</b>" in html
    # What is there is used again, both ways.
    assert call(*ASK).exit_code == 0
    assert Path("pair.toml").read_bytes() == relay
    assert call(*ASK, "--policy", "one-shot").exit_code == 2


def test_what_is_asked_reaches_the_calibration(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "cues.txt").write_text("the total\n\nthe total\n  each of \n")
    more = ("--cues", "cues.txt", "--no-mine", "--rule", "paper", "--question-suffix", "")
    result = call(*ASK, *more, "--n", "3", "--max-tokens", "40", "--seed", "9", "--large", "l.gguf")
    assert result.exit_code == 0, result.output
    kept = json.loads((tmp_path / "calibration-pair" / "settings.json").read_text())
    assert kept["cues"] == ["the total", "each of"]
    assert (kept["n"], kept["seed"], kept["suffix"], kept["rule"]) == (3, 9, "", "paper")
    told = json.loads((tmp_path / "calibration-pair" / "calibration.json").read_text())
    assert [cue["name"] for cue in told["cues"]][-2:] == ["the total", "each of"]
    engine = stage.engines[0]
    assert [request.max_tokens for request in engine.requests] == [40] * 3
    assert "traces: 3 by scripted (scripted), 120 tokens, 3 of them cut at 40 tokens" in (
        load("pair.toml").provenance.notes
    )
    assert load("pair.toml").large == "l.gguf"


def test_other_settings_in_the_same_folder_are_refused(stage: Stage) -> None:
    assert call(*ASK, "--n", "2", "--step", "traces").exit_code == 0
    result = call(*ASK, "--n", "2", "--seed", "4")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0].endswith("holds a calibration with another seed")
    assert len(stage.asked) == 1
    # Other questions are another calibration too.
    Path("q.jsonl").write_text('{"question": "Number 1 ?"}')
    assert "another questions" in call(*ASK).stderr


def test_a_profile_of_ones_own_is_not_overwritten(stage: Stage) -> None:
    own = 'name = "pair"'
    Path("pair.toml").write_text(own)
    result = call(*ASK)
    assert result.exit_code == 2
    assert "was not made by relaygen calibrate" in result.stderr
    assert Path("pair.toml").read_text() == own
    assert stage.asked == []


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (("--data", "q.jsonl"), 2, "--out"),
        (("--data", "no.jsonl", "--out", "x.toml"), 2, "no.jsonl"),
        (("--data", "q.jsonl", "--out", "x.txt"), 2, ".toml"),
        (("--data", "q.jsonl", "--out", "no/x.toml"), 2, "no folder"),
        ((*ASK, "--rule", "best"), 2, "there is no rule 'best'"),
        ((*ASK, "--rule", "target-utilization:7"), 2, "between 0 and 1"),
        ((*ASK, "--min-effect", "nan"), 2, "--min-effect"),
        ((*ASK, "--profile", "nope"), 2, "no profile 'nope'"),
        ((*ASK, "--scorer", "both"), 2, "--scorer"),
        ((*ASK, "--runs", "2"), 2, "temperature 0"),
        ((*ASK, "--step", "select"), 2, "there are no traces"),
    ],
)
def test_what_makes_no_sense_is_refused(
    stage: Stage, args: tuple[str, ...], status: int, says: str
) -> None:
    result = call(*args)
    assert result.exit_code == status
    assert says in result.stderr
    assert not Path("pair.toml").exists()


def test_a_missing_extra_is_said_before_the_work(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        "relaygen.cli._extras.find_spec", lambda name: None if name == "scipy" else found(name)
    )
    result = call(*ASK)
    assert result.exit_code == 3
    assert "relaygen[calibrate]" in result.stderr
    assert stage.asked == []
    assert not Path("calibration-pair").exists()


def test_imported_traces_stand_for_generated_ones(stage: Stage) -> None:
    lines = [
        json.dumps({"question": f"Number {n} ?", "text": "Thus it is. So we end. Thus 3."})
        for n in range(4)
    ]
    Path("theirs.jsonl").write_text("\n".join(lines))
    result = call(*ASK, "--import-traces", "theirs.jsonl")
    assert result.exit_code == 0, result.output
    assert "imported" in load("pair.toml").provenance.notes[0]
    assert stage.engines[0].requests == []


def test_the_help_has_groups_and_no_policies() -> None:
    result = call("--help")
    assert result.exit_code == 0
    for heading in ("The data:", "The pair:", "The selection:", "Files:"):
        assert heading in result.stdout
    assert "Policies:" not in result.stdout
    assert "calibrate" in CliRunner().invoke(main, ["--help"]).stdout


def test_ctrl_c_stops_and_the_same_command_goes_on(stage: Stage, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.calibrate.commanding"]
    child = subprocess.Popen(
        [*command, "3", "calibrate", *ASK],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    traces = tmp_path / "calibration-pair" / "traces.jsonl"
    limit = time.monotonic() + 30
    while not (traces.exists() and traces.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < limit
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "run the same command again" in stderr
    assert "Traceback" not in stderr
    assert not (tmp_path / "pair.toml").exists()
    kept = traces.read_bytes()
    assert call(*ASK).exit_code == 0
    assert traces.read_bytes().startswith(kept)
    stopped = Path("pair.toml").read_bytes()
    Path("other").mkdir()
    assert call(*ASK[:3], "other/pair.toml").exit_code == 0
    assert Path("other/pair.toml").read_bytes() == stopped


# Progress.


def test_plain_lines_are_few() -> None:
    lines: list[str] = []
    now = [0.0]
    show = PlainSteps(lines.append, lambda: now[0])
    show(Step("traces", 0, 3))
    now[0] = 5.0
    show(Step("traces", 1, 3, 10.0))
    now[0] = 20.0
    show(Step("traces", 2, 3, 300.0))
    show(Step("traces", 3, 3, 0.0))
    show(Step("score", 0, 3))
    show(Step("score", 0, 3, 90.0, "one request per position: about 2 min"))
    assert lines == [
        "writing traces: 0 of 3",
        "writing traces: 2 of 3, about 5 min left",
        "writing traces: 3 of 3",
        "scoring: 0 of 3",
        "one request per position: about 2 min",
    ]


def test_time_left_for_people() -> None:
    assert [left_text(seconds) for seconds in (None, 3.0, 60.5, 3600.0, 5401.0)] == [
        "",
        "under a minute left",
        "about 2 min left",
        "about 60 min left",
        "about 1 h 31 min left",
    ]


@pytest.mark.parametrize("columns", [50, 100])
def test_bars_on_a_terminal(columns: int) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=columns)
    with _steps._bars(console) as show:
        show(Step("traces", 1, 4, 600.0))
        show(Step("score", 0, 4, 600.0, "a [note] of its own"))
        time.sleep(0.3)
    text = written.getvalue()
    assert "scoring" in text
    assert "a [note] of its own" in text
    assert "0/4" in text
    assert "about 10 min left" in text
