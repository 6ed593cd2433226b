"""From observed traces to the cues of a profile. Pure, seeded: equal input, equal output."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from .._errors import UsageError
from .._task import AnswerRole
from ._effects import MINING_FOLD, Observed, Table, names, stats_of_runs, tables
from ._evidence import Evidence, How, reaching
from ._outcome import MIN_EFFECT, Calibration, CueResult, Held, Kind, Level, Point, Rule, Steered
from ._power import more_traces
from ._predict import delegated_margins, predict, replay, summary
from ._tests import LEAST_FLIPS, interval, means
from ._thresholds import Grid, Option, best, ends

__all__ = [
    "MIN_EFFECT",
    "Calibration",
    "CueResult",
    "Held",
    "Kind",
    "Level",
    "Point",
    "Rule",
    "Steered",
    "calibrate",
]

_LEVELS = (("balanced", 0.70), ("fast", 0.50))
_NAN = float("nan")


def calibrate(
    observed: Sequence[Observed],
    *,
    rule: Rule | None = None,
    seed: int = 0,
    min_effect: float = MIN_EFFECT,
    flips: int = LEAST_FLIPS,
    candidates: Sequence[str] | None = None,
    mined: Collection[str] = (),
    answer_role: AnswerRole = "small",
) -> Calibration:
    """Choose cues.

    Args:
        observed: scored traces with what fires in them.
        rule: ``significant`` by default.
        seed: of flips and resamples.
        min_effect: the least effect on the margin that is worth a hand-off.
        flips: at least so many are drawn, where they are drawn; see `sign_flip`.
        candidates: what to report on, in this order; by default everything that fires, by name.
        mined: candidates that were found on the traces of fold 0, so that only the others count.
        answer_role: who writes what follows the thinking; without thinking it has no effect.

    Raises:
        UsageError: no traces, or a minimum effect that is negative or not a number.
    """
    if not observed:
        raise UsageError("there are no scored traces to choose cues from")
    if not min_effect >= 0.0:
        raise UsageError(f"min_effect must be at least 0, not {min_effect}")
    rule = rule or Rule()
    how = How(seed, min_effect, flips, answer_role)
    made = tables(observed)
    wanted = tuple(dict.fromkeys(names(observed) if candidates is None else candidates))
    evidence = Evidence(made, wanted, frozenset(mined), how)
    curve = evidence.curve()
    chosen = evidence.choose(rule, curve)
    levels = _levels(evidence, curve, chosen.cues, rule.value)
    more = None
    if not evidence.proven:
        more = more_traces(evidence.differences, evidence.segments, min_effect=min_effect)
    return Calibration(
        _results(evidence, chosen.cues, frozenset(mined)),
        evidence.overall,
        str(rule),
        not evidence.proven.issuperset(chosen.cues),
        more,
        levels,
        tuple(curve),
        _held_out(made, wanted, frozenset(mined), how, rule, chosen.fallback)
        or _held_out(made, wanted, frozenset(mined), how, rule, True),
        seed,
        min_effect,
        chosen.fallback,
    )


def _results(
    evidence: Evidence, chosen: Collection[str], mined: frozenset[str]
) -> tuple[CueResult, ...]:
    verdicts = evidence.verdicts
    low, high = interval(evidence.differences, seed=evidence.how.seed)
    lengths = [len(table.observed.trace.ids) for table in evidence.made]
    tested = [
        n
        for n, table in zip(lengths, evidence.made, strict=True)
        if table.observed.trace.fold != MINING_FOLD
    ]
    return tuple(
        CueResult(
            stats.name,
            stats.occurrences,
            stats.traces,
            stats.tokens,
            stats.tokens / max(1, sum(tested if stats.name in mined else lengths)),
            _NAN if stats.margin is None else stats.margin,
            _NAN if stats.agreement is None else stats.agreement,
            float(verdicts.effect[at]),
            float(low[at]),
            float(high[at]),
            float(verdicts.p[at]),
            float(verdicts.holm[at]),
            float(verdicts.q[at]),
            bool(verdicts.testable[at]),
            stats.name in chosen,
            bool(verdicts.proven[at]),
        )
        for at, stats in enumerate(evidence.stats)
    )


def _levels(
    evidence: Evidence, curve: Sequence[Point], chosen: tuple[str, ...], wanted: float | None
) -> tuple[Level, ...]:
    """The rule's choice, with the target that it may have, and those that aim at a utilization."""
    aims = [("careful", chosen, wanted)]
    aims += [(name, reaching(curve, target) or chosen, target) for name, target in _LEVELS]
    where = ends(evidence.made)
    grids = {
        cues: Grid(evidence.made, where, cues, answer_role=evidence.how.answer_role)
        for cues in dict.fromkeys(cues for _, cues, _ in aims)
        if cues
    }
    return tuple(_level(evidence, *aim, grids) for aim in aims)


def _level(
    evidence: Evidence,
    name: str,
    cues: tuple[str, ...],
    target: float | None,
    grids: Mapping[tuple[str, ...], Grid],
) -> Level:
    """One level; the first of the grids is that of the rule's choice."""
    how = evidence.how
    told = predict(evidence.made, cues, seed=how.seed, answer_role=how.answer_role)
    level = Level(
        name,
        cues,
        told.utilization,
        told.handoffs_per_1000,
        told.margin,
        not evidence.proven.issuperset(cues),
        told.low,
        told.high,
        target,
        told.agreement,
    )
    if not cues:
        return level
    aim = told.utilization if target is None else target
    pools = [grids[each].options(aim) for each in dict.fromkeys((cues, next(iter(grids))))]
    found = best([option for pool in pools for option in pool], aim)
    own = _steered(evidence, grids, best(pools[0], aim))
    other = own if found.cues == cues else _steered(evidence, grids, found)
    return replace(level, own=own, best=other)


def _steered(evidence: Evidence, grids: Mapping[tuple[str, ...], Grid], option: Option) -> Steered:
    replayed = grids[option.cues].play(option.thresholds)
    told = summary(evidence.made, replayed, seed=evidence.how.seed)
    return Steered(
        option.cues,
        *option.thresholds,
        told.utilization,
        told.handoffs_per_1000,
        told.margin,
        told.agreement,
        not evidence.proven.issuperset(option.cues),
        told.low,
        told.high,
    )


def _held_out(
    made: Sequence[Table],
    candidates: Sequence[str],
    mined: frozenset[str],
    how: How,
    rule: Rule,
    may_fall_back: bool,
) -> Held | None:
    """Choose on each fold, in the way the whole was chosen, and measure on the other."""
    folds = [[table for table in made if table.observed.trace.fold == fold] for fold in (0, 1)]
    if not all(folds):
        return None
    chosen: list[tuple[str, ...]] = []
    differences, margins = [], []
    large = tokens = 0.0
    for fold, (own, other) in enumerate((folds, folds[::-1])):
        usable = candidates if fold == MINING_FOLD else [c for c in candidates if c not in mined]
        evidence = Evidence(own, usable, (), how)
        cues = evidence.choose(rule, evidence.curve(), may_fall_back=may_fall_back).cues
        chosen.append(cues)
        if not cues:
            continue
        replayed = replay(other, cues, answer_role=how.answer_role)
        differences.append(stats_of_runs("", other, replayed.runs).differences)
        margins.append(delegated_margins(other, replayed))
        large, tokens = large + replayed.large.sum(), tokens + replayed.tokens.sum()
    if not differences:
        return None
    column = np.concatenate(differences)[:, None]
    low, high = interval(column, seed=how.seed)
    shown = np.concatenate(margins)
    return Held(
        (chosen[0], chosen[1]),
        int((~np.isnan(column)).sum()),
        float(means(column)[0]),
        float(low[0]),
        float(high[0]),
        float(shown.mean()) if shown.size else _NAN,
        float(large / tokens) if tokens else 1.0,
        may_fall_back,
    )
