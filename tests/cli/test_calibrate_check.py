"""``relaygen calibrate --check``: predicted and measured, on the terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relaygen._files import lock
from relaygen.calibrate._answers import Answer
from relaygen.calibrate._check import Check, LevelCheck, Speed
from relaygen.calibrate._records import read
from relaygen.cli import main
from relaygen.cli._check_table import show_check
from relaygen.costs import Costs
from tests.calibrate.commanding import Stage

ASK = ("--data", "q.jsonl", "--out", "pair.toml", "--n", "8")
CHECKS = Path("calibration-pair/checks.jsonl")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"id": f"g{n}", "question": f"Number {n} ?"}) for n in range(12)]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    return Stage(monkeypatch)


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["calibrate", *args])


def test_one_command_calibrates_and_checks(stage: Stage) -> None:
    result = call(*ASK, "--check", "3")
    assert result.exit_code == 0, result.output
    answers = read(CHECKS, Answer)
    assert {one.id for one in answers} == {"g8", "g9", "g10"}
    assert f"checking: {len(answers)} of {len(answers)}" in result.stderr
    assert "predicted and measured, on 3 fresh questions at each level" in result.stdout
    assert "speed-ups over the large model alone, predicted from costs measured here" in " ".join(
        result.stdout.split()
    )
    assert result.stdout.index("predicted and measured") < result.stdout.index("\nprofile  pair")
    assert "Predicted and measured" in Path("calibration-pair/report.html").read_text("utf-8")
    # Both engines anew, with the profile that was made: the first pair is closed by then.
    assert [pair.policy for pair in stage.asked] == ["large", "relay"]
    assert len(stage.engines) == 4
    assert all(engine.requests for engine in stage.engines[2:])


def test_without_it_nothing_is_checked(stage: Stage) -> None:
    result = call(*ASK)
    assert result.exit_code == 0, result.output
    assert len(stage.asked) == 1
    assert not CHECKS.exists()
    assert "measured" not in result.stdout


def test_the_step_alone(stage: Stage) -> None:
    assert call(*ASK).exit_code == 0
    profile = Path("pair.toml").read_bytes()
    result = call(*ASK, "--step", "check", "--check", "2")
    assert result.exit_code == 0, result.output
    assert "on 2 fresh questions" in result.stdout
    assert "profile" not in result.stdout
    assert Path("pair.toml").read_bytes() == profile
    kept = CHECKS.read_bytes()
    more = call(*ASK, "--step", "check", "--check", "3")
    assert "on 3 fresh questions" in more.stdout
    assert CHECKS.read_bytes().startswith(kept)
    # The report shows all that is there, or as many as are asked for.
    assert call(*ASK, "--step", "report").exit_code == 0
    assert "answered 3 questions" in Path("calibration-pair/report.html").read_text("utf-8")
    assert call(*ASK, "--step", "report", "--check", "2").exit_code == 0
    assert "answered 2 questions" in Path("calibration-pair/report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((*ASK, "--check", "5"), "only 4 of the 12 in q.jsonl are not used"),
        ((*ASK[:4], "--check", "1"), "only 0 of the 12"),
        ((*ASK[:4], "--n", "13"), "there are only 12 in q.jsonl"),
        ((*ASK, "--check", "-1"), "--check"),
        ((*ASK, "--step", "check"), "needs a number of questions"),
        ((*ASK, "--step", "check", "--check", "1"), "there is no profile"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_work(
    stage: Stage, args: tuple[str, ...], says: str
) -> None:
    result = call(*args)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())
    assert stage.asked == []
    assert not Path("pair.toml").exists()


def test_a_second_run_in_one_folder_is_refused(stage: Stage) -> None:
    with lock(Path("calibration-pair"), extra="calibrate"):
        result = call(*ASK)
    assert result.exit_code == 2
    assert "another run works in calibration-pair" in result.stderr
    assert stage.asked == []
    assert call(*ASK, "--step", "traces").exit_code == 0


LEVEL = LevelCheck(
    ("careful", "balanced"), "relay", 40, 0.76, 0.781, 0.75, 0.81, 2.1, -1.0, 5.25, 60.0, 57.4,
    0, 0, Speed(1.2, 1.25, 0.98, 1.02),
)  # fmt: skip
CHECK = Check((LEVEL,), 40, Costs(126.0, 55.0, 29.0, 15.0), 7.5)


def shown(check: Check | None, capsys: pytest.CaptureFixture[str]) -> str:
    show_check(check)
    return " ".join(capsys.readouterr().out.split())


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(CHECK, capsys)
    assert ("careful = balanced 76 % 78 % 75 … 81 % +2.1 -1.0 … +5.2 60.0 → 57.4") in text.replace(
        "\N{MINUS SIGN}", "-"
    )
    assert "careful = balanced 22 % 1.20× 1.25× 0.98× 1.02×" in text
    assert "decode 126.0 and 55.0 ms, catch-up 29.0 and 15.0 ms per token" in text
    assert "7.5 ms lost per hand-off" in text
    assert "cut" not in text
    assert "failed" not in text


def test_what_is_doubtful_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    doubtful = replace(LEVEL, names=("fast",), cut=3, fallbacks=1)
    text = shown(replace(CHECK, levels=(doubtful,)), capsys)
    assert "fast: 3 of 40 answers cut at the token limit" in text
    assert "fast: an engine failed in 1 of 40 answers" in text


def test_what_is_not_known_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    nan = float("nan")
    alone = replace(
        LEVEL, n=1, low=nan, high=nan, difference_low=nan, difference_high=nan, speed=None
    )
    text = shown(Check((alone,), 1, None, 0.0), capsys)
    assert "on 1 fresh question at each level" in text
    assert "nan" not in text
    assert "too little was written to measure costs" in text
    assert shown(None, capsys) == ""
