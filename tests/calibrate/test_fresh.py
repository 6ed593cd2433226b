"""The step ``check``: which questions, which levels, killed and resumed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relaygen import EngineError, Relay, Usage, UsageError
from relaygen._profile import ProfileLevel
from relaygen._progress import Step
from relaygen.calibrate._answers import Answer, distinct, known
from relaygen.calibrate._effects import tables
from relaygen.calibrate._fresh import fresh
from relaygen.calibrate._job import Job
from relaygen.calibrate._predict import replay
from relaygen.calibrate._records import read
from relaygen.calibrate._traces import Question, trace_seed
from relaygen.engines.scripted import Failure
from relaygen.profiles import load

from .talking import Talker, everything, job, nothing, relay

N = 3


def checking(folder: Path, check_n: int = N, **changes: Any) -> Job:
    return replace(job(folder, **{"n": 6, **changes}), check_n=check_n)


def pair(one: Job, tick: Any = nothing) -> Relay:
    """The live pair with the profile that was made."""
    return Relay(Talker(tick), Talker(tick), profile=one.made())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with a calibration that nobody checked."""
    asyncio.run(everything(job(tmp_path, n=6), relay()))
    return tmp_path


def timeless(answers: list[Answer]) -> list[Any]:
    """All but the seconds."""
    found = []
    for one in answers:
        value = one.to_json()
        usage = value["usage"]
        for part in (usage, usage["large"], usage["small"]):
            for name in [name for name in part if "seconds" in name or "ms" in name]:
                del part[name]
        found.append(value)
    return found


def test_the_questions_behind_those_of_the_calibration_are_asked(made: Path) -> None:
    one = checking(made)
    live = pair(one)
    steps: list[Step] = []
    result = asyncio.run(one.check(live, steps.append))
    assert result is not None
    settings = distinct(one.made(), ("scripted", "scripted"))
    assert [level.names for level in result.levels] == [each.names for each in settings]
    answers = read(one.folder.checks, Answer)
    wanted = [(each.key, f"q{n}") for n in (6, 7, 8) for each in settings]
    assert [(answer.key, answer.id) for answer in answers] == wanted
    assert [step.done for step in steps] == list(range(len(wanted) + 1))
    assert {(step.name, step.total) for step in steps} == {("check", len(wanted))}
    assert steps[-1].left == 0.0
    assert result.questions == N
    assert all(level.n == N and 0 < level.small_share < 1 for level in result.levels)
    assert all(answer.answer for answer in answers)


def test_the_engines_are_asked_as_for_traces(made: Path) -> None:
    one = checking(made, 1)
    live = pair(one)
    asyncio.run(one.check(live))
    large = live.engines["large"]
    assert isinstance(large, Talker)
    text = b"".join(map(large._tokenizer.data, large.requests[0].ids)).decode()
    assert text == "<user>Question 6 ? Box it in \\boxed{}.<assistant>"
    assert large.requests[0].max_tokens == one.settings.max_tokens
    asked = checking(made, 2, seed=0)
    again = pair(asked)
    asyncio.run(asked.check(again))
    assert isinstance(again.engines["large"], Talker)
    first = again.engines["large"].requests[0]
    assert first.seed == trace_seed(0, "q7", 0) != large.requests[0].seed


def test_a_live_pair_does_what_a_replay_of_its_text_says(made: Path) -> None:
    """Both engines write the same text, so that prediction and measurement must be equal."""
    one = checking(made)
    result = asyncio.run(one.check(pair(one)))
    assert result is not None
    other = made / "other"
    other.mkdir()
    seen = job(other, n=6 + N)
    asyncio.run(everything(seen, relay()))
    pairs = seen._scored()[6:]
    assert [trace.id for trace, _ in pairs] == ["q6", "q7", "q8"]
    profile = one.made()
    for level in result.levels:
        cues = profile.levels[level.names[0]].cues
        made_of = tables(seen._observed(pairs, cues))
        replayed = replay(made_of, cues, answer_role=profile.answer_role)
        assert level.utilization == pytest.approx(replayed.utilization)
        tokens = float(replayed.tokens.sum())
        assert level.handoffs == pytest.approx(1000 * float(replayed.handoffs.sum()) / tokens)


KILLED = """
import asyncio, os, sys
from pathlib import Path
from tests.calibrate.test_fresh import checking, pair
left = int(sys.argv[2])
def tick():
    global left
    left -= 1
    if not left:
        os._exit(9)
one = checking(Path(sys.argv[1]))
asyncio.run(one.check(pair(one, tick)))
"""


def test_killed_in_the_middle_it_asks_no_question_twice(made: Path) -> None:
    one = checking(made)
    ticks = 0

    def count() -> None:
        nonlocal ticks
        ticks += 1

    whole = asyncio.run(one.check(pair(one, count)))
    before = read(one.folder.checks, Answer)
    one.folder.checks.unlink()
    for share in (0.3, 0.5):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(made), str(int(share * ticks))],
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 9
    kept = len(read(one.folder.checks, Answer))
    assert 0 < kept < len(before)
    with open(one.folder.checks, "ab") as file:
        file.write(b'{"id":"q8","level":"ca')  # torn
    left: list[Step] = []
    again = asyncio.run(one.check(pair(one), left.append))
    assert left[0].done == kept
    after = read(one.folder.checks, Answer)
    assert timeless(after) == timeless(before)
    assert whole is not None
    assert again is not None
    for ours, theirs in zip(again.levels, whole.levels, strict=True):
        assert replace(ours, speed=None) == replace(theirs, speed=None)
    asked = pair(one)
    asyncio.run(one.check(asked))
    for engine in asked.engines.values():
        assert isinstance(engine, Talker)
        assert engine.requests == []


def test_an_engine_failure_keeps_what_there_is(made: Path) -> None:
    one = checking(made)
    live = pair(one)
    large = live.engines["large"]
    assert isinstance(large, Talker)
    asyncio.run(checking(made, 1).check(live))
    done = len(large.requests)
    large._failures = tuple(Failure(EngineError("gone"), n) for n in range(done + 2, done + 9))
    with pytest.raises(EngineError, match="gone"):
        asyncio.run(one.check(live))
    kept = read(one.folder.checks, Answer)
    assert 0 < len(kept) < N * len(distinct(one.made(), ()))
    asyncio.run(one.check(pair(one)))
    assert read(one.folder.checks, Answer)[: len(kept)] == kept


def test_answers_without_the_small_model_are_asked_again(made: Path) -> None:
    one = checking(made, 1)
    live = pair(one)
    small = live.engines["small"]
    assert isinstance(small, Talker)
    small._failures = (Failure(EngineError("gone"), request=None),)
    result = asyncio.run(one.check(live))
    assert result is not None
    assert {(level.fallbacks, level.utilization) for level in result.levels} == {(1, 1.0)}
    result = asyncio.run(one.check(pair(one)))
    assert result is not None
    assert {level.fallbacks for level in result.levels} == {0}
    assert all(level.small_share > 0 for level in result.levels)
    assert len(read(one.folder.checks, Answer)) == 2 * len(result.levels)


def test_answers_of_another_profile_stay_and_do_not_count(made: Path) -> None:
    one = checking(made, 1)
    asyncio.run(one.check(pair(one)))
    kept = one.folder.checks.read_bytes()
    other = checking(made, 1, rule="paper", mine=False)
    other.begin()
    other.select()
    keys = {each.key for each in distinct(other.made(), ("scripted", "scripted"))}
    mine = {each.key for each in distinct(one.made(), ("scripted", "scripted"))}
    assert keys == mine  # what is on the disk is the other's
    old = {answer.key for answer in read(one.folder.checks, Answer)}
    assert keys != old
    result = asyncio.run(other.check(pair(other)))
    assert result is not None
    assert one.folder.checks.read_bytes().startswith(kept)
    assert len(result.levels) == len(keys)
    same = checking(made, 1)
    same.begin()
    same.select()
    asked = pair(same)
    asyncio.run(same.check(asked))
    assert isinstance(asked.engines["large"], Talker)
    assert asked.engines["large"].requests == []


def test_answers_to_questions_that_the_calibration_uses_do_not_count(made: Path) -> None:
    one = checking(made, 2)
    asyncio.run(one.check(pair(one)))
    assert job(made, n=6).checked() == one.checked()
    more = job(made, n=7)
    found = more.checked()
    assert found is not None
    assert found.questions == 1
    assert job(made, n=8).checked() is None
    one.folder.checks.unlink()
    assert one.checked() is None


def test_the_report_tells_of_the_check(made: Path) -> None:
    one = checking(made, 2)
    assert "Predicted and measured" not in one.report().read_text("utf-8")
    asyncio.run(one.check(pair(one)))
    text = one.report().read_text("utf-8")
    assert "Predicted and measured" in text
    assert "answered 2 questions" in text


@pytest.mark.parametrize(
    ("n", "check_n", "says"),
    [
        (25, 0, "--n 25: there are only 24 in q.jsonl"),
        (12, 13, "--check 13: only 12 of the 24 in q.jsonl are not used"),
        (None, 1, "--check 1: only 0 of the 24"),
    ],
)
def test_too_few_questions(tmp_path: Path, n: int | None, check_n: int, says: str) -> None:
    one = replace(job(tmp_path, n=n), check_n=check_n)
    with pytest.raises(UsageError) as caught:
        one.begin()
    assert says in str(caught.value)
    assert caught.value.hint
    with pytest.raises(UsageError), one.working():
        raise AssertionError
    assert list(tmp_path.iterdir()) == []
    replace(one, settings=replace(one.settings, n=23), check_n=1).begin()


def test_imported_questions_are_not_fresh(tmp_path: Path) -> None:
    source = tmp_path / "theirs.jsonl"
    values = [
        {"question": "Question 0 ?", "text": "So."},
        {"prompt": "Question 2 ? Box it in \\boxed{}.", "text": "So."},
    ]
    source.write_text("\n".join(map(json.dumps, values)))
    one = replace(job(tmp_path, n=None), imported=source)
    assert [each.id for each in fresh(one)][:3] == ["q1", "q3", "q4"]


def test_one_run_at_a_time_in_a_folder(tmp_path: Path) -> None:
    one = job(tmp_path)
    with (
        one.working(),
        pytest.raises(UsageError, match="another run works in"),
        job(tmp_path).working(),
    ):
        raise AssertionError
    with one.working():
        assert one.folder.settings.exists()


# Levels that are one.


def test_levels_with_equal_cues_and_policy_are_one() -> None:
    levels = {
        "careful": ProfileLevel(("So", "Thus"), utilization=0.8),
        "balanced": ProfileLevel(("Thus", "So"), utilization=0.7, unproven=True),
        "able": ProfileLevel(("So", "Thus"), "relay", 0.9, 0.3),
        "sure": ProfileLevel(("So", "Thus"), "margin", 0.9, 0.3),
        "surer": ProfileLevel(("So", "Thus"), "margin", 0.9, 0.4),
        "fast": ProfileLevel(("So",)),
    }
    profile = replace(load("embedded"), levels=levels, level="careful", cues=("So", "Thus"))
    found = distinct(profile, ("l", "s"))
    names = [each.names for each in found]
    assert names == [("careful", "balanced", "able"), ("sure",), ("surer",), ("fast",)]
    assert [each.profile.level for each in found] == ["careful", "sure", "surer", "fast"]
    assert len({each.key for each in found}) == 4


def test_the_key_is_of_what_an_answer_depends_on() -> None:
    profile = replace(load("embedded"), levels={"a": ProfileLevel(("So",))}, level="a")

    def key(**changes: Any) -> str:
        models = changes.pop("models", ("l", "s"))
        return distinct(replace(profile, **changes), models)[0].key

    own = key()
    assert key(name="x", description="y", large="z", level="") == own
    assert key(models=("l", "t")) != own
    assert key(answer_role="large") != own
    assert key(sampling=replace(profile.sampling, temperature=0.7)) != own
    assert key(levels={"a": ProfileLevel(("So", "Thus"))}) != own
    assert key(levels={"b": ProfileLevel(("So",), utilization=0.3)}) == own


# Lines.


def test_the_later_of_two_answers_counts(tmp_path: Path) -> None:
    path = tmp_path / "checks.jsonl"
    answers = [Answer("q", "careful", "k", "relay", "stop", Usage(), text) for text in "ab"]
    path.write_text("".join(json.dumps(one.to_json()) + "\n" for one in answers))
    assert known(path)["k", "q"].answer == "b"
    assert read(path, Answer) == answers


@pytest.mark.parametrize("change", [{"usage": 3}, {"id": 3}, {"profile": None}, {"answer": None}])
def test_a_line_that_is_no_answer(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "checks.jsonl"
    one = Answer("q", "careful", "k", "relay", "stop", Usage(), "a")
    path.write_text(json.dumps(one.to_json() | change) + "\n")
    with pytest.raises(UsageError, match=r"line 1"):
        known(path)


def test_a_question_that_the_calibration_has_too_is_not_fresh(tmp_path: Path) -> None:
    asked = (Question("a", "One ?"), Question("b", "Two ?"))
    later = (Question("c", "One ?"), Question("d", "Three ?"))
    one = job(tmp_path, (*asked, *later), n=2)
    assert [each.id for each in fresh(one)] == ["d"]
    with pytest.raises(UsageError, match="only 1 of the 4"):
        replace(one, check_n=2).begin()
