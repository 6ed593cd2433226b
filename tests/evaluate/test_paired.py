from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen._jsonable import usage_dict
from relaygen._results import ModelUsage, Usage
from relaygen.evaluate._paired import NO_WORSE, WORSE, paired, ratio, shares_of, verdict
from relaygen.evaluate._results import Result


def result(
    item: int, correct: bool | None, *, run: int = 0, ms: float = 10.0, at_once: int = 1
) -> Result:
    usage = Usage(large=ModelUsage(tokens=100), seconds=ms / 10.0)
    return Result(
        *(f"q{item}", run, "arm", 0, 1, at_once),
        finish="stop",
        correct=correct,
        usage=usage_dict(usage),
    )


RIGHT = st.lists(st.booleans(), min_size=1, max_size=25)


def test_verdicts_at_their_boundaries() -> None:
    above, below = math.nextafter(-2.0, 0.0), math.nextafter(0.0, -1.0)
    assert verdict(above, 5.0, 9) == NO_WORSE == "no worse than 2 points shown"
    assert verdict(-2.0, 5.0, 9) == "not decided at n = 9"
    assert verdict(-2.0, 0.0, 9) == "not decided at n = 9"
    assert verdict(-2.0, below, 9) == WORSE == "worse"
    assert verdict(-1.5, -0.5, 9) == NO_WORSE  # both hold; this one is what was asked
    assert verdict(-30.0, 30.0, 100) == "not decided at n = 100"


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_difference_turns_with_the_arms(data: st.DataObject) -> None:
    first = [result(n, correct) for n, correct in enumerate(data.draw(RIGHT))]
    second = [result(n, correct) for n, correct in enumerate(data.draw(RIGHT))]
    one, two = paired("a", "b", first, second), paired("b", "a", second, first)
    assert one is not None
    assert two is not None
    assert one.n == min(len(first), len(second))
    assert one.difference == pytest.approx(-two.difference)
    assert (one.low, one.high) == pytest.approx((-two.high, -two.low))
    assert (one.better, one.worse) == (two.worse, two.better)
    assert one.low - 1e-9 <= one.high
    assert one.verdict == verdict(one.low, one.high, one.n)


@settings(max_examples=15, deadline=None)
@given(RIGHT)
def test_an_arm_beside_itself(correct: list[bool]) -> None:
    same = [result(n, each) for n, each in enumerate(correct)]
    found = paired("a", "a", same, same)
    assert found is not None
    assert (found.difference, found.better, found.worse) == (0.0, 0, 0)
    assert found.low == pytest.approx(-found.high)
    assert found.verdict == f"not decided at n = {len(correct)}"


def test_what_is_not_graded_for_both_does_not_count() -> None:
    ours = [result(0, True), result(1, None), result(2, True)]
    theirs = [result(0, False), result(1, True), result(3, True)]
    found = paired("a", "b", ours, theirs)
    assert found is not None
    assert (found.n, found.difference) == (1, 100.0)
    assert paired("a", "b", ours[1:2], theirs) is None


def test_runs_are_averaged_before_questions_are() -> None:
    runs = [result(0, True), result(0, False, run=1), result(1, True)]
    assert shares_of(runs) == {"q0": 0.5, "q1": 1.0}
    found = paired("a", "b", runs, [result(0, False), result(1, True)])
    assert found is not None
    assert (found.n, found.difference, found.better) == (2, 25.0, 1)


def test_enough_equal_answers_show_that_nothing_is_lost() -> None:
    found = paired("a", "b", *([result(n, True) for n in range(400)] for _ in "ab"))
    assert found is not None
    assert found.verdict == NO_WORSE


def test_losing_a_tenth_of_many_is_worse() -> None:
    ours = [result(n, n % 10 > 0) for n in range(300)]
    found = paired("a", "b", ours, [result(n, True) for n in range(300)])
    assert found is not None
    assert found.difference == pytest.approx(-10.0)
    assert found.verdict == WORSE


def test_speed_is_compared_question_by_question() -> None:
    ours = [result(n, True, ms=10.0 * (n + 1)) for n in range(5)]
    theirs = [result(n, True, ms=15.0 * (n + 1)) for n in range(5)]
    found = ratio("a", "large", ours, theirs)
    assert found is not None
    assert (found.n, found.ratio, found.low, found.high) == pytest.approx((5, 1.5, 1.5, 1.5))
    assert ratio("a", "large", ours, []) is None


def test_times_of_answers_beside_others_are_not_compared() -> None:
    alone, beside = [result(0, True)], [result(0, True, at_once=2)]
    assert ratio("a", "large", alone, beside) is None
    assert ratio("a", "large", beside, alone) is None
