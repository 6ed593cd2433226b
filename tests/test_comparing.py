from __future__ import annotations

import random

import pytest

from relaygen.calibrate import Scores

from .comparing import Agreement, compare


def scores(margins: list[float | None], top: list[int | None], id: str = "t") -> Scores:
    return Scores(id, "m", tuple(margins), tuple(top), 3)


def test_by_hand() -> None:
    ours = [scores([0.1, 0.5, None, 0.9], [1, 2, 3, 4]), scores([0.3], [5], "u")]
    theirs = [scores([0.2, 0.5, 0.7, 0.6], [1, 2, 3, 9]), scores([0.3], [5], "u")]
    found = compare(ours, theirs)
    assert (found.positions, found.same_top) == (4, 0.75)
    assert found.difference == pytest.approx(0.05)  # of 0.1, 0, 0.3 and 0
    # Deviations from the means 0.45 and 0.4: products sum to 0.18, squares to 0.35 and 0.1.
    assert found.correlation == pytest.approx(0.18 / (0.35 * 0.1) ** 0.5)


def test_shifted_by_hand() -> None:
    found = compare(
        [scores([0.1, 0.5, 0.8], [1, 2, 3])], [scores([0.9, 0.1, 0.6], [7, 1, 3])], shift=1
    )
    assert (found.positions, found.same_top) == (2, 0.5)
    assert found.difference == pytest.approx(0.05)
    assert found.correlation == pytest.approx(1.0)


def test_each_demand_alone() -> None:
    assert Agreement(9, 0.97, 0.02, 0.99).failed == set()
    assert Agreement(9, 0.969, 0.02, 0.99).failed == {"same_top"}
    assert Agreement(9, 0.97, 0.021, 0.99).failed == {"difference"}
    assert Agreement(9, 0.97, 0.02, 0.989).failed == {"correlation"}


def test_nearly_equal_scores_agree_and_shifted_ones_do_not() -> None:
    draw = random.Random(0)
    margins = [draw.random() for _ in range(500)]
    top = [draw.randrange(1000) for _ in margins]
    other = [min(1.0, max(0.0, margin + draw.gauss(0, 0.01))) for margin in margins]
    ours, theirs = [scores([*margins], [*top])], [scores([*other], [*top])]
    assert compare(ours, theirs).failed == set()
    for shift in (1, 2):
        assert compare(ours, theirs, shift).failed == {"same_top", "difference", "correlation"}


def test_other_traces_are_refused() -> None:
    one = scores([0.1, 0.2], [1, 2])
    with pytest.raises(ValueError, match="not of one trace"):
        compare([one], [scores([0.1, 0.2], [1, 2], "other")])
    with pytest.raises(ValueError, match="not of one trace"):
        compare([one], [scores([0.1], [1])])
