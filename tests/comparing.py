"""Two ways to score the same traces, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaygen.calibrate import Scores

SAME_TOP, DIFFERENCE, CORRELATION = 0.97, 0.02, 0.99
"""How far two engines that run the same weights must agree."""


@dataclass(frozen=True)
class Agreement:
    """What two scorers have in common, over the positions that both of them know.

    Attributes:
        positions: compared.
        same_top: share of them with the same most probable token.
        difference: median of the absolute differences of margins.
        correlation: of the margins (Pearson).
    """

    positions: int
    same_top: float
    difference: float
    correlation: float

    @property
    def failed(self) -> set[str]:
        """Which of the three demands are not met."""
        met = {
            "same_top": self.same_top >= SAME_TOP,
            "difference": self.difference <= DIFFERENCE,
            "correlation": self.correlation >= CORRELATION,
        }
        return {name for name, fine in met.items() if not fine}

    def __str__(self) -> str:
        return (
            f"{self.positions} positions, same top-1 {self.same_top:.2%}, median difference "
            f"{self.difference:.5f}, correlation {self.correlation:.5f}"
        )


def compare(ours: Sequence[Scores], theirs: Sequence[Scores], shift: int = 0) -> Agreement:
    """Position n of ours with position n + shift of theirs, trace by trace.

    Raises:
        ValueError: they are not scores of the same traces.
    """
    pairs: list[tuple[float, float]] = []
    same = 0
    for one, other in zip(ours, theirs, strict=True):
        if (one.id, one.start, len(one.top)) != (other.id, other.start, len(other.top)):
            raise ValueError(f"{one.id!r} and {other.id!r} are not of one trace")
        # The shorter range of a shifted pair ends first.
        for mine, top, margin, best in zip(
            one.margins, one.top, other.margins[shift:], other.top[shift:], strict=False
        ):
            if mine is not None and margin is not None:
                pairs.append((mine, margin))
                same += top == best
    first, second = np.array(pairs).T
    return Agreement(
        len(pairs),
        same / len(pairs),
        float(np.median(np.abs(first - second))),
        float(np.corrcoef(first, second)[0, 1]),
    )
