"""The levels of a calibration under both policies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from relaygen.calibrate._effects import Observed
from relaygen.calibrate._select import Rule, calibrate

from .observations import Cue, observe

Part = tuple[list[Cue], list[float | None]]


def weak_ends(traces: int = 24) -> list[Observed]:
    """Of 24 tokens a cue delegates 10: of 6 the scorer is sure and right, of 4 neither."""
    generator = np.random.default_rng(1)
    found = []
    for number in range(traces):
        sure = generator.uniform(0.9, 1.0, 6).tolist()
        unsure = generator.uniform(0.4, 0.5, 4).tolist()
        fair = generator.uniform(0.5, 0.6, 13).tolist()
        parts: list[Part] = [([("So", 0)], [0.5, *sure, *unsure]), ([], fair)]
        found.append(observe(*parts, wrong=range(7, 11), fold=number % 2, id=f"t{number}"))
    return found


def test_both_policies_are_told_at_the_same_utilization() -> None:
    got = calibrate(weak_ends())
    careful, balanced, fast = got.levels
    assert careful.cues == ("So",)
    assert careful.utilization == pytest.approx(14 / 24)
    assert careful.agreement == pytest.approx(0.6)
    for level, aim in ((careful, careful.utilization), (balanced, 0.7), (fast, 0.5)):
        assert level.own is not None
        assert level.own.cues == level.cues
        assert level.own.stay >= level.own.leave
        assert level.own.low <= level.own.utilization <= level.own.high
        assert abs(level.own.utilization - aim) <= abs(level.utilization - aim) + 0.02
        assert level.steered == (level.own,)  # these cues are the first level's


def test_thresholds_leave_out_what_the_small_model_would_have_written_otherwise() -> None:
    level = calibrate(weak_ends(), rule=Rule("target-utilization", 0.75)).levels[0]
    assert level.target == 0.75
    assert level.utilization == pytest.approx(14 / 24)
    assert level.own is not None
    assert level.own.utilization == pytest.approx(18 / 24)  # the sure tokens, and no other
    assert (level.own.agreement, level.own.stay) == (1.0, 1.01)
    assert 0.5 < level.own.leave < 0.9
    assert level.own.margin > 0.9 > level.margin
    assert level.own.handoffs_per_1000 == pytest.approx(2000 / 24)
    assert not level.own.unproven


def test_a_target_is_missed_by_more_than_five_points() -> None:
    level = dataclasses.replace(calibrate(weak_ends(2)).levels[1], target=0.7)
    assert [level.missed(each) for each in (0.7, 0.749, 0.651)] == [None] * 3
    assert [level.missed(each) for each in (0.751, 0.649)] == [0.7] * 2
    assert dataclasses.replace(level, target=None).missed(0.1) is None


def test_the_first_levels_cues_are_taken_where_they_suit_the_margin_policy_better() -> None:
    """The small model goes on well behind the proven cue; behind the other one it is wrong."""
    generator = np.random.default_rng(1)

    def sure() -> list[float | None]:
        return [*generator.uniform(0.8, 1.0, 10).tolist()]

    seen = []
    for number in range(24):
        parts: list[Part] = [([("Good", 0)], sure()), ([], sure()), ([], [0.3] * 10)]
        if number < 5:  # too seldom to be tested
            parts.append(([("Poor", 0)], sure()))
        seen.append(observe(*parts, wrong=range(20, 40), fold=number % 2))
    careful, _, fast = calibrate(seen).levels
    assert (careful.cues, fast.cues) == (("Good",), ("Good", "Poor"))
    assert fast.own is not None
    assert fast.best is not None
    assert fast.own.cues == fast.cues
    assert fast.best.cues == careful.cues
    assert fast.best.agreement > fast.own.agreement
    assert (fast.own.unproven, fast.best.unproven) == (True, False)
    assert fast.steered == (fast.own, fast.best)


def test_without_cues_there_is_no_margin_policy() -> None:
    for level in calibrate([observe(([], [0.5, 0.5]))]).levels:
        assert (level.own, level.best, level.steered) == (None, None, ())
