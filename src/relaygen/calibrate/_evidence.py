"""What some traces say of all candidates, and what each rule makes of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from .._task import AnswerRole
from ._effects import Table, overall_margin, stats_of_each
from ._outcome import Point, Rule
from ._predict import delegated_margins, replay
from ._tests import Verdicts, judge

_FEWEST = (5, 3)
"""Segments and traces below which a cue that no test supports is not trusted at all."""

_ALMOST = 1e-12  # equal means, added up in another order
_NAN = float("nan")


class How(NamedTuple):
    """How to test and to predict, see `relaygen.calibrate._select.calibrate`."""

    seed: int
    min_effect: float
    flips: int
    answer_role: AnswerRole


class Choice(NamedTuple):
    """Chosen cues; `fallback` where the rule itself chose none."""

    cues: tuple[str, ...]
    fallback: bool


class Evidence:
    """The statistics of every candidate over some traces."""

    def __init__(
        self,
        made: Sequence[Table],
        candidates: Sequence[str],
        mined: Collection[str],
        how: How,
    ) -> None:
        self.made, self.how = made, how
        self.stats = stats_of_each(made, candidates, mined)
        self.differences = (
            np.stack([each.differences for each in self.stats], axis=1)
            if self.stats
            else np.zeros((len(made), 0))
        )
        self.segments = np.array([each.occurrences for each in self.stats], np.int64)
        self.verdicts: Verdicts = judge(
            self.differences,
            self.segments,
            seed=how.seed,
            min_effect=how.min_effect,
            flips=how.flips,
        )
        mean = overall_margin(made)
        self.overall = _NAN if mean is None else mean
        self.proven = {s.name for s, ok in zip(self.stats, self.verdicts.proven, strict=True) if ok}

    def best_first(self) -> list[str]:
        """Proven cues by effect, then the others with a positive effect and the minimum counts."""
        ranked = []
        for stats, effect in zip(self.stats, self.verdicts.effect, strict=True):
            often = stats.occurrences >= _FEWEST[0] and stats.traces >= _FEWEST[1]
            if stats.name in self.proven or (effect > 0.0 and often):
                ranked.append((stats.name not in self.proven, -float(effect), stats.name))
        return [name for _, _, name in sorted(ranked)]

    def above_overall(self, segments: int = 1, traces: int = 1) -> tuple[str, ...]:
        """The paper's rule: cues with a mean margin above that of all tokens, highest first."""
        above = [
            (-stats.margin, stats.name)
            for stats in self.stats
            if stats.margin is not None and stats.margin > self.overall + _ALMOST
            if stats.occurrences >= segments and stats.traces >= traces
        ]
        return tuple(name for _, name in sorted(above))

    def curve(self) -> list[Point]:
        """One more cue at a time, best first; a cue that delegates nothing new is passed over."""
        found: list[Point] = []
        cues: tuple[str, ...] = ()
        before = replay(self.made, cues, answer_role=self.how.answer_role)
        for cue in self.best_first():
            replayed = replay(self.made, (*cues, cue), answer_role=self.how.answer_role)
            if replayed.runs == before.runs:
                continue
            cues, before = (*cues, cue), replayed
            shown = delegated_margins(self.made, replayed)
            margin = float(shown.mean()) if shown.size else _NAN
            found.append(Point(replayed.utilization, margin, cues))
        return found

    def fallback(self) -> tuple[str, ...]:
        """The paper's rule with minimum counts; without them where they leave nothing."""
        return self.above_overall(*_FEWEST) or self.above_overall()

    def choose(self, rule: Rule, curve: Sequence[Point], *, may_fall_back: bool = True) -> Choice:
        """The rule's choice, or the fall-back's where that is wanted."""
        if rule.kind == "paper":
            return Choice(self.above_overall(), False)
        if rule.kind == "significant":
            found = tuple(name for name in self.best_first() if name in self.proven)
        else:
            found = reaching(curve, rule.value or 0.0)
        if found or not may_fall_back:
            return Choice(found, False)
        return Choice(self.fallback(), True)


def reaching(curve: Sequence[Point], target: float) -> tuple[str, ...]:
    """The fewest cues predicted at or below the target utilization; all where it is not reached."""
    for point in curve:
        if point.utilization <= target:
            return point.cues
    return curve[-1].cues if curve else ()
