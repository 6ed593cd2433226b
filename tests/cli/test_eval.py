"""``relaygen eval``: what it prints, keeps, refuses, and how it stops and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relaygen._errors import EngineReplyError, EngineUnreachableError
from relaygen._files import lines, lock
from relaygen.cli import main
from relaygen.cli._extras import require
from relaygen.engines.scripted import Failure
from relaygen.models import EMBEDDED_SMALL
from relaygen.profiles import load
from tests.evaluate.commanding import Stage

from .playing import environment


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a busy disk takes its time
    told = [{"id": f"g{n}", "question": f"Number {n} ?", "answer": str(2 * n)} for n in range(5)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, told)))
    return Stage(monkeypatch)


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["eval", *args])


ASK = ("--data", "q.jsonl", "--out", "out")


def row(result: Result, *starts: str) -> str:
    """The line of a table that begins with these cells."""
    (found,) = (
        line for line in result.stdout.splitlines() if line.split()[: len(starts)] == [*starts]
    )
    return found


def test_one_command_compares_the_usual_arms(stage: Stage, tmp_path: Path) -> None:
    result = call(*ASK)
    assert result.exit_code == 0, result.output
    assert row(result, "large", "5").split()[1:5] == ["5", "5", "of", "5"]
    assert row(result, "small", "5").split()[1:5] == ["5", "3", "of", "5"]
    assert "not decided at n = 5" in row(result, "relay", "large", "not")
    assert row(result, "relay", "random", "not")
    assert result.stdout.splitlines()[-1].split() == ["report", "out/report.html"]
    assert "answering: 20 of 20" in result.stderr
    assert "random delegates " in result.stderr
    assert "\x1b" not in result.output
    assert {one.name for one in (tmp_path / "out").iterdir()} >= {
        *("settings.json", "items.jsonl", "results.jsonl"),
        *("summary.json", "report.html", "report.md", "results.csv", "plots"),
    }
    assert [(pair.large, pair.spec, pair.parallel) for pair in stage.asked] == [(None, None, 1)]


def test_again_it_asks_nothing_and_says_the_same(stage: Stage) -> None:
    first = call(*ASK, "--n", "2")
    second = call(*ASK, "--n", "2")
    assert second.exit_code == 0
    assert second.stdout == first.stdout
    assert [len(engine.requests) for engine in stage.engines[2:]] == [0, 0]


def test_steps_alone(stage: Stage, tmp_path: Path) -> None:
    ask = (*ASK, "--arms", "large,small", "--n", "3")
    result = call(*ask, "--step", "run")
    assert (result.exit_code, result.stdout) == (0, "")
    assert not (tmp_path / "out" / "report.html").exists()
    result = call(*ask, "--step", "report")
    assert result.exit_code == 0
    assert (tmp_path / "out" / "report.html").exists()
    assert len(stage.asked) == 1  # the second needs no engine


def test_a_report_of_what_is_there_says_that_it_is_partial(stage: Stage) -> None:
    call(*ASK, "--arms", "large", "--n", "2", "--step", "run")
    result = call("--out", "out", "--arms", "large,relay", "--step", "report")
    assert result.exit_code == 0
    assert "2 of 2" in row(result, "large", "2", "2", "of")
    assert "0 of 2" in row(result, "relay", "0", "of")
    assert "not complete: 2 answers are missing" in result.stdout


REPORT = ("--out", "out", "--step", "report")


def test_a_report_needs_no_other_flag_and_no_data(stage: Stage) -> None:
    more = ("--seed", "3", "--max-tokens", "99", "--large", "l.gguf", "--temperature", "0.5")
    whole = call(*ASK, "--arms", "large,relay", "--n", "3", "--runs", "2", *more)
    assert whole.exit_code == 0, whole.output
    kept = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    Path("q.jsonl").unlink()
    again = call(*REPORT)
    assert (again.exit_code, again.stdout) == (0, whole.stdout)
    assert kept == {path: path.read_bytes() for path in kept}
    # All of the run may be said again.
    same = call(*ASK, "--step", "report", "--n", "3", "--runs", "2", *more, "--ctx", "4096")
    assert (same.exit_code, same.stdout) == (0, whole.stdout)
    assert call(*REPORT, "--profile", "embedded", "--small", EMBEDDED_SMALL.name).exit_code == 0
    assert len(stage.asked) == 1


def test_a_report_of_less_than_was_asked(stage: Stage) -> None:
    assert call(*ASK, "--arms", "large,small", "--n", "4").exit_code == 0
    settings = Path("out/settings.json").read_bytes()
    fewer = call(*REPORT, "--n", "2", "--arms", "small")
    assert row(fewer, "small", "2")
    assert not [line for line in fewer.stdout.splitlines() if line.startswith("large")]
    assert Path("out/settings.json").read_bytes() == settings
    assert row(call(*REPORT), "large", "4")
    more = call(*REPORT, "--n", "5")
    assert more.exit_code == 2
    assert "--n 5: out has only 4 questions" in more.stderr
    # The last run counts, though the folder has more.
    assert call(*ASK, "--arms", "large", "--n", "1").exit_code == 0
    assert row(call(*REPORT), "large", "1")
    assert row(call(*REPORT, "--n", "4", "--arms", "large,small"), "small", "4")
    lines = Path("q.jsonl").read_text().splitlines()
    Path("q.jsonl").write_text("\n".join(lines[:3]))
    assert call(*ASK, "--arms", "large").exit_code == 0
    assert row(call(*REPORT), "large", "3")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--data", "other.jsonl"), "another data"),
        (("--preset", "gsm8k"), "another preset"),
        (("--seed", "4"), "another seed"),
        (("--level", "fast"), "another level"),
        (("--max-tokens", "7"), "another max-tokens"),
        (("--temperature", "0.7"), "another temperature"),
        (("--large", "l.gguf"), "another large"),
        (("--small", "http://127.0.0.1:1"), "another small"),
        (("--ctx", "512"), "another ctx"),
        (("--profile", "qwen3-32b+1.7b"), "another profile"),
        (("--arms", "larg"), "there is no arm 'larg'"),
    ],
)
def test_a_report_refuses_what_contradicts_its_folder(
    stage: Stage, args: tuple[str, ...], says: str
) -> None:
    assert call(*ASK, "--arms", "large", "--n", "1", "--step", "run").exit_code == 0
    result = call(*REPORT, *args)
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[0]
    assert not Path("out/report.html").exists()


def test_a_report_of_nothing_is_refused(stage: Stage) -> None:
    result = call(*REPORT)
    assert result.exit_code == 2
    assert "there is no evaluation in out" in result.stderr
    assert not Path("out").exists()
    call(*ASK, "--arms", "large", "--n", "1", "--step", "run")
    items = Path("out/items.jsonl").read_text()
    Path("out/items.jsonl").write_text('{"id": 1}\n')
    assert "items.jsonl, line 1: this is no item" in call(*REPORT).stderr
    Path("out/items.jsonl").unlink()
    assert "there are no questions in out/items.jsonl" in call(*REPORT).stderr
    Path("out/items.jsonl").write_text(items)
    Path("out/results.jsonl").unlink()  # a run that was stopped before its first answer
    assert "not complete: 1 answer is missing" in call(*REPORT).stdout
    for broken in ('{"seed": "x"}', "[]", "nonsense"):
        Path("out/settings.json").write_text(broken)
        for ask in (REPORT, ASK):
            result = call(*ask)
            assert result.exit_code == 2
            assert "settings.json is not what relaygen eval writes" in result.stderr


def test_a_file_whose_name_is_no_text(stage: Stage, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jsonl")
    (tmp_path / name).write_bytes((tmp_path / "q.jsonl").read_bytes())
    ask = ("--data", name, "--out", "out", "--arms", "large", "--n", "1")
    for more in ((), (), ("--step", "report")):
        result = call(*ask, *more)
        assert result.exit_code == 0, result.output
    assert "caf?.jsonl, 1 question\n" in Path("out/report.md").read_text("utf-8")


def test_only_models_that_are_asked_are_opened(stage: Stage) -> None:
    assert call(*ASK, "--arms", "large,no-wait,large+ngram", "--n", "1").exit_code == 0
    assert stage.roles == [{"large"}, {"large"}]
    assert call(*ASK, "--arms", "large,relay+ngram,small", "--n", "1").exit_code == 0
    assert stage.roles[2:] == [{"large", "small"}, {"large", "small"}]


def test_what_is_asked_reaches_the_engines(stage: Stage, tmp_path: Path) -> None:
    more = ("--temperature", "0.5", "--runs", "2", "--seed", "9", "--max-tokens", "50")
    result = call(*ASK, "--arms", "large", "--n", "2", "--concurrency", "3", *more, "--ctx", "512")
    assert result.exit_code == 0, result.output
    kept = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert (kept["seed"], kept["runs"], kept["max_tokens"], kept["ctx"]) == (9, 2, 50, 512)
    assert (kept["large"], kept["devices"]) == ("qwen2.5-coder-1.5b-q4_k_m", 1) or kept["large"]
    (pair,) = stage.asked
    assert (pair.parallel, pair.ctx) == (3, 512)
    asked = [each for each in stage.engines[0].requests if each.max_tokens > 4]
    assert len(asked) == 4
    assert {(each.max_tokens, each.sampling.temperature) for each in asked} == {(50, 0.5)}
    assert "no times: answers were generated beside each other" in result.stdout
    assert "ms/token" not in result.stdout


def test_servers_are_told_apart_by_their_models(stage: Stage, tmp_path: Path) -> None:
    ask = (*ASK, "--arms", "large,small", "--n", "1", "--small", "http://127.0.0.1:2")
    assert call(*ask, "--large", "http://127.0.0.1:1").exit_code == 0
    kept = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert (kept["large"], kept["small"], kept["ctx"], kept["devices"]) == ("", "", 0, 2)
    assert kept["max_tokens"] == 1024
    assert call(*ask, "--large", "http://127.0.0.1:3").exit_code == 0


def test_arms_with_speculation_share_the_engines_they_can(stage: Stage) -> None:
    result = call(*ASK, "--arms", "large,large+draft,relay+draft+small-ngram", "--n", "1")
    assert result.exit_code == 0, result.output
    assert [(pair.spec, pair.small_spec) for pair in stage.asked] == [
        *((None, None), ("draft", None), ("draft", "ngram")),
    ]
    used = [len([r for r in engine.requests if r.max_tokens > 4]) > 0 for engine in stage.engines]
    # Of the second pair the small engine, and of the third the large one, are those there were.
    assert used == [True, False, True, False, False, True]
    assert row(result, "relay+draft+small-ngram", "1")


def test_a_server_cannot_be_told_to_draft(stage: Stage) -> None:
    result = call(*ASK, "--arms", "large,large+ngram", "--large", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert "fixed when that starts" in result.stderr
    assert stage.asked == []


def test_other_settings_in_the_same_folder_are_refused(stage: Stage) -> None:
    assert call(*ASK, "--arms", "large", "--n", "1").exit_code == 0
    result = call(*ASK, "--arms", "large", "--n", "1", "--seed", "4")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0].endswith("holds an evaluation with another seed")
    Path("q.jsonl").write_text('{"id": "g0", "question": "Number 0 ?", "answer": "7"}')
    assert "another question 'g0'" in call(*ASK, "--arms", "large", "--n", "1").stderr
    assert len(stage.asked) == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--data", "q.jsonl"), "--out"),
        (("--out", "out"), "--data"),
        (("--data", "no.jsonl", "--out", "out"), "no.jsonl"),
        ((*ASK, "--arms", "larg"), "there is no arm 'larg'"),
        ((*ASK, "--arms", "large,random"), "needs the results of arm relay"),
        ((*ASK, "--arms", "large,answer-only"), "not applicable"),
        ((*ASK, "--arms", "relay@fast"), "has no level 'fast'"),
        ((*ASK, "--runs", "2"), "temperature 0"),
        ((*ASK, "--temperature", "nan"), "--temperature"),
        ((*ASK, "--profile", "nope"), "no profile 'nope'"),
        ((*ASK, "--preset", "nope"), "nope"),
        ((*ASK, "--concurrency", "0"), "--concurrency"),
        ((*ASK, "--n", "6"), "6 questions are asked for, and q.jsonl holds only 5"),
    ],
)
def test_what_makes_no_sense_is_refused(stage: Stage, args: tuple[str, ...], says: str) -> None:
    result = call(*args)
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert stage.asked == []
    assert not Path("out").exists() or not any(Path("out").glob("*.json*"))


def test_another_run_in_the_folder_is_refused(stage: Stage, tmp_path: Path) -> None:
    with lock(tmp_path / "out", extra="eval"):
        result = call(*ASK)
    assert result.exit_code == 2
    assert "another run works in out" in result.stderr
    assert stage.asked == []


def test_meanings_need_their_extra(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaygen.cli._extras.find_spec", lambda name: None)
    for place in ("eval", "_eval_options"):
        monkeypatch.setattr(f"relaygen.cli.{place}.require", _only_embeddings)
    result = call(*ASK, "--embeddings", "some/model")
    assert result.exit_code == 3
    assert "pip install 'relaygen[embeddings]'" in result.stderr
    assert not (tmp_path / "out").exists()


def _only_embeddings(*packages: str, extra: str) -> None:
    if extra == "embeddings":
        require(*packages, extra=extra)


@pytest.mark.parametrize("package", ["scipy", "filelock", "math_verify"])
def test_a_missing_extra_is_said_before_the_work(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setattr(
        "relaygen.cli._extras.find_spec", lambda name: None if name == package else find_spec(name)
    )
    result = call(*ASK)
    assert result.exit_code == 3
    assert "relaygen[eval]" in result.stderr
    assert package.replace("_", "-") in result.stderr
    assert stage.asked == []


def test_failures_are_told_at_the_end_and_tried_again(stage: Stage) -> None:
    stage.small["failures"] = (Failure(EngineReplyError("nonsense"), 2, 3),)
    ask = (*ASK, "--arms", "large,small", "--n", "4")
    result = call(*ask)
    assert result.exit_code == 5
    assert "3 of 4" in row(result, "small", "3")
    assert "error: 1 answer failed" in result.stderr
    assert "run the same command again" in result.stderr
    stage.small["failures"] = ()
    assert call(*ask).exit_code == 0


def test_a_dead_engine_stops_with_one_line(stage: Stage) -> None:
    gone = EngineUnreachableError("it is gone", retryable=False)
    stage.small["failures"] = (Failure(gone, 2, 3),)
    result = call(*ASK, "--arms", "large,small")
    assert result.exit_code == 5
    said = [line for line in result.stderr.splitlines() if line.startswith(("error", "hint"))]
    assert said == [
        "error: small engine: it is gone",
        "hint: run the same command again to go on",
    ]
    stage.small["failures"] = ()
    assert call(*ASK, "--arms", "large,small").exit_code == 0


def test_thinking_models_have_an_answer_stage(stage: Stage, tmp_path: Path) -> None:
    text = load("embedded")
    assert text.thinking == "none"
    result = call(*ASK, "--profile", "qwen3-32b+1.7b", "--arms", "large,answer-stage", "--n", "3")
    assert result.exit_code == 0, result.output
    assert "behind the same thinking both models answer alike in 2 of 3" in result.stdout


def test_the_help_has_groups_and_arms() -> None:
    result = call("--help")
    assert result.exit_code == 0
    for heading in ("The data:", "The arms:", "The pair:", "The generation:", "Files:", "Arms:"):
        assert heading in result.stdout
    assert "Policies:" not in result.stdout
    assert "answer-stage" in result.stdout
    assert "--spec" not in result.stdout
    assert "eval" in CliRunner().invoke(main, ["--help"]).stdout


def test_ctrl_c_stops_and_the_same_command_goes_on(stage: Stage, tmp_path: Path) -> None:
    ask = (*ASK, "--arms", "large,small,relay")
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.evaluate.commanding", "2", "eval", *ask],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    results = tmp_path / "out" / "results.jsonl"
    limit = time.monotonic() + 60
    while not (results.exists() and results.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < limit
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 130
    assert stderr.splitlines()[-1] == "stopped; run the same command again to go on"
    assert "Traceback" not in stderr
    assert stdout == ""
    kept = results.read_bytes()
    assert 2 <= len(lines(results)) < 15
    result = call(*ask)
    assert result.exit_code == 0, result.output
    assert results.read_bytes().startswith(kept)
    assert len(lines(results)) == 15
