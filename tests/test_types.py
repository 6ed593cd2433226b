"""Data types: margins, sampling ranges."""

from __future__ import annotations

import math
from typing import Any

import pytest

from relaygen import Sampling, UsageError
from relaygen._types import Piece, other


def test_the_margin_is_the_difference_of_the_best_two() -> None:
    piece = Piece(1, b"a", ((1, math.log(0.7)), (2, math.log(0.2)), (3, math.log(0.1))))
    assert piece.margin == pytest.approx(0.5)


@pytest.mark.parametrize("top", [(), ((1, 0.0),)])
def test_a_missing_second_candidate_is_unknown_never_one(top: Any) -> None:
    assert Piece(1, b"a", top).margin is None


def test_other() -> None:
    assert (other("large"), other("small")) == ("small", "large")


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -0.1), ("temperature", 2.1), ("top_p", 1.5), ("min_p", -1), ("top_k", -1)],
)
def test_sampling_out_of_range(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=field):
        Sampling(**{field: value})  # type: ignore[arg-type]
