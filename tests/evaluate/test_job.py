"""An evaluation over scripted engines: resumed, repeated, refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import EngineError, Relay, UsageError
from relaygen._errors import ContextLengthError, EngineReplyError, EngineUnreachableError
from relaygen._files import append
from relaygen._progress import Step
from relaygen._types import Delta, SegmentRequest
from relaygen.engines.scripted import Failure, ScriptedTokenizer
from relaygen.evaluate._arms import parse_arms
from relaygen.evaluate._asking import ask
from relaygen.evaluate._folder import FREE, Folder, Settings
from relaygen.evaluate._job import Evaluation
from relaygen.evaluate._questions import Item
from relaygen.evaluate._results import Result
from relaygen.evaluate._schedule import Decoding, item_seed, schedule
from relaygen.profiles import load

from .answering import PLAIN, Answerer, evaluation, items, pair, small_is_wrong, tagged

Pair = dict[Decoding, Relay]


def run(one: Evaluation, relays: Pair | None = None, steps: list[Step] | None = None) -> None:
    one.claim()
    relays = pair() if relays is None else relays
    asyncio.run(ask(one, relays, (steps if steps is not None else []).append))


def asked(relays: Pair) -> int:
    """Requests beside those that warm the engines up."""
    return sum(
        any(request.max_tokens > 4 for request in [each])
        for engine in relays[PLAIN].engines.values()
        if isinstance(engine, Answerer)
        for each in engine.requests
    )


def told(one: Evaluation) -> dict[tuple[str, int, str], Result]:
    return {result.key: result for result in one.results()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """A whole evaluation, for tests that only look."""
    one = evaluation(tmp_path_factory.mktemp("whole"), "large,small,relay,random,one-shot", n=24)
    run(one)
    one.report()
    return one


def test_every_arm_answers_every_question(done: Evaluation) -> None:
    results = done.results()
    assert len(results) == 24 * 5
    assert sorted(result.order for result in results) == list(range(120))
    wrong = {result.item for result in results if result.arm == "small" and not result.correct}
    assert wrong == {f"q{n}" for n in range(24) if small_is_wrong(n)}
    assert all(result.correct for result in results if result.arm in ("large", "relay"))
    assert {result.at_once for result in results} == {1}


def test_texts_are_kept_with_their_writers(done: Evaluation) -> None:
    relay = told(done)["q1", 0, "relay"]
    assert {part.role for part in relay.segments} == {"large", "small"}
    assert "".join(part.text for part in relay.segments) == relay.answer
    assert {part.cue for part in relay.segments if part.role == "small"} == {"Thus"}
    assert relay.usage is not None
    assert relay.usage["small_tokens"] == sum(
        part.tokens for part in relay.segments if part.role == "small"
    )


def test_random_delegates_as_much_as_relay_did(done: Evaluation) -> None:
    summary = done.summary()
    share = {arm.name: arm.small_share for arm in summary.arms}
    assert share["random"] is not None
    assert share["relay"] is not None
    assert share["relay"] > 0.25
    assert abs(share["random"] - share["relay"]) <= 0.02
    pinned = json.loads(done.folder.settings.read_text())["shares"]
    assert pinned == {"random": round(share["relay"], 4)}


def test_the_share_is_measured_on_every_question_first(done: Evaluation) -> None:
    results = done.results()
    first = min(result.order for result in results if result.arm == "random")
    assert first > max(result.order for result in results if result.arm == "relay")


def test_arms_take_turns(done: Evaluation) -> None:
    first: dict[str, str] = {}
    for result in sorted(done.results(), key=lambda result: result.order):
        first.setdefault(result.item, result.arm)
    starts = list(first.values())
    assert starts[:5] == ["large", "small", "relay", "one-shot", "large"]
    assert {starts.count(arm) for arm in set(starts)} == {6}


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 4))
def test_a_schedule_has_everything_once(n: int, runs: int, arms: int) -> None:
    names = ["large", "small", "relay", "one-shot"][:arms]
    units = schedule(items(n), runs, parse_arms(names))
    keys = [unit.key for unit in units]
    assert sorted(keys) == sorted(
        (f"q{k}", r, a) for k in range(n) for r in range(runs) for a in names
    )
    for at in range(0, len(keys), arms):  # all arms of one question before the next one
        assert len({key[:2] for key in keys[at : at + arms]}) == 1


def test_arms_share_their_seeds_and_nothing_else_does(done: Evaluation) -> None:
    seeds: dict[str, set[int]] = {}
    for result in done.results():
        seeds.setdefault(result.item, set()).add(result.seed)
    assert all(len(each) == 1 for each in seeds.values())
    assert len(set().union(*seeds.values())) == 24
    assert len({item_seed(s, r, i) for s in (0, 1) for r in (0, 1) for i in ("a", "b")}) == 8


def test_the_files_of_a_whole_evaluation(done: Evaluation) -> None:
    names = {one.name for one in done.folder.path.iterdir()}
    assert names == {
        *("settings.json", "items.jsonl", "results.jsonl"),
        *("summary.json", "report.html", "report.md", "results.csv", "plots"),
    }
    assert {one.name for one in done.folder.plots.iterdir()} == {
        f"{name}.{ending}"
        for name in ("latency", "speedup", "outcomes", "pairs")
        for ending in ("svg", "png")
    }
    html = done.folder.page.read_text("utf-8")
    assert html.count('<details class="q card"') == 24
    assert "small model at the cue “Thus”" in html
    page = done.folder.markdown.read_text("utf-8")
    assert "- share of random: " in page
    assert "scripted (scripted)" in page
    assert "| small | large | worse | 24 | -33.3 |" in page
    summary = json.loads(done.folder.summary.read_text("utf-8"))
    assert summary["settings"]["data"] == "numbers"
    assert [arm["name"] for arm in summary["arms"]] == [
        *("large", "small", "relay"),
        "random",
        "one-shot",
    ]
    assert len(done.folder.items.read_text("utf-8").splitlines()) == 24


def test_a_second_start_asks_nothing(tmp_path: Path) -> None:
    one = evaluation(tmp_path)
    run(one)
    before = one.folder.results.read_bytes()
    relays, steps = pair(), list[Step]()
    run(evaluation(tmp_path), relays, steps)
    assert [len(engine.requests) for engine in relays[PLAIN].engines.values()] == [0, 0]  # type: ignore[attr-defined]
    assert one.folder.results.read_bytes() == before
    assert (steps[-1].done, steps[-1].total) == (16, 16)


def test_killed_anywhere_it_ends_in_the_same_results(tmp_path: Path) -> None:
    output = subprocess.run(
        [sys.executable, "-m", "tests.evaluate.killing", str(tmp_path / "whole"), "7"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    ).stdout
    found = json.loads(output)
    assert found["results"] == 9
    assert len(found["kills"]) == 14
    for kill in found["kills"]:
        assert kill["statuses"] == [9, 0], kill
        assert kill["differ"] == [], kill


def test_a_half_written_line_is_asked_for_again(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large", n=3)
    run(one)
    whole = one.folder.results.read_bytes()
    torn = whole[: whole.rfind(b'"order":2') + 5]
    one.folder.results.write_bytes(torn)
    relays = pair()
    again = evaluation(tmp_path, "large", n=3)
    run(again, relays)
    assert asked(relays) == 1
    assert [result.item for result in again.results()] == ["q0", "q1", "q2"]
    assert [result.answer for result in again.results()][2].endswith("\\boxed{4}.")


def test_the_disk_has_each_answer_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    one = evaluation(tmp_path, "large", n=3)
    monkeypatch.setattr(
        os, "fsync", lambda _: written.append(one.folder.results.read_bytes().count(b"\n"))
    )
    run(one)
    assert written == [1, 2, 3]


def test_more_questions_and_arms_may_be_asked_later(tmp_path: Path) -> None:
    run(evaluation(tmp_path, "large,relay", n=2))
    relays = pair()
    more = evaluation(tmp_path, "large,relay,small,random", n=3)
    run(more, relays)
    assert len(more.results()) == 12
    fewer = evaluation(tmp_path, "small", n=1)
    run(fewer, relays)
    assert len(fewer.results()) == 12
    summary = fewer.summary()
    assert [(arm.name, arm.answers) for arm in summary.arms] == [("small", 1)]
    assert len(more.summary().arms) == 4


def test_a_pinned_share_stays(tmp_path: Path) -> None:
    run(evaluation(tmp_path, "relay,random", n=2))
    more = evaluation(tmp_path, "relay,random", n=5)
    more.claim()
    before = dict(more.settings.shares)
    assert set(before) == {"random"}
    asyncio.run(ask(more, pair()))
    assert more.settings.shares == before


def test_a_kept_share_that_is_no_longer_relays_is_told(tmp_path: Path) -> None:
    first = evaluation(tmp_path, "relay,random", n=1)
    run(first)
    # As if relay had delegated less in its first answers.
    first.folder.update(replace(first.settings, shares={"random": 0.2}))
    more = evaluation(tmp_path, "relay,random", n=2)
    steps: list[Step] = []
    run(more, steps=steps)
    relay, _ = more.summary().arms
    assert more.settings.shares == {"random": 0.2}
    assert [step.note for step in steps if step.note] == [
        "random keeps its share of 20.0%, at which it began; "
        f"relay delegates {relay.small_share:.1%} by now"
    ]


def test_a_share_that_no_answer_has_is_measured_again(tmp_path: Path) -> None:
    run(evaluation(tmp_path, "relay", n=2))
    stopped = evaluation(tmp_path, "relay,random", n=2)
    stopped.claim()
    stopped.folder.update(replace(stopped.settings, shares={"random": 0.9}))
    run(evaluation(tmp_path, "relay,random", n=4))
    settings = json.loads(stopped.folder.settings.read_text())
    (relay,) = evaluation(tmp_path, "relay", n=4).summary().arms
    assert settings["shares"] == {"random": round(relay.small_share or 0.0, 4)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 4}, "another seed"),
        ({"max_tokens": 401}, "another max-tokens"),
        ({"large": "other.gguf"}, "another large"),
        ({"profile_sha256": "0"}, "another profile"),
        ({"level": "fast"}, "another level"),
        ({"data": "others"}, "another data"),
        ({"sampling": {"temperature": 0.5}}, "another temperature or other sampling"),
        ({"ctx": 9, "preset": "gsm8k"}, "another preset, ctx"),
    ],
)
def test_another_configuration_is_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    one = evaluation(tmp_path, "large", n=1)
    one.claim()
    settings = one.folder.settings.read_bytes()
    with pytest.raises(UsageError) as caught:
        one.folder.claim(replace(one.settings, **change), one.items)
    assert str(caught.value).endswith(f"holds an evaluation with {says}")
    assert "--out" in caught.value.hint
    assert one.folder.settings.read_bytes() == settings


def test_what_may_change_is_all_that_may_change(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large", n=1)
    one.claim()
    free = {
        "n": 7,
        "runs": 2,
        "arms": ("small",),
        "engines": {"large": {}},
        "shares": {"x": 0.1},
    }
    assert set(free) == set(FREE)
    one.folder.claim(replace(one.settings, **free), one.items)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="another seed"):
        one.folder.claim(replace(one.settings, seed=9, **free), one.items)  # type: ignore[arg-type]


def test_another_question_under_the_same_id_is_refused(tmp_path: Path) -> None:
    evaluation(tmp_path, "large", n=3).claim()
    changed = [*items(2), replace(items(3)[2], gold="5")]
    with pytest.raises(UsageError, match="another question 'q2'"):
        evaluation(tmp_path, "large", questions=changed).claim()
    evaluation(tmp_path, "large", questions=changed[:2]).claim()
    # Asked for less meanwhile, it still knows what it asked.
    with pytest.raises(UsageError, match="another question 'q2'"):
        evaluation(tmp_path, "large", questions=changed).claim()
    again = evaluation(tmp_path, "large", n=3)
    again.claim()
    kept = [json.loads(line) for line in again.folder.items.read_text("utf-8").splitlines()]
    assert kept == [item.to_json() for item in items(3)]


def test_results_of_unknown_origin_are_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    append(folder.results, {})
    with pytest.raises(UsageError, match="unknown origin"):
        folder.claim(evaluation(tmp_path, "large").settings, items(1))


def test_another_model_behind_the_same_name_is_refused(tmp_path: Path) -> None:
    run(evaluation(tmp_path, "large,small", n=1))
    engines = json.loads((tmp_path / "out" / "settings.json").read_text())["engines"]
    assert engines["large"] == {"model": "scripted", "kind": "scripted", "vocabulary": "same"}

    class Other(Answerer):
        async def info(self) -> Any:
            return replace(await super().info(), model="another")

    relays = {PLAIN: Relay(Other("Anna"), Answerer("Ben"), profile="embedded")}
    with pytest.raises(UsageError, match="another large model, scripted"):
        run(evaluation(tmp_path, "large,small", n=2), relays)


def test_several_at_once_answer_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, many = (evaluation(tmp_path / name, n=6, at_once=k) for name, k in (("a", 1), ("b", 4)))
    relays = pair()
    run(one, relays)
    assert max(engine.most for engine in relays[PLAIN].engines.values()) == 1  # type: ignore[attr-defined]
    relays = pair(ms=0.05)
    large = relays[PLAIN].engines["large"]
    assert isinstance(large, Answerer)
    run(many, relays)
    assert 2 <= large.most <= 4
    assert {key: result.answer for key, result in told(one).items()} == {
        key: result.answer for key, result in told(many).items()
    }
    assert {result.at_once for result in many.results()} == {4}
    assert all(arm.seconds is None for arm in many.summary().arms)
    assert many.settings.shares == one.settings.shares


# Failures.


def failing(error: EngineError, request: int | None = None, token: int = 5) -> Pair:
    """The small model's engine fails at that request; its first one warms it up."""
    return pair(failures=(Failure(error, request, token),))


def test_a_failure_is_kept_and_asked_for_again(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large,small", n=4)
    run(one, failing(EngineReplyError("nonsense"), request=2))
    results = told(one)
    failed = [result for result in results.values() if result.error is not None]
    assert [(result.item, result.arm) for result in failed] == [("q1", "small")]
    assert failed[0].error == "small engine: nonsense"
    assert (failed[0].correct, failed[0].usage, failed[0].finish) == (None, None, None)
    summary = one.summary()
    assert [arm.errors for arm in summary.arms] == [0, 1]
    assert not summary.complete
    relays = pair()
    again = evaluation(tmp_path, "large,small", n=4)
    run(again, relays)
    assert asked(relays) == 1
    assert len(again.results()) == 9
    assert again.summary().complete
    assert told(again)["q1", 0, "small"].order == 8


def test_an_answer_that_the_large_model_had_to_finish_is_no_answer_of_relay(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large,relay,random", n=2)
    steps: list[Step] = []
    run(one, failing(EngineReplyError("nonsense"), request=1), steps)
    failed = [result for result in one.results() if result.error is not None]
    assert [result.arm for result in failed] == ["relay"]
    assert "the small model failed" in str(failed[0].error)
    assert "nonsense" in str(failed[0].error)
    # And random waits, for its share would be another one.
    assert {result.arm for result in one.results()} == {"large", "relay"}
    assert "random waits: 1 answer of relay is missing" in [step.note for step in steps]
    run(one)
    assert one.summary().complete


def test_a_dead_engine_stops_the_run(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large,small", n=4)
    with pytest.raises(EngineUnreachableError, match="it is gone") as caught:
        run(one, failing(EngineUnreachableError("it is gone", retryable=False), request=2))
    assert "run the same command again" in caught.value.hint
    assert len(one.results()) < 8
    run(one)
    assert one.summary().complete


def test_an_arm_that_always_fails_stops_the_run(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large,relay", n=9)
    with pytest.raises(EngineError, match="arm relay failed 3 times in a row") as caught:
        run(one, failing(EngineReplyError("nonsense"), token=6))
    assert "run the same command again" in caught.value.hint
    assert sum(result.error is not None for result in one.results()) == 3


def test_failures_that_are_not_in_a_row_do_not_stop_it(tmp_path: Path) -> None:
    error = EngineReplyError("nonsense")
    one = evaluation(tmp_path, "large,small", n=6)
    run(one, pair(failures=tuple(Failure(error, request, 5) for request in (1, 2, 4, 5))))
    assert [arm.errors for arm in one.summary().arms] == [0, 4]


def test_questions_that_do_not_fit_do_not_stop_the_run(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large,small", n=5)
    run(one, failing(ContextLengthError("too long"), token=5))
    assert [arm.errors for arm in one.summary().arms] == [0, 5]


def too_long(number: int) -> Pair:
    """The large model has no room for a question."""

    class Full(Answerer):
        def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
            tokens = ScriptedTokenizer()
            if f"Number {number} " in b"".join(map(tokens.data, request.ids)).decode():
                raise ContextLengthError("too long")
            return super().stream(request)

    return {PLAIN: Relay(Full("Anna", thinks=True), Answerer("Ben", thinks=True), profile=tagged())}


def test_an_arm_waits_for_no_answer_that_never_comes(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large,relay,random,answer-stage", n=3, profile=tagged())
    steps: list[Step] = []
    run(one, too_long(1), steps)
    assert not [step.note for step in steps if "waits" in step.note]
    found = {arm.name: (arm.answers, arm.errors) for arm in one.summary().arms}
    assert found == dict.fromkeys(("large", "relay", "random", "answer-stage"), (2, 1))
    assert set(one.settings.shares) == {"random"}
    assert "too long" in str(told(one)["q1", 0, "answer-stage"].error)


def test_cancelled_it_keeps_what_there_is(tmp_path: Path) -> None:
    one = evaluation(tmp_path, n=9, at_once=3)
    one.claim()

    async def stopped() -> None:
        enough = asyncio.Event()

        def progress(step: Step) -> None:
            if step.done >= 4:
                enough.set()

        task = asyncio.ensure_future(ask(one, pair(ms=0.1), progress))
        await enough.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
    there = len(one.results())
    assert 4 <= there < 36
    assert all(result.error is None for result in one.results())
    run(one)
    assert len(one.results()) == 36


# What is asked.


def test_progress_is_told(tmp_path: Path) -> None:
    steps: list[Step] = []
    run(evaluation(tmp_path, "relay,random", n=2), steps=steps)
    assert {step.name for step in steps} == {"answers"}
    assert [step.done for step in steps if not step.note] == [0, 1, 2, 3, 4]
    (note,) = (step.note for step in steps if step.note)
    assert note.startswith("random delegates ")
    assert note.endswith("as relay did")
    assert steps[-1].left == 0.0


def test_answer_stage_continues_the_large_models_thinking(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large,answer-only,answer-stage", n=4, profile=tagged())
    run(one, pair(thinks=True))
    results = told(one)
    for n in range(4):
        large, only, stage = (
            results[f"q{n}", 0, arm] for arm in ("large", "answer-only", "answer-stage")
        )
        assert large.reasoning == only.reasoning
        assert (
            stage.answer
            == only.answer
            == f"The answer is \\boxed{{{-1 if n % 3 == 0 else 2 * n}}}."
        )
        assert [part.role for part in stage.segments] == ["small"]
        assert [part.role for part in only.segments] == ["large", "small"]
    summary = one.summary().answer_stage
    assert summary is not None
    assert (summary.n, summary.agree) == (4, 2)


def test_without_the_end_of_thinking_there_is_no_answer_to_compare(tmp_path: Path) -> None:
    one = evaluation(tmp_path, "large,answer-stage", n=1, profile=tagged(), max_tokens=20)
    run(one, pair(thinks=True))
    stage = told(one)["q0", 0, "answer-stage"]
    assert (stage.answer, stage.finish, stage.usage, stage.correct) == ("", "length", None, False)
    summary = one.summary()
    assert summary.complete
    assert summary.answer_stage is not None
    assert summary.answer_stage.n == 0


def test_several_runs_need_a_temperature(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="temperature 0"):
        evaluation(tmp_path, "large", runs=2)
    sampling = dict(evaluation(tmp_path, "large").settings.sampling) | {"temperature": 0.6}
    one = evaluation(tmp_path, "large,small", n=3, runs=2, sampling=sampling)
    relays = pair()
    run(one, relays)
    assert len(one.results()) == 12
    large = relays[PLAIN].engines["large"]
    assert isinstance(large, Answerer)
    drawn = [request for request in large.requests if request.max_tokens > 4]
    assert {request.sampling.temperature for request in drawn} == {0.6}
    assert len({request.seed for request in drawn}) == 6


def test_what_is_not_applicable_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not applicable"):
        evaluation(tmp_path, "large,answer-only")
    with pytest.raises(UsageError, match="no levels"):
        evaluation(tmp_path, "large,relay", level="balanced")
    with pytest.raises(UsageError, match="there are no questions"):
        evaluation(tmp_path, "large", questions=[])
    assert list(tmp_path.iterdir()) == []


def test_without_gold_answers_nothing_is_graded(tmp_path: Path) -> None:
    pytest.importorskip("rapidfuzz")
    questions = [Item(f"q{n}", "?", f"Number {n} ?", None, "none") for n in range(3)]
    one = evaluation(tmp_path, "large,small,relay", questions=questions)
    run(one)
    assert {result.correct for result in one.results()} == {None}
    arms = {arm.name: arm for arm in one.summary().arms}
    assert arms["small"].accuracy is None
    assert arms["small"].agreement == pytest.approx(2 / 3)
    assert arms["relay"].agreement == 1.0
    assert arms["relay"].similarity is not None
    assert 0.5 < arms["relay"].similarity < 1.0
    assert arms["relay"].nearness is None


def test_meanings_are_compared_where_that_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("rapidfuzz")
    questions = [Item(f"q{n}", "?", f"Number {n} ?", None, "none") for n in range(3)]
    one = evaluation(tmp_path, "large,small", questions=questions)
    run(one)
    compared: list[tuple[str, str]] = []

    def near(pairs: Sequence[tuple[str, str]]) -> list[float]:
        compared.extend(pairs)
        return [0.25 * (number + 1) for number, _ in enumerate(pairs)]

    one.near = near
    arms = {arm.name: arm for arm in one.report().arms}
    assert arms["small"].nearness == 0.5
    answers = {(result.arm, result.item): result.answer for result in one.results()}
    assert compared[3:] == [
        (answers["large", f"q{n}"], answers["small", f"q{n}"]) for n in range(3)
    ]
    assert "embedding similarity" in one.folder.markdown.read_text("utf-8")


def test_a_level_that_no_arm_is_asked_at_is_no_fact(tmp_path: Path) -> None:
    assert "level" in dict(evaluation(tmp_path, "large,relay").facts)
    assert "level" not in dict(evaluation(tmp_path, "large,small").facts)


def test_the_settings_name_what_they_pin() -> None:
    settings = evaluation(Path("nowhere"), "large").settings
    assert isinstance(settings, Settings)
    assert settings.profile == load("embedded").name
