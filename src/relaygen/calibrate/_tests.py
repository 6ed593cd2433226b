"""Tests and intervals over traces, all cues at once. Pure, seeded.

A matrix of differences has a row per trace and a column per cue; nan where the trace says nothing
about the cue. Traces are independent of each other, the sentences of one trace are not, so a trace
is the unit of every flip and every resample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EXACT = 16
"""Up to this many traces all signs are enumerated; beyond, they are drawn."""

LEAST_FLIPS = 20_000
FLIPS_PER_CUE = 40
"""So that m cues at level 0.05 / m are decided by about two of the flips at the least."""

_ROWS = 4096  # flips held in memory at once
_ALMOST = 1e-9  # sums this near (relative) are ties: they are added up in different orders


def sign_flip(differences: Floats, *, seed: int, flips: int = LEAST_FLIPS) -> Floats:
    """Two-sided p per cue: may the signs of its differences be chance?

    The statistic is |mean of the differences|. Under the null a difference is as likely positive as
    negative. Exact for up to `EXACT` traces, else p = (1 + hits) / (1 + flips) with drawn flips, at
    least `flips` and `FLIPS_PER_CUE` x cues of them, the same ones for every cue.

    Returns:
        One p per column; nan where no trace has a difference.
    """
    known = ~np.isnan(differences)
    traces = known.sum(axis=0)
    filled = np.where(known, differences, 0.0)
    p = np.full(differences.shape[1], np.nan)
    for column in np.flatnonzero((traces > 0) & (traces <= EXACT)):
        p[column] = _enumerated(filled[known[:, column], column])
    many = np.flatnonzero(traces > EXACT)
    if many.size:
        drawn = max(flips, LEAST_FLIPS, FLIPS_PER_CUE * differences.shape[1])
        p[many] = _drawn(filled[:, many], drawn, np.random.default_rng((seed, 1)))
    return p


def _enumerated(differences: Floats) -> float:
    """All signs; the first one is kept, since the opposite of all signs gives the same |sum|."""
    sums = differences[:1]
    for difference in differences[1:]:
        sums = np.concatenate((sums + difference, sums - difference))
    return float(np.mean(np.abs(sums) >= _bar(differences)))


def _drawn(differences: Floats, flips: int, generator: np.random.Generator) -> Floats:
    bar = _bar(differences)
    hits = np.zeros(differences.shape[1], np.int64)
    for done in range(0, flips, _ROWS):
        rows = min(_ROWS, flips - done)
        coins = generator.integers(0, 2, (rows, differences.shape[0]), np.int8)
        hits += (np.abs((2.0 * coins - 1.0) @ differences) >= bar).sum(axis=0)
    return np.asarray((1 + hits) / (1 + flips), np.float64)


def _bar(differences: Floats) -> Floats:
    """What a flipped |sum| must reach to be a hit."""
    slack = _ALMOST * np.abs(differences).sum(axis=0)
    return np.asarray(np.abs(differences.sum(axis=0)) - slack, np.float64)


def means(differences: Floats) -> Floats:
    """Mean over the traces that have a difference, per cue; nan where none has."""
    known = ~np.isnan(differences)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            np.where(known, differences, 0.0).sum(axis=0) / known.sum(axis=0), np.float64
        )


def interval(
    differences: Floats, *, seed: int, resamples: int = 10_000, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Bootstrap interval of the mean difference over traces, per cue."""
    known = ~np.isnan(differences)
    filled = np.where(known, differences, 0.0)
    return ratio_interval(
        filled, known.astype(np.float64), seed=seed, resamples=resamples, level=level
    )


def ratio_interval(
    above: Floats, below: Floats, *, seed: int, resamples: int = 10_000, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Bootstrap interval of sum(above) / sum(below) over the rows, per column.

    Whole rows are drawn with replacement. The percentiles are widened so that the interval of a
    mean is as wide as Student's, without which 8 rows would cover too little: the expanded
    percentile interval of Hesterberg 2015, "What Teachers Should Know About the Bootstrap".

    Returns:
        (low, high), nan where fewer than two rows have a part in the ratio.
    """
    rows, columns = above.shape
    low, high = np.full(columns, np.nan), np.full(columns, np.nan)
    informed = (below != 0).sum(axis=0)
    wanted = np.flatnonzero(informed >= 2)
    if not wanted.size:
        return low, high
    generator = np.random.default_rng((seed, 2))
    drawn = generator.multinomial(rows, np.full(rows, 1.0 / rows), resamples).astype(np.float64)
    with np.errstate(invalid="ignore"):
        ratios = (drawn @ above[:, wanted]) / (drawn @ below[:, wanted])
    tails = expanded_tail(informed[wanted], level)
    for place, column in enumerate(wanted):
        values = ratios[:, place]
        values = values[~np.isnan(values)]  # resamples without a single informed row
        low[column], high[column] = np.quantile(values, (tails[place], 1.0 - tails[place]))
    return low, high


def expanded_tail(rows: Ints, level: float = 0.95) -> Floats:
    """The share of resamples to leave out on each side, for a mean of two or more rows."""
    student = special.stdtrit(rows - 1, (1.0 - level) / 2.0)
    return np.asarray(special.ndtr(np.sqrt(rows / (rows - 1)) * student), np.float64)


def holm(p: Floats) -> Floats:
    """Holm's step-down adjusted p of one family; every p must be a number."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(
        1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1, dtype=np.float64))
    )
    return adjusted


def q_values(p: Floats) -> Floats:
    """Benjamini-Hochberg q of one family; every p must be a number."""
    return np.asarray(stats.false_discovery_control(p), np.float64) if p.size else p.copy()


def least_traces(tests: int, level: float = 0.05, floor: int = 8) -> int:
    """With fewer traces no difference, however large, could be significant among so many tests.

    The smallest p of a two-sided sign-flip over n traces is 2^(1-n).
    """
    traces = floor
    while 2.0 ** (1 - traces) > level / tests:
        traces += 1
    return traces


def can_test(segments: Ints, traces: Ints, *, least_segments: int = 20) -> NDArray[np.bool_]:
    """Which cues have enough segments and traces to be tested.

    The number of traces needed grows with the number m of testable cues, and that number shrinks
    with the traces needed. The answer is the smallest bound n >= 8 on the traces with
    2^(1-n) <= 0.05 / m, where m cues reach the bound. It looks at counts alone, never at margins.
    """
    enough = segments >= least_segments
    bound = 8
    while (count := int((enough & (traces >= bound)).sum())) and least_traces(count) > bound:
        bound += 1
    return np.asarray(enough & (traces >= bound))


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the tests say of each cue, an entry per cue.

    Attributes:
        effect: mean difference over traces; nan where no trace has one.
        traces: traces with a difference.
        testable: enough segments and traces for a test.
        p, holm, q: two-sided p, Holm-adjusted, and Benjamini-Hochberg q, among the testable cues;
            nan for the others.
        proven: significant after Holm's correction, and a positive effect of at least the minimum.
    """

    effect: Floats
    traces: Ints
    testable: NDArray[np.bool_]
    p: Floats
    holm: Floats
    q: Floats
    proven: NDArray[np.bool_]


def judge(
    differences: Floats,
    segments: Ints,
    *,
    seed: int,
    min_effect: float,
    flips: int = LEAST_FLIPS,
    level: float = 0.05,
) -> Verdicts:
    """Test every cue that can be tested.

    Args:
        differences: a row per trace, a column per cue; nan where there is none.
        segments: per cue.
        seed: of the drawn flips.
        min_effect: the least effect worth a hand-off.
        flips: see `sign_flip`.
        level: of the family of all testable cues.
    """
    effect = means(differences)
    traces = np.asarray((~np.isnan(differences)).sum(axis=0), np.int64)
    able = can_test(segments, traces)
    p, adjusted, q = (np.full(effect.size, np.nan) for _ in range(3))
    if able.any():
        p[able] = sign_flip(differences[:, able], seed=seed, flips=flips)
        adjusted[able], q[able] = holm(p[able]), q_values(p[able])
    with np.errstate(invalid="ignore"):
        proven = able & (adjusted <= level) & (effect > 0.0) & (effect >= min_effect)
    return Verdicts(effect, traces, able, p, adjusted, q, proven)
