"""Two arms beside each other, question by question. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .._jsonable import usage_from
from .._results import Usage
from ._results import Result
from ._statistics import mean_interval, median_interval

NO_WORSE, WORSE = "no worse than 2 points shown", "worse"
MARGIN = 2.0
"""Points of accuracy that may be lost."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Two arms on the questions that both answered.

    Attributes:
        arm, against: their names.
        n: such questions.
        difference: accuracy of `arm` less that of `against`, in points.
        low, high: its 95 % interval, in points, by a bootstrap over questions.
        better, worse: questions where `arm` has more, and fewer, right answers than `against`.
        verdict: see `verdict`.
    """

    arm: str
    against: str
    n: int
    difference: float
    low: float
    high: float
    better: int
    worse: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """How fast an arm writes beside ``large``, question by question.

    Attributes:
        arm, against: their names.
        n: questions that both answered, one at a time.
        ratio: the median of ms per token of `against` over that of `arm`; above 1 `arm` is faster.
        low, high: its 95 % interval, by a bootstrap over questions.
    """

    arm: str
    against: str
    n: int
    ratio: float
    low: float
    high: float


def verdict(low: float, high: float, n: int) -> str:
    """In fixed words, of a difference's 95 % interval in points over `n` questions."""
    if low > -MARGIN:
        return NO_WORSE
    return WORSE if high < 0.0 else f"not decided at n = {n}"


def paired(
    arm: str, against: str, ours: Sequence[Result], theirs: Sequence[Result]
) -> Paired | None:
    """The difference of two arms' accuracy; None where no question was graded for both."""
    first, second = shares_of(ours), shares_of(theirs)
    differences = [first[item] - second[item] for item in first if item in second]
    if not differences:
        return None
    low, high = (100.0 * limit for limit in mean_interval(differences))
    return Paired(
        arm,
        against,
        len(differences),
        100.0 * statistics.fmean(differences),
        low,
        high,
        sum(difference > 0.0 for difference in differences),
        sum(difference < 0.0 for difference in differences),
        verdict(low, high, len(differences)),
    )


def ratio(arm: str, against: str, ours: Sequence[Result], theirs: Sequence[Result]) -> Ratio | None:
    if any(result.at_once > 1 for result in (*ours, *theirs)):
        return None
    ratios = ratios_of(ours, theirs)
    if not ratios:
        return None
    return Ratio(arm, against, len(ratios), statistics.median(ratios), *median_interval(ratios))


def ratios_of(ours: Iterable[Result], theirs: Iterable[Result]) -> list[float]:
    """By question that both answered, ms per token of `theirs` over that of `ours`."""
    first, second = _paces(ours), _paces(theirs)
    return [second[item] / first[item] for item in first if item in second and first[item]]


def _paces(results: Iterable[Result]) -> dict[str, float]:
    """The median ms per token by item."""
    found: dict[str, list[float]] = defaultdict(list)
    for result in results:
        for usage in usages_of([result]):
            if usage.ms_per_token is not None:
                found[result.item].append(usage.ms_per_token)
    return {item: statistics.median(each) for item, each in found.items()}


def shares_of(results: Iterable[Result]) -> dict[str, float]:
    """The share of right answers by item, where there is a gold answer."""
    graded: dict[str, list[bool]] = defaultdict(list)
    for result in results:
        if result.correct is not None:
            graded[result.item].append(result.correct)
    return {item: statistics.fmean(each) for item, each in graded.items()}


def usages_of(results: Iterable[Result]) -> list[Usage]:
    return [usage_from(result.usage) for result in results if result.usage is not None]
