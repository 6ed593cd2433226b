"""What `MarginPolicy` would do over scored traces, and the thresholds that suit a level. Pure.

The rules are those of `relaygen.policies.margin` and the loop, with the scorer's margins before the
trace's tokens in the place of the small model's before its own. As in `_predict`, the large
model's text stands in for what a relay will write.

Among thresholds that reach about the same utilization those are taken at which the delegated tokens
agree most: where the scorer's most probable token is not the trace's, the small model would have
written something else, sure of itself or not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .._task import AnswerRole
from ..text.utf8 import Utf8
from ._effects import Floats, Table, stats_of_runs
from ._predict import Ending, Replayed, delegated_margins, replay
from ._segments import MAX_SEGMENT_TOKENS, Firing

NEVER = 1.01
"""A `stay` that no margin reaches."""
ALWAYS = 0.0
"""A `leave` that every margin reaches."""

_LEAVES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)  # quantiles of the delegated margins
_STAYS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of those that start a sentence
_DIGITS = 4  # decimals of a threshold: as the profile has it, so it is predicted
_NEAR = 0.02
"""Utilizations that differ by less from the target than this, beyond the nearest, are as good."""


class Thresholds(NamedTuple):
    """`stay` and `leave` of `MarginPolicy`."""

    stay: float
    leave: float


class Ends:
    """Where the delegated segments of one trace end, for any thresholds."""

    def __init__(self, table: Table, limit: int = MAX_SEGMENT_TOKENS) -> None:
        self._margins = table.margins
        self._known: list[float] = table.margins.tolist()
        self._end = table.sentences[-1].end if table.sentences else 0
        self._starts = [sentence.start for sentence in table.sentences[1:]]
        self._limit = limit
        self._begun = _characters(table.observed.trace.pieces)

    def ending(self, thresholds: Thresholds) -> Ending:
        """For segments under these thresholds."""
        stay, leave = thresholds
        unsure = [at for at in self._starts if not self._known[at] >= stay]  # unknown is unsure
        low: list[int] = np.flatnonzero(self._margins < leave).tolist()

        def end(firing: Firing) -> int:
            last = firing.end
            if firing.end - firing.first < self._limit and self._sure(last, stay):
                at = bisect_right(unsure, last)
                last = unsure[at] if at < len(unsure) else self._end
                last = min(last, self._full(firing.first))
            at = bisect_left(low, firing.first)
            return self._begun[low[at]] if at < len(low) and low[at] < last else last

        return end

    @property
    def openings(self) -> Floats:
        """The known margins of the tokens that a sentence begins with, the first one aside."""
        values = self._margins[self._starts]
        return np.asarray(values[~np.isnan(values)], np.float64)

    def _sure(self, token: int, stay: float) -> bool:
        return token < self._end and self._known[token] >= stay

    def _full(self, first: int) -> int:
        """Where a segment has reached its limit; a character is finished."""
        end = first + self._limit
        while end < self._end and self._begun[end] < end:
            end += 1
        return end


def ends(made: Iterable[Table]) -> list[Ends]:
    """Of each trace, to be made once."""
    return [Ends(table) for table in made]


def _characters(pieces: Iterable[bytes]) -> list[int]:
    """For each token, the token that the character began with in whose middle it begins."""
    utf8, begun, found = Utf8(), 0, []
    for index, piece in enumerate(pieces):
        if utf8.whole:
            begun = index
        found.append(begun)
        utf8.feed(piece)
    return found


def play(
    made: Sequence[Table],
    ends: Sequence[Ends],
    cues: Sequence[str],
    thresholds: Thresholds,
    *,
    answer_role: AnswerRole = "small",
) -> Replayed:
    """Who would write which token under `MarginPolicy`, as `replay` tells it.

    A segment of which the small model kept nothing is a run without tokens, and two hand-offs.
    """
    endings = [each.ending(thresholds) for each in ends]
    return replay(made, cues, answer_role=answer_role, endings=endings)


class Option(NamedTuple):
    """Thresholds for a set of cues, and how well they do."""

    cues: tuple[str, ...]
    thresholds: Thresholds
    utilization: float
    agreement: float | None
    margin: float | None


class Grid:
    """A set of cues at every pair of thresholds that is tried."""

    def __init__(
        self,
        made: Sequence[Table],
        ends: Sequence[Ends],
        cues: tuple[str, ...],
        *,
        answer_role: AnswerRole = "small",
    ) -> None:
        self._made, self._ends, self._cues, self._role = made, ends, cues, answer_role
        plain = delegated_margins(made, replay(made, cues, answer_role=answer_role))
        openings = np.concatenate([each.openings for each in ends])
        stays = [NEVER, *_quantiles(openings, _STAYS)[::-1]]  # of equals, the more careful one
        self._reached = {
            leave: [(self.play(pair).utilization, pair) for pair in _pairs(stays, leave)]
            for leave in dict.fromkeys((ALWAYS, *_quantiles(plain, _LEAVES)))
        }

    def play(self, thresholds: Thresholds) -> Replayed:
        """Over all traces."""
        return play(self._made, self._ends, self._cues, thresholds, answer_role=self._role)

    def options(self, target: float) -> list[Option]:
        """For each `leave` the `stay` whose predicted utilization is nearest to the target."""
        found = []
        for reached in self._reached.values():
            utilization, pair = min(reached, key=lambda each: abs(each[0] - target))
            told = stats_of_runs("", self._made, self.play(pair).runs)
            found.append(Option(self._cues, pair, utilization, told.agreement, told.margin))
        return found


def _pairs(stays: Iterable[float], leave: float) -> list[Thresholds]:
    return [Thresholds(stay, leave) for stay in stays if stay >= leave]


def _quantiles(values: Floats, at: Sequence[float]) -> list[float]:
    return (
        [round(float(value), _DIGITS) for value in np.quantile(values, at)] if values.size else []
    )


def best(options: Sequence[Option], target: float) -> Option:
    """The one whose delegated tokens agree most, of those about as near to the target as can be.

    Mean margins decide where agreement is equal or not known.
    """

    def distance(option: Option) -> float:
        return abs(option.utilization - target)

    nearest = min(map(distance, options))

    def merit(option: Option) -> tuple[float, float, float]:
        known = [-1.0 if each is None else each for each in (option.agreement, option.margin)]
        return known[0], known[1], -distance(option)

    return max((each for each in options if distance(each) <= nearest + _NEAR), key=merit)
