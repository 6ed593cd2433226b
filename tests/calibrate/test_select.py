"""From observed traces to chosen cues."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from relaygen import UsageError
from relaygen.calibrate._effects import Observed
from relaygen.calibrate._power import more_traces
from relaygen.calibrate._select import Calibration, CueResult, Rule, calibrate

from .observations import Cue, observe

PLACES = 12


def drawn(
    traces: int, effects: dict[str, float], *, seed: int = 0, sd: float = 0.1, sentences: int = 1
) -> list[Observed]:
    """Every trace has so many sentences of each cue and three without; folds take turns."""
    generator = np.random.default_rng(seed)

    def margins(effect: float) -> list[float | None]:
        values = generator.normal(0.5, sd, PLACES)
        values[1:] += effect
        return [*np.clip(values, 0.0, 1.0).tolist()]

    found = []
    for number in range(traces):
        plain: list[tuple[list[Cue], list[float | None]]] = [([], margins(0.0)) for _ in range(3)]
        cued = [([(name, 0)], margins(e)) for name, e in effects.items() for _ in range(sentences)]
        found.append(observe(*plain, *cued, fold=number % 2, id=f"t{number}"))
    return found


def named(calibration: Calibration) -> dict[str, CueResult]:
    return {cue.name: cue for cue in calibration.cues}


def chosen(calibration: Calibration) -> list[str]:
    return [cue.name for cue in calibration.cues if cue.selected]


def same(one: Calibration, other: Calibration) -> bool:
    return repr(one) == repr(other)  # nan is not equal to itself


# The paper's rule.


def test_the_papers_rule_gives_a_table_computed_by_hand() -> None:
    first = observe(
        ([("So", 0)], [0.25, 0.75, 1.0]),
        ([], [0.5, 0.25]),
        ([("Now", 0)], [0.5, 0.5]),
    )
    second = observe(
        ([("So", 0), ("So,", 1)], [0.0, 0.5, 0.75]),
        ([("Now", 1)], [0.25, 0.5, 0.25]),
        ([("Wait", 0)], [0.5, 0.625]),
        wrong=[1, 5],
    )
    got = calibrate(
        [first, second], rule=Rule("paper"), candidates=["Now", "So", "So,", "Thus", "Wait"]
    )
    table = [
        (
            c.name,
            c.occurrences,
            c.traces,
            c.tokens,
            c.share,
            c.margin,
            c.agreement,
            c.effect,
            c.selected,
        )
        for c in got.cues
    ]
    nan = math.nan
    expected = [
        # Place 1 of "Now": 0.5 against (0.75 + 0.25) / 2; place 2: 0.25 against 0.75.
        ("Now", 2, 2, 2, 2 / 15, 0.375, 0.5, (0.0 - 0.5) / 2, False),
        ("So", 2, 2, 4, 4 / 15, 0.75, 0.75, (0.5 + 0.21875) / 2, True),
        ("So,", 1, 1, 1, 1 / 15, 0.75, 1.0, 0.5, True),
        ("Thus", 0, 0, 0, 0.0, nan, nan, nan, False),
        ("Wait", 1, 1, 1, 1 / 15, 0.625, 1.0, 0.125, True),
    ]
    assert table == [pytest.approx(row, nan_ok=True) for row in expected]
    assert got.overall == 7.125 / 15
    assert got.rule == "paper"
    assert (got.unproven, got.fallback) == (True, False)
    careful = got.levels[0]
    assert (careful.name, careful.cues, careful.unproven) == (
        "careful",
        ("So", "So,", "Wait"),
        True,
    )
    assert careful.utilization == pytest.approx(10 / 15)
    assert careful.handoffs_per_1000 == pytest.approx(1000 * 6 / 15)
    assert careful.margin == pytest.approx(3.625 / 5)


def test_a_cue_as_good_as_all_tokens_is_not_above_them() -> None:
    one = observe(([("So", 0)], [0.3, 0.3]), ([], [0.3, 0.3, 0.3]))
    assert chosen(calibrate([one], rule=Rule("paper"))) == []


# Significant.


def test_proven_cues_are_chosen_best_first_and_others_are_not() -> None:
    effects = {"Bad": -0.2, "Good": 0.15, "Better": 0.25, "None": 0.0}
    got = calibrate(drawn(24, effects), seed=1)
    assert got.rule == "significant"
    assert chosen(got) == ["Better", "Good"]
    assert got.levels[0].cues == ("Better", "Good")
    assert not got.unproven
    assert got.more_traces is None
    cues = named(got)
    assert all(cue.testable for cue in got.cues)
    assert cues["Bad"].holm < 0.05
    assert cues["Bad"].effect < 0
    for cue in got.cues:
        assert cue.low < cue.effect < cue.high
        assert cue.p <= cue.q <= cue.holm
        assert cue.selected == cue.proven


def test_a_least_effect_leaves_out_small_ones() -> None:
    seen = drawn(24, {"Good": 0.15, "Better": 0.25})
    assert chosen(calibrate(seen, min_effect=0.2)) == ["Better"]
    assert chosen(calibrate(seen, min_effect=0.05)) == ["Better", "Good"]


def test_equal_input_gives_an_equal_result_and_order_is_the_callers() -> None:
    seen = drawn(30, {"A": 0.05, "B": 0.03, "C": 0.0})
    assert same(calibrate(seen, seed=3), calibrate(seen, seed=3))
    assert not same(calibrate(seen, seed=3), calibrate(seen, seed=4))
    ordered = calibrate(seen, candidates=["C", "A", "C"])
    assert [cue.name for cue in ordered.cues] == ["C", "A"]


# The fall-back.


def test_where_nothing_can_be_tested_the_paper_chooses_with_minimum_counts() -> None:
    seen = drawn(5, {"Good": 0.3, "None": -0.1})
    rare = observe(([], [0.5] * 5), ([("Rare", 0)], [0.5, 1.0, 1.0]), fold=1)
    got = calibrate([*seen, rare])
    assert not any(cue.testable for cue in got.cues)
    assert all(math.isnan(cue.p) and math.isnan(cue.holm) for cue in got.cues)
    assert chosen(got) == ["Good"]  # "Rare" has the best margin, in one segment
    assert got.fallback
    assert got.unproven
    assert all(level.unproven and level.cues for level in got.levels)
    # 20 segments at 5 in 6 traces: 24 traces; then it is tested beside no other but "None".
    assert got.more_traces == 18


def test_where_nothing_is_significant_the_need_follows_from_the_effects() -> None:
    seen = drawn(24, {"Weak": 0.02}, sd=0.2, seed=5)
    got = calibrate(seen, min_effect=0.0)
    (cue,) = got.cues
    assert cue.testable
    assert cue.holm > 0.05
    assert got.unproven
    assert got.fallback == got.levels[0].unproven
    assert got.more_traces is not None
    assert got.more_traces > 10


def test_without_minimum_counts_anything_is_better_than_nothing() -> None:
    one = observe(([], [0.5, 0.5]), ([("Rare", 0)], [0.5, 1.0]))
    got = calibrate([one])
    assert (chosen(got), got.fallback) == (["Rare"], True)


def test_no_cue_at_all() -> None:
    got = calibrate([observe(([], [0.5, 0.5]))])
    assert (got.cues, got.curve, got.unproven, got.more_traces) == ((), (), False, None)
    assert [(level.cues, level.utilization) for level in got.levels] == [((), 1.0)] * 3


@pytest.mark.parametrize(("effect", "sd"), [(0.05, 0.1), (0.1, 0.3), (0.03, 0.05)])
def test_so_many_more_traces_give_the_wanted_power(effect: float, sd: float) -> None:
    values = np.random.default_rng(1).normal(0.0, 1.0, (12, 1))
    values = effect + sd * (values - values.mean()) / values.std(ddof=1)
    more = more_traces(values, np.array([24]), min_effect=0.02)
    z = 1.959964 + 0.841621
    assert more is not None
    total = more + 12
    assert max(8, (z * sd / effect) ** 2) <= total <= 1.03 * max(13, (z * sd / effect) ** 2) + 1


def test_more_tests_need_more_traces() -> None:
    values = np.random.default_rng(1).normal(0.0, 1.0, (12, 1))
    values = 0.05 + 0.2 * (values - values.mean()) / values.std(ddof=1)
    alone = more_traces(values, np.array([24]), min_effect=0.02)
    others = np.full((12, 30), -0.01)
    crowd = more_traces(np.hstack((values, others)), np.full(31, 24), min_effect=0.02)
    assert alone is not None
    assert crowd is not None
    assert crowd > 1.5 * alone


def test_no_number_of_traces_helps_where_tested_cues_do_not() -> None:
    generator = np.random.default_rng(1)
    bad = generator.normal(-0.1, 0.05, (24, 3))
    assert more_traces(bad, np.full(3, 24), min_effect=0.02) is None
    untested = more_traces(bad[:6], np.full(3, 12), min_effect=0.02)
    assert untested == 4  # 20 segments and 8 traces: ten traces in all
    assert more_traces(np.full((6, 2), np.nan), np.zeros(2, np.int64), min_effect=0.02) is None


# Targets, levels, the curve.

MANY = {f"c{number}": 0.05 + 0.03 * number for number in range(6)}


def test_best_first_until_the_target() -> None:
    seen = drawn(24, MANY)
    got = calibrate(seen, rule=Rule("target-utilization", 0.75))
    # 9 sentences of 12; each cue delegates 11 of the 108 tokens.
    assert got.levels[0].cues == ("c5", "c4", "c3")
    assert got.levels[0].utilization == pytest.approx(1 - 33 / 108)
    assert got.levels[0].target == 0.75
    assert chosen(got) == ["c3", "c4", "c5"]
    assert got.rule == "target-utilization 0.75"
    margins = [point.margin for point in got.curve]
    assert margins == sorted(margins, reverse=True)
    assert [point.utilization for point in got.curve] == pytest.approx(
        [1 - 11 * count / 108 for count in range(1, len(got.curve) + 1)]
    )
    for shorter, longer in zip(got.curve, got.curve[1:], strict=False):
        assert longer.cues[:-1] == shorter.cues


def test_levels_aim_at_their_targets() -> None:
    got = calibrate(drawn(24, MANY))
    careful, balanced, fast = got.levels
    assert [level.name for level in got.levels] == ["careful", "balanced", "fast"]
    assert [level.target for level in got.levels] == [None, 0.7, 0.5]
    assert set(careful.cues) == {cue.name for cue in got.cues if cue.proven}
    assert balanced.utilization <= 0.7 < balanced.utilization + 11 / 108
    assert balanced.cues == ("c5", "c4", "c3")
    assert fast.cues == got.curve[-1].cues  # all positive effects, still above the target
    for level in got.levels:
        assert level.low <= level.utilization <= level.high
        assert level.handoffs_per_1000 == pytest.approx(1000 * 2 * len(level.cues) / 108)


def test_a_level_with_one_unproven_cue_says_so() -> None:
    seen = [*drawn(24, {"Good": 0.2}), *drawn(5, {"Good": 0.2, "Likely": 0.15}, seed=3)]
    got = calibrate(seen)
    assert [cue.name for cue in got.cues if cue.proven] == ["Good"]
    careful, balanced, fast = got.levels
    assert (careful.cues, careful.unproven, got.unproven) == (("Good",), False, False)
    assert balanced.cues == fast.cues == ("Good", "Likely")
    assert balanced.unproven
    assert fast.unproven


def test_proven_cues_come_before_better_looking_ones() -> None:
    seen = [
        *drawn(24, {"Good": 0.1}),
        *drawn(5, {"Lucky": 0.4}, seed=9),
    ]
    got = calibrate(seen)
    assert named(got)["Lucky"].effect > named(got)["Good"].effect
    assert [point.cues for point in got.curve] == [("Good",), ("Good", "Lucky")]


def test_a_cue_that_adds_nothing_is_passed_over_on_the_curve() -> None:
    def sentence(generator: np.random.Generator) -> tuple[list[Cue], list[float | None]]:
        return [("So", 0), ("So,", 1)], [0.2, *generator.uniform(0.8, 1.0, 5).tolist()]

    generator = np.random.default_rng(1)
    seen = [observe(sentence(generator), ([], [0.2] * 6), fold=n % 2) for n in range(24)]
    got = calibrate(seen)
    assert set(chosen(got)) == {"So", "So,"}
    assert [point.cues for point in got.curve] in ([("So",)], [("So,",), ("So,", "So")])


# Folds.


def test_mined_cues_are_tested_on_the_other_fold() -> None:
    seen = drawn(40, {"Mined": 0.2, "Listed": 0.2})
    got = named(calibrate(seen, mined=["Mined"]))
    assert (got["Mined"].occurrences, got["Listed"].occurrences) == (20, 40)
    assert got["Mined"].share == pytest.approx(
        got["Listed"].share
    )  # of the traces it was sought in
    assert got["Mined"].proven


def test_what_a_mined_cue_shows_where_it_was_mined_proves_nothing() -> None:
    lucky, rest = drawn(40, {"Mined": 0.3}), drawn(40, {"Mined": 0.0}, seed=1)
    seen = [lucky[n] if n % 2 == 0 else rest[n] for n in range(40)]
    assert named(calibrate(seen))["Mined"].proven
    assert not named(calibrate(seen, mined=["Mined"]))["Mined"].proven


def test_the_choice_is_measured_on_traces_that_did_not_choose() -> None:
    # In fold 0 only "Zero" helps, in fold 1 only "One".
    zero = drawn(60, {"Zero": 0.3, "One": 0.0}, sd=0.05)
    one = drawn(60, {"Zero": 0.0, "One": 0.3}, sd=0.05, seed=1)
    seen = [zero[n] if n % 2 == 0 else one[n] for n in range(60)]
    got = calibrate(seen, rule=Rule("significant"))
    assert chosen(got) == ["One", "Zero"]  # each is worth 0.15 on average
    held = got.held_out
    assert held is not None
    assert held.cues == (("Zero",), ("One",))
    assert held.traces == 60
    # What each fold chose does not help in the other, whose best cue is in the pool besides.
    assert held.effect == pytest.approx(-0.3 / 4, abs=0.02)
    assert held.low < held.effect < held.high < 0
    assert held.margin == pytest.approx(0.5, abs=0.02)
    assert held.utilization == pytest.approx(1 - 11 / 60)
    assert not held.fallback


def test_a_stable_choice_holds() -> None:
    held = calibrate(drawn(48, {"Good": 0.15, "None": 0.0})).held_out
    assert held is not None
    assert held.cues == (("Good",), ("Good",))
    assert held.low > 0.1
    assert held.high < 0.2


def test_fold_1_does_not_choose_mined_cues_for_the_fold_they_come_from() -> None:
    held = calibrate(drawn(80, {"Mined": 0.2, "Listed": 0.2}), mined=["Mined"]).held_out
    assert held is not None
    assert set(held.cues[0]) == {"Mined", "Listed"}
    assert held.cues[1] == ("Listed",)


def test_halves_that_prove_nothing_use_the_fall_back_and_say_so() -> None:
    got = calibrate(drawn(20, {"Good": 0.2, "None": -0.2}), seed=1)
    assert not got.unproven
    assert got.held_out is not None
    assert got.held_out.fallback
    assert got.held_out.cues == (("Good",), ("Good",))


def test_one_fold_alone_holds_nothing_out() -> None:
    seen = [
        dataclasses.replace(each, trace=dataclasses.replace(each.trace, fold=1))
        for each in drawn(24, {"Good": 0.2})
    ]
    assert calibrate(seen).held_out is None


# Arguments.


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rule("target-utilization"),
        lambda: Rule("target-utilization", 0.0),
        lambda: Rule("target-utilization", 1.0),
        lambda: Rule("target-utilization", math.nan),
        lambda: Rule("paper", 0.5),
        lambda: Rule("best"),  # type: ignore[arg-type]
        lambda: calibrate([]),
        lambda: calibrate(drawn(2, {"A": 0.1}), min_effect=-0.1),
        lambda: calibrate(drawn(2, {"A": 0.1}), min_effect=math.nan),
    ],
)
def test_senseless_arguments_are_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()
