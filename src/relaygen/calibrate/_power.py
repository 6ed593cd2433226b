"""How many more traces it would take. Pure."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ._tests import Floats, Ints, can_test

_POWER = 0.8
_LEVEL = 0.05
_FURTHEST = 200.0  # times the traces at hand
_STEP = 1.02
_FEWEST = 3  # traces from which a standard deviation is read


def more_traces(differences: Floats, segments: Ints, *, min_effect: float) -> int | None:
    """Traces to add until the most promising cue is found with a probability of 0.8.

    Every count is taken to grow with the number of traces, effects and standard deviations to stay
    as observed; no deviation is taken to be smaller than the median one, since a few traces agree
    by chance. The best of many observed effects is too good on average, so this is a lower
    estimate. Where no cue shows an effect worth having, and none can be tested yet, it is the
    number until the first one can be tested.

    Args:
        differences: a row per trace, a column per cue; nan where there is none.
        segments: per cue.
        min_effect: the least effect worth a hand-off.

    Returns:
        None where more traces are of no evident use: tests were possible and no cue shows an effect
        worth having, or the wanted number is beyond 200 times what is there.
    """
    rows = int(differences.shape[0])
    known = ~np.isnan(differences)
    traces = known.sum(axis=0)
    able = np.asarray(can_test(segments, np.asarray(traces, np.int64)))
    deviations, effects = _moments(differences)
    worth = (traces >= _FEWEST) & (effects > 0.0) & (effects >= min_effect)
    first: int | None = None
    total = float(rows)
    while rows and total <= _FURTHEST * rows:
        wanted = math.ceil(total)
        grown = np.floor(traces * (wanted / rows) + 1e-9).astype(np.int64)
        grown_segments = np.floor(segments * (wanted / rows) + 1e-9).astype(np.int64)
        then = can_test(grown_segments, grown)
        if then.any():
            first = wanted if first is None else first
            if np.any(then & worth & (grown >= _needed(deviations, effects, int(then.sum())))):
                return max(1, wanted - rows)
        total = max(total * _STEP, total + 1.0)
    if able.any() or first is None:
        return None
    return max(1, first - rows)


def _moments(differences: Floats) -> tuple[Floats, Floats]:
    """(standard deviation, mean) per cue; 0 where there is none."""
    known = ~np.isnan(differences)
    traces = known.sum(axis=0)
    effects = np.where(known, differences, 0.0).sum(axis=0) / np.maximum(traces, 1)
    squares = np.where(known, (differences - effects) ** 2, 0.0).sum(axis=0)
    deviations = np.sqrt(squares / np.maximum(traces - 1, 1))
    usable = deviations[traces >= _FEWEST]
    least = float(np.median(usable)) if usable.size else 0.0
    return np.maximum(deviations, least), effects


def _needed(deviations: Floats, effects: Floats, tests: int) -> Floats:
    """Traces with the cue for the wanted power at the level of one of so many tests."""
    normal = special.ndtri(1.0 - _LEVEL / (2.0 * tests)) + special.ndtri(_POWER)
    return np.asarray((normal * deviations / np.maximum(effects, 1e-9)) ** 2, np.float64)
