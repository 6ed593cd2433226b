"""The relay against the large model alone, on the same questions in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._errors import UsageError
from ._results import Generation
from .grading._agreement import same_answer

if TYPE_CHECKING:
    from ._api import Question, Relay


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of one figure over all questions and runs."""

    median: float
    lowest: float
    highest: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What `benchmark` measured.

    Attributes:
        speedup: end-to-end seconds of large alone over those of the relay, pair by pair. The two
            texts differ in length, and that alone moves it.
        ms_ratio: the same of milliseconds per token, which length does not move.
        utilization: the large model's share of the relay's tokens.
        agreement: share of the pairs whose answers agree.
        handoffs: per generation.
        relay, large: every generation, run by run in the order of the questions.
    """

    speedup: Spread
    ms_ratio: Spread
    utilization: Spread
    handoffs: Spread
    agreement: float
    relay: tuple[Generation, ...]
    large: tuple[Generation, ...]


async def abenchmark(
    relay: Relay,
    prompts: Sequence[Question],
    *,
    num_runs: int = 3,
    same: Callable[[str, str], bool] = same_answer,
    each: Callable[[str, Generation], None] = lambda arm, generation: None,
    **options: Any,
) -> Benchmark:
    """`benchmark` for callers with an event loop.

    `each` is told the arm (``large`` or ``relay``) and the generation as soon as it is over.
    """
    if not prompts or num_runs < 1:
        raise UsageError("a benchmark needs at least one prompt and one run")
    relayed: list[Generation] = []
    alone: list[Generation] = []
    await relay.agenerate(prompts[0], **options)  # warm-up: engines start, weights are paged in
    for run in range(num_runs):
        for position, prompt in enumerate(prompts):
            # A B, B A, …: whoever comes second finds the machine as the first left it.
            arms = [("large", alone), (None, relayed)]
            for policy, results in arms if (run + position) % 2 else reversed(arms):
                chosen = options if policy is None else {**options, "policy": policy}
                generation = await relay.agenerate(prompt, **chosen)
                results.append(generation)
                each(policy or "relay", generation)
    return _measured(relayed, alone, same)


def _measured(
    relayed: list[Generation], alone: list[Generation], same: Callable[[str, str], bool]
) -> Benchmark:
    pairs = list(zip(relayed, alone, strict=True))
    ms_ratios = [
        large.usage.ms_per_token / ours.usage.ms_per_token
        for ours, large in pairs
        if large.usage.ms_per_token and ours.usage.ms_per_token
    ]
    utilizations = [u for ours in relayed if (u := ours.usage.utilization) is not None]
    if not ms_ratios or not utilizations:
        raise UsageError("no generation wrote a token: nothing to compare")
    return Benchmark(
        speedup=Spread.of([large.usage.seconds / ours.usage.seconds for ours, large in pairs]),
        ms_ratio=Spread.of(ms_ratios),
        utilization=Spread.of(utilizations),
        handoffs=Spread.of([float(ours.usage.handoffs) for ours in relayed]),
        agreement=statistics.mean(same(ours.answer, large.answer) for ours, large in pairs),
        relay=tuple(relayed),
        large=tuple(alone),
    )


def benchmark(
    relay: Relay,
    prompts: Sequence[Question],
    *,
    num_runs: int = 3,
    same: Callable[[str, str], bool] = same_answer,
    **options: Any,
) -> Benchmark:
    """Run every prompt `num_runs` times with the relay and with the large model alone.

    Args:
        relay: the pair; its policy is what is compared.
        prompts: questions, or conversations.
        num_runs: how often each.
        same: whether two answers agree; by default by mathematics where `math-verify` is installed
            and both have a result, else by equal words.
        options: as in `Relay.task`, for both arms.

    Raises:
        UsageError: nothing to run.
        EngineError: an engine failed.
    """
    return relay.run(abenchmark(relay, prompts, num_runs=num_runs, same=same, **options))
