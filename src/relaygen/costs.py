"""The cost model: closed forms that say what a relay can gain, and what it did.

With L, S = decode and l, s = catch-up milliseconds per token of the large and the small model, and
u = utilization (the large model's share of the tokens):

- two devices (or GPUs where catch-up hides in memory-bound decoding):
  ceiling = L / (u L + (1 - u) S);
- one compute-bound device: ceiling = L / (u (L + s) + (1 - u) (S + l)): every token is decoded by
  one model and caught up by the other.

The ceiling is the speed-up if switching itself cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from ._errors import UsageError
from ._results import ModelUsage, Usage


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds per token.

    Attributes:
        large_decode, small_decode: of generating (L, S).
        large_catch_up, small_catch_up: of reading what the other role wrote (l, s).
    """

    large_decode: float
    small_decode: float
    large_catch_up: float = 0.0
    small_catch_up: float = 0.0


def ceiling(costs: Costs, utilization: float, *, devices: int = 2) -> float:
    """Speed-up over the large model alone if hand-offs were free.

    Raises:
        UsageError: a utilization outside [0, 1], or not one or two devices.
    """
    if not 0.0 <= utilization <= 1.0:
        raise UsageError(f"utilization must be between 0 and 1, not {utilization}")
    if devices not in (1, 2):
        raise UsageError(f"one or two devices, not {devices}")
    large, small = costs.large_decode, costs.small_decode
    if devices == 1:
        large, small = large + costs.small_catch_up, small + costs.large_catch_up
    return costs.large_decode / (utilization * large + (1.0 - utilization) * small)


def pays(costs: Costs, *, devices: int = 2) -> bool:
    """Whether a delegated token can be cheaper than a large one at all."""
    return ceiling(costs, 0.0, devices=devices) > 1.0


def measured_costs(usage: Usage) -> Costs | None:
    """Costs as one generation showed them; None where it is too short to tell.

    Catch-up is estimated from what each request waited for its first token beyond one decode step,
    per prompt token computed; it is 0 where the engine hides those counts.
    """
    large, small = usage.large.decode_ms, usage.small.decode_ms
    if not large or not small:
        return None
    return Costs(large, small, usage.large.catch_up_ms or 0.0, usage.small.catch_up_ms or 0.0)


def pooled(usages: Iterable[Usage]) -> Usage:
    """The sum of several generations, from which `measured_costs` weighs every token alike.

    Counts and seconds are added up; what no engine told stays None, and so do the waits for a
    first token, which have no sum.
    """
    total = Usage()
    for usage in usages:
        _add(total.large, usage.large, [field.name for field in fields(ModelUsage)])
        _add(total.small, usage.small, [field.name for field in fields(ModelUsage)])
        _add(total, usage, _SUMS)
    return total


_SUMS = (
    *("prompt_tokens", "inserted_tokens", "reasoning_tokens"),
    *("handoffs", "fallbacks", "seconds"),
)


def _add(total: Usage | ModelUsage, more: Usage | ModelUsage, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(more, name)
        if value is not None:
            setattr(total, name, (getattr(total, name) or 0) + value)


def handoff_ms(usage: Usage) -> float:
    """Milliseconds that a change of role cost beside catching up, on average; 0 without one.

    Tokens that were decoded and discarded; what passed between a request's last token and its end,
    since the step that is aborted runs on; and where an engine hides how many prompt tokens it
    computed, all that its requests waited for their first token beyond one decode step.
    """
    lost = 0.0
    for model in (usage.large, usage.small):
        step = model.decode_ms or 0.0
        lost += model.discarded * step
        ending = model.seconds - model.first_seconds - model.decode_seconds
        lost += 1000.0 * max(0.0, ending)
        if model.evaluated is None:
            lost += max(0.0, 1000.0 * model.first_seconds - model.requests * step)
    return lost / usage.handoffs if usage.handoffs else 0.0


def large_alone_seconds(usage: Usage) -> float | None:
    """Estimated wall seconds of the large model writing as many tokens alone.

    Its own measured decoding speed for every token after the first, its first request's wait for
    the first. None where the large model decoded too little to tell, and where the small one wrote
    nothing. An estimate: alone it would have written another text.
    """
    decode = usage.large.decode_ms
    wait = usage.first_token_seconds
    if decode is None or wait is None or not usage.small.tokens:
        return None
    return wait + (usage.completion_tokens - 1) * decode / 1000.0


def speedup(usage: Usage) -> float | None:
    """Estimated speed-up over the large model alone; below 1 it is slower. Never clipped."""
    alone = large_alone_seconds(usage)
    return alone / usage.seconds if alone is not None and usage.seconds else None


def money_saved(usage: Usage, *, large_price: float, small_price: float) -> tuple[float, float]:
    """(saved, saved share) of the completion's price; prices are per million tokens.

    Every small token is charged at its own price, discarded ones and probes included; prompt
    tokens and catch-up are left out, since engines bill cached ones differently.
    """
    written = usage.large.tokens + usage.large.discarded, usage.small.tokens + usage.small.discarded
    alone = (usage.large.tokens + usage.small.tokens) * large_price / 1e6
    paid = (written[0] * large_price + written[1] * small_price) / 1e6
    return alone - paid, (alone - paid) / alone if alone else 0.0
