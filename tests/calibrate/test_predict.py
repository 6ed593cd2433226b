"""What a set of cues will do: the replay against the policy itself, and the arithmetic."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen.calibrate import Scores, sentences
from relaygen.calibrate._effects import Observed, Run, tables
from relaygen.calibrate._predict import predict, replay
from relaygen.costs import Costs
from relaygen.forecast import relay_speedup
from relaygen.policies import RelayPolicy

from ..policies.support import plan, play
from .observations import observe
from .traces import trace


def seen(text: str, cues: list[str]) -> Observed:
    one = trace(text)
    none = (None,) * len(one.ids)
    return Observed(one, Scores(one.id, "s", none, none), sentences(one, cues, None))


# The replay.


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["So", "So,", "Now", "Thus", " we", " add", " 3.5", ".", "!", "\n", "\n\n", " so", ":"]
        ),
        min_size=1,
        max_size=40,
    ),
    st.sets(st.sampled_from(["So", "So,", "Now", "Thus"]), min_size=1),
)
def test_the_replay_is_what_the_policy_does(parts: list[str], cues: set[str]) -> None:
    one = seen("".join(parts), ["Now", "So", "So,", "Thus"])
    (runs,) = replay(tables([one]), cues).runs
    played, place = [], 0
    start = plan(thinking=False, answer_role="relay")
    for segment in play(RelayPolicy.of(sorted(cues)), one.trace.pieces, start=start):
        if segment.role == "small" and segment.size:
            played.append((place, place + segment.size))
        place += segment.size
    assert [(run.first, run.end) for run in runs] == played


def test_the_guard_of_the_replay_is_the_policys() -> None:
    assert RelayPolicy.of([]).max_consecutive_delegations == 3
    one = seen("So a.\n\n" * 6, ["So"])
    (runs,) = replay(tables([one]), ["So"]).runs
    assert len(runs) == 5  # the fourth sentence is the large model's
    (runs,) = replay(tables([one]), ["So"], guard=100).runs
    assert len(runs) == 6


def test_the_first_cue_of_a_sentence_delegates_its_rest() -> None:
    one = observe(([("Now", 3), ("So", 1)], [0.5] * 6), ([("Now", 0)], [0.5] * 3), ([], [0.5]))
    (runs,) = replay(tables([one]), ["Now", "So"]).runs
    assert runs == (Run(1, 2, 6), Run(6, 7, 9))
    (runs,) = replay(tables([one]), ["Now"]).runs
    assert runs == (Run(3, 4, 6), Run(6, 7, 9))
    assert replay(tables([one]), []).runs == ((),)


# Who writes how much.


@pytest.mark.parametrize(
    ("role", "large", "handoffs"),
    # 10 relayed tokens, 4 of them delegated; a closing tag; 9 tokens of answer.
    [("large", 16, 2), ("small", 7, 3), ("relay", 16 - 3.6, 2 * 1.9)],
)
def test_the_answer_goes_to_its_role(role: str, large: float, handoffs: float) -> None:
    one = observe(([("So", 0)], [0.5] * 5), ([], [0.5] * 5), after=10)
    got = replay(tables([one]), ["So"], answer_role=role)  # type: ignore[arg-type]
    assert got.large.tolist() == pytest.approx([large])
    assert got.tokens.tolist() == [20]
    assert got.handoffs.tolist() == pytest.approx([handoffs])
    assert got.utilization == pytest.approx(large / 20)


def test_a_text_that_is_cut_while_delegated_is_never_handed_back() -> None:
    one = observe(([], [0.5] * 5), ([("So", 0)], [0.5] * 5))
    assert replay(tables([one]), ["So"]).handoffs.tolist() == [2]
    cut = dataclasses.replace(one, trace=dataclasses.replace(one.trace, finish="length"))
    assert replay(tables([cut]), ["So"]).handoffs.tolist() == [1]


def test_a_prediction_by_hand() -> None:
    long = observe(([("So", 0)], [0.1, 0.5, None, 0.7]), ([], [0.2] * 6))
    short = observe(([], [0.3, 0.3]))
    got = predict(tables([long, short]), ["So"], seed=1)
    assert got.utilization == pytest.approx(9 / 12)  # of tokens, not a mean over traces
    assert got.handoffs_per_1000 == pytest.approx(2000 / 12)
    assert got.delegated == 3
    assert got.margin == pytest.approx(0.6)
    assert got.effect == pytest.approx(0.4)
    assert (got.low, got.high) == pytest.approx((0.7, 1.0))


def test_without_cues_the_large_model_writes_all() -> None:
    got = predict(tables([observe(([], [0.5] * 3)), observe(([], [0.5] * 3))]), [], seed=1)
    assert (got.utilization, got.low, got.high, got.handoffs_per_1000) == (1.0, 1.0, 1.0, 0.0)
    assert got.margin != got.margin


def test_the_interval_narrows_with_more_traces() -> None:
    def width(traces: int) -> float:
        made = tables(
            observe(([("So", 0)], [0.5] * (3 + number % 5)), ([], [0.5] * 9))
            for number in range(traces)
        )
        got = predict(made, ["So"], seed=1)
        assert got.low < got.utilization < got.high
        return got.high - got.low

    assert width(100) < 0.6 * width(25) < 0.6 * width(10)


# Speed.


def test_speed_without_and_with_the_cost_of_hand_offs() -> None:
    costs = Costs(40.0, 6.0, 0.3, 0.05)
    assert relay_speedup(costs, 0.7, 60.0) == pytest.approx(40 / (0.7 * 40 + 0.3 * 6))
    paid = 40 / (0.7 * 40 + 0.3 * 6 + 60 * 25 / 1000)
    assert relay_speedup(costs, 0.7, 60.0, handoff_ms=25.0) == pytest.approx(paid)
    one = 40 / (0.7 * 40.05 + 0.3 * 6.3 + 60 * 25 / 1000)
    assert relay_speedup(costs, 0.7, 60.0, handoff_ms=25.0, devices=1) == pytest.approx(one)
    assert relay_speedup(costs, 1.0, 0.0) == 1.0
    with pytest.raises(UsageError):
        relay_speedup(costs, 1.5, 0.0)
