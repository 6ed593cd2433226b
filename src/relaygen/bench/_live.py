"""The relay against the large model alone on real engines, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._api import Question, Relay
from .._benchmark import Benchmark, Spread, abenchmark
from .._progress import Clock, Progress, Step, silent
from .._results import Generation


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of answering; figures over all its answers.

    Attributes:
        name: ``large``, or ``relay`` whatever its policy.
        seconds: wall seconds of an answer, whose length differs between the arms.
        ms_per_token: wall milliseconds per token.
        tokens: of an answer.
    """

    name: str
    seconds: Spread
    ms_per_token: Spread
    tokens: Spread


@dataclass(frozen=True, slots=True)
class LiveResult:
    """What `measure_live` found: the arms, and `Benchmark`'s ratios pair by pair."""

    arms: tuple[Arm, ...]
    benchmark: Benchmark


async def measure_live(
    relay: Relay,
    questions: Sequence[Question],
    *,
    runs: int,
    progress: Progress = silent,
    each: Callable[[Mapping[str, Any]], None] | None = None,
    **options: Any,
) -> LiveResult:
    """Ask every question `runs` times with the relay and with the large model alone, in turn.

    Args:
        relay: the pair.
        questions: what is asked.
        runs: how often.
        progress: is told after each answer.
        each: takes a record of each answer as it comes, so that none is lost.
        options: as in `Relay.task`, for both arms.

    Raises:
        UsageError: nothing to ask, or nothing was written.
        EngineError: an engine failed.
    """
    total = 2 * runs * len(questions)
    clock, count = Clock(total), 0

    def answered(arm: str, generation: Generation) -> None:
        nonlocal count
        count += 1
        if each is not None:
            each(answer_dict(arm, generation))
        progress(Step("bench", count, total, clock.left(1)))

    progress(Step("bench", 0, total))
    found = await abenchmark(relay, questions, num_runs=runs, each=answered, **options)
    arms = (_arm("large", found.large), _arm("relay", found.relay))
    return LiveResult(arms, found)


def _arm(name: str, generations: Sequence[Generation]) -> Arm:
    usages = [generation.usage for generation in generations]
    return Arm(
        name,
        Spread.of([usage.seconds for usage in usages]),
        Spread.of([usage.ms_per_token for usage in usages if usage.ms_per_token is not None]),
        Spread.of([float(usage.completion_tokens) for usage in usages]),
    )


def answer_dict(arm: str, generation: Generation) -> dict[str, Any]:
    """One answer's record, for JSON."""
    usage = generation.usage
    return {
        "kind": "answer",
        "arm": arm,
        "seconds": usage.seconds,
        "ms_per_token": usage.ms_per_token,
        "tokens": usage.completion_tokens,
        "utilization": usage.utilization,
        "handoffs": usage.handoffs,
        "discarded": usage.discarded_tokens,
        "fallbacks": usage.fallbacks,
        "finish": generation.finish,
    }


def live_dict(result: LiveResult) -> dict[str, Any]:
    """The whole, for JSON."""
    found = result.benchmark
    return {
        "kind": "live",
        "arms": [asdict(arm) for arm in result.arms],
        "speedup": asdict(found.speedup),
        "ms_ratio": asdict(found.ms_ratio),
        "utilization": asdict(found.utilization),
        "handoffs": asdict(found.handoffs),
        "agreement": found.agreement,
    }
