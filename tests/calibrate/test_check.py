"""Predicted against measured, by hand and by property."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import ModelUsage, Usage
from relaygen.calibrate._answers import Answer
from relaygen.calibrate._check import check
from relaygen.calibrate._outcome import Level

NAN = math.nan


def level(name: str = "careful", utilization: float = 0.7, handoffs: float = 50.0) -> Level:
    return Level(name, ("Thus",), utilization, handoffs, 0.9, False)


def answer(id: str, large: int, small: int, handoffs: int = 2, **more: object) -> Answer:
    """The large model decodes a token in 40 ms and the small one in 10, whatever `more` says."""
    parts = {
        role: ModelUsage(
            tokens=tokens,
            requests=1,
            first_seconds=ms / 1000.0,
            decode_seconds=tokens * ms / 1000.0,
            decoded=tokens,
            evaluated=0,
        )
        for role, tokens, ms in (("large", large, 40.0), ("small", small, 10.0))
    }
    usage = Usage(parts["large"], parts["small"], handoffs=handoffs)
    finish = str(more.get("finish", "stop"))
    usage.fallbacks = 1 if more.get("failed") else 0
    return Answer(id, "careful", "key", "relay", finish, usage, "")


def test_two_answers_by_hand() -> None:
    (found,) = check(
        [(("careful",), level(), [answer("a", 60, 40, 4), answer("b", 270, 30, 6)])], seed=1
    ).levels
    assert found.n == 2
    assert found.predicted == 0.7
    assert found.utilization == pytest.approx(330 / 400)  # tokens count alike
    assert found.small_share == pytest.approx(70 / 400)
    assert found.difference == pytest.approx(100 * ((0.6 + 0.9) / 2 - 0.7))  # questions do
    assert found.handoffs_predicted == 50.0
    assert found.handoffs == pytest.approx(1000 * 10 / 400)
    assert found.low <= found.utilization <= found.high
    assert found.difference_low <= found.difference <= found.difference_high
    assert (found.cut, found.fallbacks) == (0, 0)


def test_the_interval_of_the_difference_is_students() -> None:
    """Many alike and few others: close to mean ± t · s / sqrt(n)."""
    answers = [answer(str(n), 60 + n % 20, 40 - n % 20) for n in range(60)]
    (found,) = check([(("careful",), level(), answers)], seed=1).levels
    points = [100 * (one.usage.large_tokens / 100 - 0.7) for one in answers]
    mean = sum(points) / 60
    error = math.sqrt(sum((point - mean) ** 2 for point in points) / 59 / 60)
    assert found.difference == pytest.approx(mean)
    assert found.difference_low == pytest.approx(mean - 2.0 * error, abs=0.15)
    assert found.difference_high == pytest.approx(mean + 2.0 * error, abs=0.15)
    # Answers of one length: the interval of the utilization is the same, elsewhere.
    assert found.low == pytest.approx(0.7 + found.difference_low / 100, abs=1e-3)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 19),
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(0, 9),
)
def test_where_all_is_as_predicted_there_is_no_difference(
    share: int, sizes: list[int], seed: int
) -> None:
    answers = [answer(str(n), share * size, (20 - share) * size) for n, size in enumerate(sizes)]
    (found,) = check([(("careful",), level(utilization=share / 20), answers)], seed=seed).levels
    assert found.utilization == pytest.approx(share / 20)
    assert found.difference == pytest.approx(0.0, abs=1e-9)
    if len(sizes) > 1:
        assert found.difference_low == pytest.approx(0.0, abs=1e-9)
        assert found.difference_high == pytest.approx(0.0, abs=1e-9)
        assert found.low == pytest.approx(found.utilization)
        assert found.high == pytest.approx(found.utilization)
    else:
        assert math.isnan(found.low + found.high + found.difference_low + found.difference_high)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=9))
def test_the_order_of_answers_changes_no_mean(sizes: list[tuple[int, int]]) -> None:
    answers = [answer(str(n), *size) for n, size in enumerate(sizes)]
    one, two = (
        check([(("careful",), level(), each)], seed=3).levels for each in (answers, answers[::-1])
    )
    assert [each.n for each in one] == [each.n for each in two]
    for ours, theirs in zip(one, two, strict=True):
        assert ours.utilization == pytest.approx(theirs.utilization)
        assert ours.difference == pytest.approx(theirs.difference)


def test_the_speed_is_that_of_costs_pooled_over_all_answers() -> None:
    """One long answer at 40 ms and one short one at 80 ms: tokens count alike, answers do not."""
    slow = answer("b", 20, 20)
    slow.usage.large.decode_seconds *= 2
    for one in (first := answer("a", 80, 80), slow):
        one.usage.large.first_seconds = one.usage.small.first_seconds = 0.0
    result = check([(("careful",), level(), [first, slow])], seed=1)
    assert result.costs is not None
    assert result.costs.large_decode == pytest.approx((80 * 40 + 20 * 80) / 100)
    assert result.costs.small_decode == pytest.approx(10.0)
    assert result.handoff_ms == 0.0
    speed = result.levels[0].speed
    assert speed is not None
    assert speed.two == speed.two_ceiling == pytest.approx(48 / (0.5 * 48 + 0.5 * 10))
    assert speed.one == speed.one_ceiling == speed.two  # no catch-up here


def test_discarded_tokens_are_paid_at_hand_offs_and_not_in_the_ceiling() -> None:
    one = answer("a", 50, 50, handoffs=4)
    one.usage.large.discarded, one.usage.small.discarded = 1, 8
    result = check([(("careful",), level(), [one])], seed=1)
    assert result.handoff_ms == pytest.approx((40 + 80) / 4)
    speed = result.levels[0].speed
    assert speed is not None
    assert speed.two_ceiling == pytest.approx(40 / 25)
    assert speed.two == pytest.approx(40 / (25 + 30 * 4 / 100))


def test_catch_up_counts_on_one_device_only() -> None:
    one = answer("a", 50, 50)
    one.usage.large.evaluated, one.usage.large.first_seconds = 50, 0.040 + 0.150
    one.usage.small.evaluated, one.usage.small.first_seconds = 50, 0.010 + 0.050
    result = check([(("careful",), level(), [one])], seed=1)
    assert result.costs is not None
    assert result.costs.large_catch_up == pytest.approx(3.0)
    assert result.costs.small_catch_up == pytest.approx(1.0)
    speed = result.levels[0].speed
    assert speed is not None
    assert speed.one == pytest.approx(40 / (0.5 * (40 + 1) + 0.5 * (10 + 3)))
    assert speed.two == pytest.approx(40 / 25)


def test_costs_are_unknown_where_a_model_never_wrote() -> None:
    result = check(
        [(("careful",), level(), [answer("a", 50, 0, 0), answer("b", 30, 0, 0)])], seed=1
    )
    assert result.costs is None
    assert result.levels[0].speed is None
    assert result.levels[0].utilization == 1.0


def test_levels_that_are_one_keep_their_names_and_empty_ones_are_left_out() -> None:
    both = ("careful", "balanced")
    result = check(
        [(both, level(), [answer("a", 7, 3)]), (("fast",), level("fast", 0.5), [])], seed=1
    )
    assert [each.names for each in result.levels] == [("careful", "balanced")]
    assert result.questions == 1
    nothing = check([(("fast",), level("fast", 0.5), [answer("a", 0, 0)])], seed=1)
    assert (nothing.levels, nothing.questions, nothing.costs) == ((), 0, None)


def test_cut_answers_and_failures_are_counted() -> None:
    answers = [answer("a", 7, 3, finish="length"), answer("b", 9, 1, failed=True)]
    (found,) = check([(("careful",), level(), [*answers, answer("c", 7, 3)])], seed=1).levels
    assert (found.n, found.cut, found.fallbacks) == (3, 1, 1)
