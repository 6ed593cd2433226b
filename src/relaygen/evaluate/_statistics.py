"""Intervals over questions. Everything is drawn from a fixed seed, so a summary can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 10_000
_SEED = 20_251
_AT_ONCE = 4_000_000  # numbers in memory


def wilson(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share, 0 to 1, by Wilson's score.

    Raises:
        ValueError: `n` is 0.
    """
    from scipy.stats import binomtest

    found = binomtest(right, n).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a mean of values between -1 and 1, by a bootstrap over questions.

    Two questions of which each outcome is as likely, -1 and 1, are added first (as Bonett and Price
    do for paired shares, 2012): where all values are equal a plain bootstrap would be sure of
    everything after a handful of questions. The interval of the negated values is the negated one.
    """
    return _bootstrap([[*values, 1.0, -1.0], [*values, -1.0, 1.0]], _means)


def share_interval(values: Sequence[float]) -> tuple[float, float]:
    """The same for values between 0 and 1."""
    low, high = mean_interval([2.0 * value - 1.0 for value in values])
    return (low + 1.0) / 2.0, (high + 1.0) / 2.0


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a median, by a plain bootstrap."""
    return _bootstrap([values], _medians)


def _means(drawn: Floats) -> Floats:
    means: Floats = drawn.mean(axis=1)
    return means


def _medians(drawn: Floats) -> Floats:
    import numpy as np

    medians: Floats = np.median(drawn, axis=1)
    return medians


def _bootstrap(
    samples: Sequence[Sequence[float]], statistic: Callable[[Floats], Floats]
) -> tuple[float, float]:
    """Percentiles of the statistic over resampled questions; each sample is drawn from alike."""
    import numpy as np

    found = []
    for data in np.asarray(samples, dtype=float):
        generator = np.random.default_rng(_SEED)
        block = max(1, _AT_ONCE // len(data))
        for start in range(0, RESAMPLES, block):
            size = min(block, RESAMPLES - start), len(data)
            found.append(statistic(data[generator.integers(0, len(data), size)]))
    low, high = np.percentile(np.concatenate(found), (2.5, 97.5))
    return float(low), float(high)
