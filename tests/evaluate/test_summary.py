from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen._jsonable import usage_dict
from relaygen._results import ModelUsage, Usage
from relaygen.evaluate._arms import parse_arms
from relaygen.evaluate._questions import Item
from relaygen.evaluate._results import Result
from relaygen.evaluate._statistics import wilson
from relaygen.evaluate._summarize import summarize
from relaygen.evaluate._summary import ArmSummary, Summary, summary_dict

from .answering import items

ARMS = parse_arms(["large", "small", "relay", "random:0.3"])


def result(item: int, arm: str, correct: bool | None = True, **known: Any) -> Result:
    large, small = known.pop("tokens", (60, 40))
    part: dict[str, Any] = {"decode_seconds": 1.0, "decoded": 100}
    usage = Usage(
        large=ModelUsage(tokens=large, **(part if large else {})),
        small=ModelUsage(tokens=small, **(part | {"decode_seconds": 0.25} if small else {})),
        handoffs=2 if large and small else 0,
        seconds=known.pop("seconds", 2.0),
        first_answer_seconds=0.5,
    )
    settings = {"run": 0, "order": 0, "seed": 1, "at_once": 1, "answer": "4", "finish": "stop"}
    error = known.get("error")
    own: dict[str, Any] = {"correct": correct, "usage": usage_dict(usage)}
    if error is not None:
        own = {"correct": None, "usage": None, "finish": None}
    return Result(item=f"q{item}", arm=arm, **{**settings, **own, **known})


def arm(summary: Summary, name: str) -> ArmSummary:
    return next(one for one in summary.arms if one.name == name)


def test_one_arm_of_two_questions() -> None:
    results = [
        result(0, "relay", True),
        result(1, "relay", False, tokens=(40, 60), seconds=4.0, finish="length"),
    ]
    found = arm(summarize(items(2), results, ARMS), "relay")
    assert (found.asked, found.answers, found.n, found.errors) == (2, 2, 2, 0)
    assert (found.graded, found.correct, found.accuracy) == (2, 1, 0.5)
    assert (found.low, found.high) == wilson(1, 2)
    assert (found.utilization, found.small_share, found.handoffs) == (0.5, 0.5, 4)
    assert (found.tokens, found.discarded) == (200, 0)
    assert found.finishes == {"stop": 1, "length": 1}
    assert (found.ms_per_token, found.seconds, found.first_answer_seconds) == (30.0, 3.0, 0.5)
    assert (found.speedup, found.agreement, found.similarity) == (None, None, None)
    # Large tokens take 10 ms, small ones 2.5 ms, half of each: 10 / 6.25.
    assert found.ceiling == pytest.approx(1.6)


def test_speed_beside_the_large_model() -> None:
    results = [result(0, "large", tokens=(100, 0), seconds=3.0), result(0, "relay", seconds=2.0)]
    summary = summarize(items(1), results, ARMS)
    relay = arm(summary, "relay")
    assert relay.speedup == pytest.approx(1.5)
    assert relay.ceiling is not None
    assert relay.ceiling == pytest.approx(10 / (0.6 * 10 + 0.4 * 2.5))
    assert relay.reached == pytest.approx(1.5 / relay.ceiling)
    assert arm(summary, "large").speedup == 1.0
    assert arm(summary, "large").ceiling is None
    (told,) = summary.ratios
    assert (told.arm, told.against) == ("relay", "large")
    assert told.ratio == pytest.approx(1.5)


def test_the_ceiling_is_over_the_large_model_as_the_speed_up_is() -> None:
    # Alone it takes 10 ms a token; with a draft 5, and as part of this relay as well.
    own = Usage(
        large=ModelUsage(tokens=60, decode_seconds=0.5, decoded=100),
        small=ModelUsage(tokens=40, decode_seconds=0.25, decoded=100),
        seconds=1.0,
    )
    arms = parse_arms(["large", "relay+draft"])
    drafted = result(0, "relay+draft", usage=usage_dict(own))
    results = [result(0, "large", tokens=(100, 0), seconds=2.0), drafted]
    found = arm(summarize(items(1), results, arms, devices=2), "relay+draft")
    assert found.speedup == pytest.approx(2.0)
    assert found.ceiling == pytest.approx(10 / (0.6 * 5 + 0.4 * 2.5))
    assert found.reached == pytest.approx(2.0 / 2.5)
    # Nobody knows what it took alone.
    assert arm(summarize(items(1), [drafted], arms), "relay+draft").ceiling is None
    beside = [replace(results[0], at_once=2), drafted]
    assert arm(summarize(items(1), beside, arms), "relay+draft").ceiling is None


def test_no_times_of_answers_that_had_company() -> None:
    results = [result(n, name, at_once=1 + n) for n in range(2) for name in ("large", "relay")]
    summary = summarize(items(2), results, ARMS)
    for one in summary.arms[::2]:
        assert one.at_once == 2
        times = (one.ms_per_token, one.seconds, one.first_answer_seconds, one.speedup, one.ceiling)
        assert times == (None,) * 5
        assert one.utilization == 0.6
    assert summary.ratios == ()
    assert summary.paired != ()


def test_failures_and_what_is_missing() -> None:
    results = [result(0, "relay"), result(1, "relay", error="gone")]
    summary = summarize(items(3), results, parse_arms(["relay"]))
    found = arm(summary, "relay")
    assert (found.asked, found.answers, found.errors, found.n) == (3, 1, 1, 1)
    assert found.accuracy == 1.0
    assert not summary.complete
    assert summarize(items(1), results, parse_arms(["relay"])).complete


def test_what_was_not_asked_does_not_count() -> None:
    results = [result(0, "relay"), result(0, "relay", False, run=1), result(7, "relay", False)]
    results.append(result(0, "one-shot", False))
    summary = summarize(items(1), results, ARMS)
    assert [one.answers for one in summary.arms] == [0, 0, 1, 0]
    assert arm(summary, "relay").accuracy == 1.0
    assert arm(summary, "large").accuracy is None
    assert arm(summary, "large").utilization is None


def test_several_runs_are_pass_at_1() -> None:
    told = [(0, True), (0, False), (1, True), (1, True)]
    results = [result(n, "relay", right, run=run % 2) for run, (n, right) in enumerate(told)]
    found = arm(summarize(items(2), results, ARMS, runs=2), "relay")
    assert (found.asked, found.answers, found.n) == (4, 4, 2)
    assert (found.correct, found.graded, found.accuracy) == (3, 4, 0.75)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.75 < found.high


def test_a_question_with_more_runs_weighs_no_more() -> None:
    told = [(0, 0, True), (0, 1, True), (0, 2, True), (1, 0, False)]
    results = [result(n, "relay", right, run=run) for n, run, right in told]
    found = arm(summarize(items(2), results, ARMS, runs=3), "relay")
    assert (found.correct, found.graded, found.accuracy) == (3, 4, 0.5)


def test_every_arm_is_compared_with_large_and_with_random() -> None:
    results = [result(0, one.name) for one in ARMS]
    pairs = [(one.arm, one.against) for one in summarize(items(1), results, ARMS).paired]
    assert pairs == [
        *((name, "large") for name in ("small", "relay", "random:0.3")),
        *((name, "random:0.3") for name in ("large", "small", "relay")),
    ]


def test_without_gold_answers_arms_are_compared_with_the_large_one() -> None:
    pytest.importorskip("rapidfuzz")
    asked = [Item(f"q{n}", "?", "?", None, "none") for n in range(2)]
    results = [
        result(0, "large", None, answer="the sea is blue"),
        result(1, "large", None, answer="yes"),
        result(0, "relay", None, answer="the sea is  Blue"),
        result(1, "relay", None, answer="no"),
    ]
    summary = summarize(asked, results, ARMS)
    relay = arm(summary, "relay")
    assert (relay.accuracy, relay.graded) == (None, 0)
    assert relay.agreement == 0.5
    assert relay.similarity is not None
    assert 0.0 < relay.similarity < 1.0
    assert arm(summary, "large").agreement == 1.0
    assert arm(summary, "small").agreement is None
    assert summary.paired == ()


def test_answers_behind_the_same_thinking() -> None:
    arms = parse_arms(["large", "answer-stage", "relay"])
    results = [
        result(0, "large", answer="\\boxed{0}"),
        result(1, "large", answer="\\boxed{2}"),
        result(2, "large", answer="\\boxed{4}"),
        result(0, "answer-stage", answer="\\boxed{0}", tokens=(0, 5)),
        result(1, "answer-stage", False, answer="\\boxed{3}", tokens=(0, 5)),
        result(2, "answer-stage", False, answer="", usage=None, finish="length"),
    ]
    summary = summarize(items(3), results, arms)
    stage = summary.answer_stage
    assert stage is not None
    assert (stage.n, stage.agree, stage.large_correct, stage.small_correct) == (2, 1, 2, 1)
    part = arm(summary, "answer-stage")
    assert (part.utilization, part.ms_per_token, part.seconds, part.speedup) == (None,) * 4
    assert all("answer-stage" not in (one.arm, one.against) for one in summary.paired)
    assert summarize(items(3), results, ARMS).answer_stage is None


def test_the_thinking_may_be_that_of_a_large_model_with_a_draft() -> None:
    arms = parse_arms(["large+draft", "answer-stage"])
    results = [result(0, "large+draft"), result(0, "answer-stage", tokens=(0, 5))]
    stage = summarize(items(1), results, arms).answer_stage
    assert stage is not None
    assert (stage.n, stage.agree) == (1, 1)


def test_random_follows_the_share_of_an_arm() -> None:
    arms = parse_arms(["relay", "relay@fast", "random@fast", "random:0.3"])
    summary = summarize(items(1), [], arms)
    assert [one.follows for one in summary.arms] == ["", "", "relay@fast", ""]


def test_drafts_that_were_accepted() -> None:
    usage = Usage(large=ModelUsage(tokens=5, drafted=8, accepted=6), small=ModelUsage(tokens=1))
    results = [result(0, "relay", usage=usage_dict(usage))]
    summary = summarize(items(1), results, ARMS)
    assert arm(summary, "relay").acceptance == 0.75
    assert arm(summarize(items(1), [result(0, "relay")], ARMS), "relay").acceptance is None


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["large", "relay"]), st.booleans())))
def test_the_order_of_results_plays_no_part(told: list[tuple[int, str, bool]]) -> None:
    results = [result(n, name, right) for n, name, right in dict.fromkeys(told)]
    keys = [one.key for one in results]
    results = [one for number, one in enumerate(results) if one.key not in keys[:number]]
    summary = summarize(items(4), results, ARMS)
    assert summarize(items(4), results[::-1], ARMS) == summary
    assert json.loads(json.dumps(summary_dict(summary), allow_nan=False))["questions"] == 4
