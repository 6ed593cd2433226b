"""Predicted against measured: what the levels of a profile did on questions of their own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..costs import Costs, ceiling, handoff_ms, measured_costs, pooled
from ..forecast import relay_speedup
from ._answers import Answer
from ._outcome import Level, Steered
from ._tests import interval, ratio_interval


@dataclass(frozen=True, slots=True)
class Speed:
    """Expected speed-ups over the large model alone; below 1 it is slower.

    Attributes:
        two, one: on two devices or one, hand-offs paid.
        two_ceiling, one_ceiling: if hand-offs were free.
    """

    two: float
    two_ceiling: float
    one: float
    one_ceiling: float


@dataclass(frozen=True, slots=True)
class LevelCheck:
    """One level, or several with equal cues and policy.

    Attributes:
        names: of the levels.
        policy: its name.
        n: answers that count: those with a token.
        predicted: utilization, between 0 and 1, as are the next three.
        utilization: measured: large tokens / (large + small tokens) of all answers together.
        low, high: its 95 % bootstrap interval over questions; nan with one answer.
        difference: measured less predicted utilization, in percentage points; the mean over
            questions, each of which counts alike.
        difference_low, difference_high: its 95 % bootstrap interval; nan with one answer.
        handoffs_predicted, handoffs: per 1,000 tokens, both ways.
        cut: answers that a token budget ended.
        fallbacks: answers in which an engine failed, so that the other carried on.
        speed: at the measured utilization and hand-offs; None where costs are not known.
    """

    names: tuple[str, ...]
    policy: str
    n: int
    predicted: float
    utilization: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    handoffs_predicted: float
    handoffs: float
    cut: int
    fallbacks: int
    speed: Speed | None

    @property
    def small_share(self) -> float:
        """The small model's share of the tokens."""
        return 1.0 - self.utilization


@dataclass(frozen=True, slots=True)
class Check:
    """What was measured.

    Attributes:
        levels: in the order given; those without an answer are not among them.
        questions: different questions that were answered.
        costs: of all answers together; None where they are too short to tell.
        handoff_ms: see `relaygen.costs.handoff_ms`.
    """

    levels: tuple[LevelCheck, ...]
    questions: int
    costs: Costs | None
    handoff_ms: float


Group = tuple[tuple[str, ...], Level | Steered, Sequence[Answer]]
"""Names of levels with equal cues and policy, what was predicted of them, and their answers."""


def check(groups: Sequence[Group], *, seed: int) -> Check:
    """Compare what was predicted of each level with what it did.

    Args:
        groups: see `Group`.
        seed: of the resamples.
    """
    counted = [
        (names, told, [answer for answer in answers if answer.usage.utilization is not None])
        for names, told, answers in groups
    ]
    usage = pooled(answer.usage for *_, answers in counted for answer in answers)
    costs, lost = measured_costs(usage), handoff_ms(usage)
    return Check(
        tuple(_level(*group, costs, lost, seed) for group in counted if group[-1]),
        len({answer.id for *_, answers in counted for answer in answers}),
        costs,
        lost,
    )


def _level(
    names: tuple[str, ...],
    level: Level | Steered,
    answers: Sequence[Answer],
    costs: Costs | None,
    lost: float,
    seed: int,
) -> LevelCheck:
    large = np.array([[float(answer.usage.large_tokens)] for answer in answers])
    tokens = large + np.array([[float(answer.usage.small_tokens)] for answer in answers])
    utilization = float(large.sum() / tokens.sum())
    handoffs = 1000.0 * sum(answer.usage.handoffs for answer in answers) / float(tokens.sum())
    low, high = ratio_interval(large, tokens, seed=seed)
    points = 100.0 * (large / tokens - level.utilization)
    below, above = interval(points, seed=seed)
    return LevelCheck(
        names=names,
        policy=answers[0].policy,
        n=len(answers),
        predicted=level.utilization,
        utilization=utilization,
        low=float(low[0]),
        high=float(high[0]),
        difference=float(points.mean()),
        difference_low=float(below[0]),
        difference_high=float(above[0]),
        handoffs_predicted=level.handoffs_per_1000,
        handoffs=handoffs,
        cut=sum(answer.finish == "length" for answer in answers),
        fallbacks=sum(answer.usage.fallbacks > 0 for answer in answers),
        speed=None if costs is None else _speed(costs, utilization, handoffs, lost),
    )


def _speed(costs: Costs, utilization: float, handoffs: float, lost: float) -> Speed:
    values = [
        value
        for devices in (2, 1)
        for value in (
            relay_speedup(costs, utilization, handoffs, devices=devices, handoff_ms=lost),
            ceiling(costs, utilization, devices=devices),
        )
    ]
    return Speed(*values)
