from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen.evaluate._statistics import mean_interval, median_interval, share_interval, wilson

DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=40)


@settings(max_examples=25, deadline=None)
@given(DIFFERENCES)
def test_the_interval_of_a_difference_turns_with_its_sign(values: list[float]) -> None:
    low, high = mean_interval(values)
    assert mean_interval([-value for value in values]) == pytest.approx((-high, -low))
    assert -1.0 <= low <= high <= 1.0
    assert (low, high) == mean_interval(values)


def test_equal_answers_prove_nothing_after_a_handful() -> None:
    widths = []
    for n in (5, 50, 500):
        low, high = mean_interval([0.0] * n)
        assert low < 0.0 < high
        widths.append(high - low)
    assert widths[0] > 0.5
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] < 0.02


def test_149_equal_answers_exclude_two_points() -> None:
    # The sum of as many draws of a won and a lost question as there are questions, of which three
    # is the 97.5th percentile: docs/report.md says 3 / (n + 2).
    assert mean_interval([0.0] * 148) == pytest.approx((-3 / 150, 3 / 150))
    assert mean_interval([0.0] * 149)[0] > -0.02
    assert mean_interval([0.0] * 100) == pytest.approx((-3 / 102, 3 / 102))


def test_the_interval_is_near_the_textbooks() -> None:
    # 100 pairs, 10 won, 20 lost. Bonett and Price: (10 - 20)/102 and
    # 1.96 sqrt((11 + 21 - (11 - 21)^2 / 102) / 102^2).
    low, high = mean_interval([1.0] * 10 + [-1.0] * 20 + [0.0] * 70)
    assert low == pytest.approx(-0.098 - 0.107, abs=0.01)
    assert high == pytest.approx(-0.098 + 0.107, abs=0.01)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=30))
def test_the_bootstrap_is_what_all_resamples_together_say(values: list[int]) -> None:
    drawn = [*values, -1, 1]
    shares = [drawn.count(value) / len(drawn) for value in (-1, 0, 1)]
    sums = np.array([1.0])  # of as many draws, from -n to n
    for _ in drawn:
        sums = np.convolve(sums, shares)
    below = np.concatenate([[0.0], np.cumsum(sums)])
    for limit, wanted in zip(mean_interval(list(map(float, values))), (0.025, 0.975), strict=True):
        place = round(limit * len(drawn)) + len(drawn)
        assert below[place] - 0.005 <= wanted <= below[place + 1] + 0.005


def test_wilson() -> None:
    assert wilson(8, 10) == pytest.approx((0.490, 0.943), abs=0.001)
    assert wilson(0, 10)[0] == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=30))
def test_shares_stay_shares(values: list[float]) -> None:
    low, high = share_interval(values)
    assert 0.0 <= low <= high <= 1.0


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=30))
def test_a_median_lies_among_its_values(values: list[float]) -> None:
    low, high = median_interval(values)
    assert min(values) <= low <= high <= max(values)
    assert median_interval([2.0] * 5) == (2.0, 2.0)
