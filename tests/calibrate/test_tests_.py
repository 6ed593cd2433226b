"""The tests and intervals over traces."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from relaygen.calibrate._tests import (
    EXACT,
    can_test,
    expanded_tail,
    holm,
    interval,
    judge,
    least_traces,
    means,
    q_values,
    ratio_interval,
    sign_flip,
)

NAN = float("nan")


def column(*values: float) -> NDArray[np.float64]:
    return np.array(values)[:, None]


# Sign flips.


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_few_traces_are_enumerated_ties_included(values: list[int]) -> None:
    whole = abs(sum(values))
    signs = list(itertools.product((1, -1), repeat=len(values)))
    hits = sum(abs(sum(s * v for s, v in zip(row, values, strict=True))) >= whole for row in signs)
    (p,) = sign_flip(column(*(v / 10 for v in values)), seed=1)
    assert p == pytest.approx(hits / len(signs))


@pytest.mark.parametrize("traces", [1, 2, 8, EXACT])
def test_equal_signs_give_the_smallest_p_there_is(traces: int) -> None:
    p = sign_flip(np.full((traces, 2), [0.1, -0.1]), seed=1)
    assert p.tolist() == [2.0 ** (1 - traces)] * 2


def test_many_traces_are_drawn_near_the_exact_p() -> None:
    values = np.random.default_rng(3).normal(0.05, 0.2, (EXACT + 1, 3))
    drawn = sign_flip(values, seed=1)
    for place in range(3):
        exact = stats.permutation_test(
            (values[:, place],), np.mean, permutation_type="samples", n_resamples=np.inf
        ).pvalue
        assert drawn[place] == pytest.approx(exact, abs=0.01)


def test_drawn_p_is_never_0_and_counts_the_data_themselves() -> None:
    assert sign_flip(np.full((60, 1), 0.2), seed=1).tolist() == [1 / 20_001]
    assert sign_flip(np.full((60, 1), 0.2), seed=1, flips=50_000).tolist() == [1 / 50_001]
    many = sign_flip(np.full((60, 1000), 0.2), seed=1)
    assert many[0] == 1 / 40_001  # 40 flips a cue
    assert sign_flip(np.zeros((60, 1)), seed=1).tolist() == [1.0]


def test_a_cue_does_not_depend_on_the_others_missing_traces() -> None:
    values = np.random.default_rng(1).normal(0.1, 0.3, 9)
    spread = np.full((30, 2), NAN)
    spread[::3, 0][:9] = values
    spread[:, 1] = 0.5
    assert sign_flip(spread, seed=4)[0] == sign_flip(column(*values), seed=9)[0]


def test_nothing_known_has_no_p() -> None:
    assert np.isnan(sign_flip(np.full((3, 1), NAN), seed=1)).all()
    assert np.isnan(means(np.full((3, 1), NAN))).all()
    assert sign_flip(np.zeros((3, 0)), seed=1).size == 0


def test_flips_are_seeded() -> None:
    values = np.random.default_rng(0).normal(0.02, 0.2, (40, 5))
    assert (sign_flip(values, seed=5) == sign_flip(values, seed=5)).all()
    assert (sign_flip(values, seed=5) != sign_flip(values, seed=6)).any()


def test_p_is_two_sided_and_does_not_depend_on_scale() -> None:
    values = np.random.default_rng(0).normal(0.02, 0.2, (40, 5))
    assert (sign_flip(-3.0 * values, seed=5) == sign_flip(values, seed=5)).all()


# Intervals.


def test_an_interval_is_about_as_wide_as_students() -> None:
    values = np.random.default_rng(2).normal(0.1, 0.3, (12, 4))
    low, high = interval(values, seed=1)
    for place in range(4):
        exact = stats.t.interval(0.95, 11, values[:, place].mean(), stats.sem(values[:, place]))
        assert high[place] - low[place] == pytest.approx(exact[1] - exact[0], rel=0.12)
        assert low[place] < values[:, place].mean() < high[place]


def test_an_interval_covers_in_about_95_of_100() -> None:
    values = np.random.default_rng(2).normal(0.1, 0.3, (10, 400))
    low, high = interval(values, seed=1, resamples=4000)
    assert ((low <= 0.1) & (high >= 0.1)).mean() == pytest.approx(0.95, abs=0.025)


def test_missing_traces_neither_pull_nor_narrow_an_interval() -> None:
    values = np.random.default_rng(2).normal(0.4, 0.1, 30)
    spread = np.full((90, 1), NAN)
    spread[::3, 0] = values
    low, high = interval(spread, seed=1)
    dense = interval(column(*values), seed=1)
    assert low[0] == pytest.approx(dense[0][0], abs=0.015)
    assert high[0] == pytest.approx(dense[1][0], abs=0.015)


def test_one_trace_has_no_interval() -> None:
    low, high = interval(np.array([[0.1, 0.2], [NAN, 0.3]]), seed=1)
    assert np.isnan(low[0])
    assert np.isnan(high[0])
    assert 0.2 <= low[1] <= high[1] <= 0.3


def test_a_ratio_is_of_sums_and_not_a_mean_of_ratios() -> None:
    low, high = ratio_interval(column(100.0, 1.0), column(1000.0, 1.0), seed=1)
    assert (low[0], high[0]) == pytest.approx((0.1, 1.0))
    rows = np.tile([[30.0, 100.0]], (20, 1))
    low, high = ratio_interval(rows[:, :1], rows[:, 1:], seed=1)
    assert (low[0], high[0]) == pytest.approx((0.3, 0.3))


def test_the_tail_for_many_rows_is_the_usual_one() -> None:
    few, many = expanded_tail(np.array([8, 100_000]))
    assert few == pytest.approx(stats.norm.cdf(np.sqrt(8 / 7) * stats.t.ppf(0.025, 7)))
    assert few < 0.006
    assert many == pytest.approx(0.025, abs=1e-4)


# Families of tests.


def test_holm_by_hand() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]
    assert holm(np.zeros(0)).size == 0


def test_q_values_by_hand() -> None:
    assert q_values(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx(
        [0.02, 0.04, 0.04, 0.02]
    )
    assert q_values(np.zeros(0)).size == 0


@settings(deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_adjusted_p_are_ordered_like_p_and_no_smaller(values: list[float]) -> None:
    p = np.array(values)
    adjusted, q = holm(p), q_values(p)
    assert (adjusted >= p).all()
    assert (q <= adjusted + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


# What can be tested.


def test_least_traces() -> None:
    assert least_traces(1) == 8  # 2^-5 would do
    assert least_traces(6) == 8
    assert least_traces(7) == 9
    assert least_traces(40) == 11
    assert least_traces(91) == 12


@pytest.mark.parametrize(
    ("segments", "traces", "expected"),
    [
        ([20] * 3, [8, 8, 8], [True] * 3),
        ([19, 20, 20], [8, 8, 7], [False, True, False]),
        ([20] * 7, [8] * 7, [False] * 7),  # seven tests need nine traces each
        ([20] * 7, [9] + [8] * 6, [True] + [False] * 6),
        ([20] * 8, [9] * 7 + [8], [True] * 7 + [False]),
        ([5] * 30 + [20] * 3, [60] * 30 + [8] * 3, [False] * 30 + [True] * 3),
    ],
)
def test_what_can_be_tested(segments: list[int], traces: list[int], expected: list[bool]) -> None:
    assert can_test(np.array(segments), np.array(traces)).tolist() == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=60))
def test_the_testable_cues_meet_the_rule_and_no_lower_bound_would_do(
    counts: list[tuple[int, int]],
) -> None:
    segments, traces = (np.array(part) for part in zip(*counts, strict=True))
    able = can_test(segments, traces)
    if able.any():
        least = traces[able].min()
        assert least >= 8
        assert segments[able].min() >= 20
        assert 2.0 ** (1 - least) <= 0.05 / able.sum()
    for bound in range(8, int(traces[able].min()) if able.any() else 21):
        more = (segments >= 20) & (traces >= bound)
        assert more.sum() == able.sum() or 2.0 ** (1 - bound) > 0.05 / more.sum()


# All of it.


def test_only_positive_effects_of_some_size_are_proven() -> None:
    generator = np.random.default_rng(1)
    table = generator.normal((0.2, -0.2, 0.0, 0.015), (0.1, 0.1, 0.1, 0.005), (30, 4))
    told = judge(table, np.full(4, 30), seed=1, min_effect=0.02)
    assert told.testable.all()
    assert told.proven.tolist() == [True, False, False, False]
    assert told.holm[1] < 0.01
    assert told.holm[3] < 0.01
    assert judge(table, np.full(4, 30), seed=1, min_effect=0.01).proven.tolist() == [
        *(True, False, False, True)
    ]
    assert told.effect.tolist() == pytest.approx(table.mean(axis=0).tolist())


def test_cues_that_cannot_be_tested_do_not_make_the_test_stricter() -> None:
    generator = np.random.default_rng(1)
    table = generator.normal(0.03, 0.1, (40, 60))
    segments = np.array([40] + [19] * 59)
    told = judge(table, segments, seed=1, min_effect=0.0)
    assert told.testable.tolist() == [True] + [False] * 59
    assert told.holm[0] == told.p[0] == told.q[0]
    assert np.isnan(told.p[1:]).all()
    assert not told.proven[1:].any()


def test_false_selections_are_rare_and_a_strong_effect_is_found() -> None:
    generator = np.random.default_rng(8)
    false = found = 0
    for seed in range(60):
        table = generator.normal(0.0, 0.08, (20, 20))
        table[:, 0] += 0.15
        told = judge(table, np.full(20, 20), seed=seed, min_effect=0.02)
        found += bool(told.proven[0])
        false += bool(told.proven[1:].any())
    assert found == 60
    assert false <= 6
