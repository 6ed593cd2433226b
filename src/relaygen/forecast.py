"""What a relay will gain, before it runs: closed forms over the costs of `relaygen.costs`.

Milliseconds per token of the whole text. With L, S, l, s and u as in `relaygen.costs`; drafting
(speculative decoding) that makes decoding a and b times as fast; h changes of role per 1,000
tokens, each of which takes w ms beside reading; p prompt tokens per token of the text; and x and y
tokens of the small and the large model, per token of the text, that the other one never reads
because it writes nothing behind them:

====================  ==========================================
large decode          u L / a
small decode          (1 - u) S / b
catch-up              (u - y) s + (1 - u - x) l, or nothing where it hides
overhead              h w / 1000
prompt                p (l + s), or p l where catch-up hides
large model alone     L + p l, without drafting
====================  ==========================================

A model that writes nothing reads nothing, not even the prompt. A model that drafts for the large
one reads along with it, so l is larger by what that takes.

One stream: nobody queues. `crowd` lets many streams share the engines.

Catch-up hides where the other model reads while this one writes, which takes two devices. On a GPU
a few tokens are read in about the time of one decode step, and that step is there anyway: l and s
beyond it are near 0 then, and no option is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from ._errors import UsageError
from ._queueing import Station, closed_network
from .costs import Costs, ceiling

Term = Literal["large decode", "small decode", "catch-up", "overhead", "prompt"]
"""Where the time of a token goes."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A relay whose speed is asked for.

    Attributes:
        costs: without drafting.
        utilization: the large model's share of the tokens, between 0 and 1.
        handoffs_per_1000: changes of role, both ways, per 1,000 tokens; see `handoffs`.
        handoff_ms: that each change takes beside reading.
        large_spec, small_spec: how many times as fast drafting makes this model's decoding.
        devices: one, which both models compute on, or two.
        hidden: whether catch-up happens while the other model writes; on two devices only.
        prompt_per_token: prompt tokens per token of the text.
        large_skips, small_skips: tokens, per token of the text, that the other model wrote and this
            one never reads, since it writes nothing behind them.
        large_spec_catch_up: milliseconds by which drafting makes the large model's reading of a
            token longer: the model that drafts reads it too.

    Raises:
        UsageError: a value is out of range.
    """

    costs: Costs
    utilization: float
    handoffs_per_1000: float = 0.0
    handoff_ms: float = 0.0
    large_spec: float = 1.0
    small_spec: float = 1.0
    devices: int = 2
    hidden: bool = False
    prompt_per_token: float = 0.0
    large_skips: float = 0.0
    small_skips: float = 0.0
    large_spec_catch_up: float = 0.0

    def __post_init__(self) -> None:
        costs = [getattr(self.costs, field.name) for field in fields(Costs)]
        counts = (self.handoffs_per_1000, self.handoff_ms, self.prompt_per_token)
        for value in (*costs, *counts, self.large_spec_catch_up):
            if not 0.0 <= value < math.inf:
                raise UsageError(f"costs and counts must be 0 or more, not {value}")
        for value in (self.costs.large_decode, self.large_spec, self.small_spec):
            if not 0.0 < value < math.inf:
                raise UsageError(f"decoding and its speed-ups must be more than 0, not {value}")
        if not self.utilization and not self.costs.small_decode:
            raise UsageError("the small model writes everything and takes no time")
        if self.hidden and self.devices == 1:
            raise UsageError("catch-up cannot hide on one device", hint="two devices, or paid for")
        ceiling(self.costs, self.utilization, devices=self.devices)  # checks these two
        for skipped, written in (
            (self.large_skips, 1.0 - self.utilization),
            (self.small_skips, self.utilization),
        ):
            if not 0.0 <= skipped <= written + 1e-9:
                raise UsageError(f"{skipped} of {written} tokens cannot be left unread")

    @property
    def segment_tokens(self) -> float | None:
        """Mean tokens of a delegated segment; None where nothing is delegated."""
        if not self.handoffs_per_1000:
            return None
        return 2000.0 * (1.0 - self.utilization) / self.handoffs_per_1000

    def read(self) -> tuple[float, float]:
        """What the large and the small model read of each other, per token of the text."""
        return (
            max(0.0, 1.0 - self.utilization - self.large_skips) if self.utilization else 0.0,
            max(0.0, self.utilization - self.small_skips) if self.utilization < 1.0 else 0.0,
        )

    def prompts(self) -> tuple[float, float]:
        """What they read of the prompt, per token of the text."""
        ratio = self.prompt_per_token
        return ratio if self.utilization else 0.0, ratio if self.utilization < 1.0 else 0.0

    def drafted(self) -> Costs:
        """The costs with drafting."""
        costs = self.costs
        return replace(
            costs,
            large_decode=costs.large_decode / self.large_spec,
            large_catch_up=costs.large_catch_up + self.large_spec_catch_up,
            small_decode=costs.small_decode / self.small_spec,
        )


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of a relay with one stream.

    Attributes:
        terms: milliseconds per token, by where they go.
        alone_ms: milliseconds per token of the large model alone, without drafting.
        alone_drafting_ms: with the large model's drafting.
        ceiling: the speed-up if hand-offs were free, and with two devices catch-up too.
        break_even: mean tokens of a delegated segment below which the relay is slower than the
            large model alone with the same drafting; None where it is at any length.
    """

    terms: Mapping[Term, float]
    alone_ms: float
    alone_drafting_ms: float
    ceiling: float
    break_even: float | None

    @property
    def ms_per_token(self) -> float:
        """All terms."""
        return sum(self.terms.values())

    @property
    def speedup(self) -> float:
        """Over the large model alone, without drafting; below 1 the relay is slower."""
        return self.alone_ms / self.ms_per_token

    @property
    def speedup_over_drafting(self) -> float:
        """Over the large model alone with the same drafting."""
        return self.alone_drafting_ms / self.ms_per_token

    @property
    def share(self) -> float:
        """Of the ceiling that is reached, between 0 and 1."""
        return self.speedup / self.ceiling

    @property
    def limit(self) -> Term:
        """The largest term."""
        return max(self.terms, key=lambda name: self.terms[name])


def handoffs(utilization: float, segment_tokens: float) -> float:
    """Hand-offs per 1,000 tokens where delegated segments have this mean length.

    Raises:
        UsageError: a length that is not above 0.
    """
    if not segment_tokens > 0.0:
        raise UsageError(f"a delegated segment has more than 0 tokens, not {segment_tokens}")
    return 2000.0 * (1.0 - utilization) / segment_tokens


def forecast(setup: Setup) -> Forecast:
    """What to expect; see the head of this module."""
    share, costs, ratio = setup.utilization, setup.drafted(), setup.prompt_per_token
    small_reads, large_reads = costs.small_catch_up, costs.large_catch_up
    large_read, small_read = setup.read()
    large_prompt, small_prompt = setup.prompts()
    terms: dict[Term, float] = {
        "large decode": share * costs.large_decode,
        "small decode": (1.0 - share) * costs.small_decode,
        "catch-up": 0.0 if setup.hidden else small_read * small_reads + large_read * large_reads,
        "overhead": setup.handoffs_per_1000 / 1000.0 * setup.handoff_ms,
        "prompt": large_prompt * large_reads
        + (0.0 if setup.hidden else small_prompt * small_reads),
    }
    free = costs.large_decode / ceiling(costs, share, devices=setup.devices)
    free += large_prompt * large_reads
    if setup.devices == 1:
        free += small_prompt * small_reads
        free -= (share - small_read) * small_reads + (1.0 - share - large_read) * large_reads
    alone = setup.costs.large_decode + ratio * setup.costs.large_catch_up
    return Forecast(
        terms=terms,
        alone_ms=alone,
        alone_drafting_ms=costs.large_decode + ratio * large_reads,
        ceiling=alone / free,
        break_even=_break_even(setup),
    )


def _break_even(setup: Setup) -> float | None:
    """The segment length at which the terms add up to the large model alone with its drafting."""
    if setup.utilization == 1.0:
        return None
    costs, away = setup.drafted(), 1.0 - setup.utilization
    saved = costs.large_decode - costs.small_decode  # with each delegated token
    read, prompts = setup.read(), setup.prompts()
    if not setup.hidden:
        reading = read[0] * costs.large_catch_up + (read[1] + prompts[1]) * costs.small_catch_up
        saved -= reading / away
    saved += (setup.prompt_per_token - prompts[0]) * costs.large_catch_up / away
    return 2.0 * setup.handoff_ms / saved if saved > 0.0 else None


def relay_speedup(
    costs: Costs,
    utilization: float,
    handoffs_per_1000: float,
    *,
    devices: int = 2,
    handoff_ms: float = 0.0,
) -> float:
    """Expected speed-up over the large model alone, hand-offs paid; below 1 it is slower.

    Args:
        costs: measured, see `relaygen.costs.measured_costs`.
        utilization, handoffs_per_1000: as in `Setup`.
        devices: one or two; on two, catch-up is taken to hide, as in `relaygen.costs.ceiling`.
        handoff_ms: milliseconds that a change of role takes beside catching up.

    Raises:
        UsageError: a value is out of range.
    """
    setup = Setup(
        costs, utilization, handoffs_per_1000, handoff_ms, devices=devices, hidden=devices == 2
    )
    return forecast(setup).speedup


def delegated_cost(utilization: float, speedup: float) -> float:
    """What a delegated token costs, all included, in tokens of the large model alone.

    Solves u + (1 - u) c = 1 / speed-up for c, where the text is as long as the large model's.

    Raises:
        UsageError: such a speed-up is impossible at this utilization, or one model writes all.
    """
    if not 0.0 < utilization < 1.0:
        raise UsageError(f"nothing to solve for at a utilization of {utilization}")
    if not 0.0 < speedup < math.inf:
        raise UsageError(f"a speed-up must be more than 0, not {speedup}")
    cost = (1.0 / speedup - utilization) / (1.0 - utilization)
    if cost < 0.0:
        raise UsageError(
            f"a speed-up of {speedup:g} is above what a free small model would give at a "
            f"utilization of {utilization:g}: {1.0 / utilization:.2f}"
        )
    return cost


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many streams that share the engines, on average over a long time.

    Attributes:
        streams: that are always there.
        tokens_per_ms: of all streams together.
        ms_per_token: of one stream.
        large_busy, small_busy: share of the time in which this model works for anybody.
        large_requests, small_requests: streams that are at this model, waiting ones included.
        speedup: of one stream over the large model alone with as many streams, without drafting.
    """

    streams: int
    tokens_per_ms: float
    ms_per_token: float
    large_busy: float
    small_busy: float
    large_requests: float
    small_requests: float
    speedup: float


def crowd(
    setup: Setup,
    streams: int,
    *,
    large_speeds: Sequence[float] = (1.0,),
    small_speeds: Sequence[float] = (1.0,),
) -> Crowd:
    """How busy the engines get, by a closed network of one station for each device.

    A token goes to the large model, to the small one, or through a hand-off, whose overhead keeps
    nobody waiting. What the network assumes is said in `relaygen._queueing`.

    Args:
        setup: of every stream.
        streams: at least one.
        large_speeds, small_speeds: tokens per time with 1, 2, … requests at once, in those with
            one; more requests than that are no faster. ``(1, 2, 3, 4)`` decodes four at once
            without slowing down. On one device the large model's count.

    Raises:
        UsageError: no stream.
    """
    terms, alone = forecast(setup).terms, forecast(setup).alone_ms
    costs, prompts = setup.drafted(), setup.prompts()
    read = (0.0, 0.0) if setup.hidden else setup.read()
    reading = (read[0] + prompts[0], 0.0 if setup.hidden else read[1] + prompts[1])
    work = (
        terms["large decode"] + reading[0] * costs.large_catch_up,
        terms["small decode"] + reading[1] * costs.small_catch_up,
    )
    if setup.devices == 1:
        load = closed_network([Station(sum(work), large_speeds)], terms["overhead"], streams)
        shares = [part / sum(work) for part in work]
        busy = tuple(load.busy[0] * share for share in shares)
        requests = tuple(load.requests[0] * share for share in shares)
    else:
        stations = [Station(work[0], large_speeds), Station(work[1], small_speeds)]
        load = closed_network(stations, terms["overhead"], streams)
        busy, requests = load.busy, load.requests
    mine = streams / load.throughput
    theirs = streams / closed_network([Station(alone, large_speeds)], 0.0, streams).throughput
    return Crowd(
        streams,
        load.throughput,
        mine,
        large_busy=busy[0],
        small_busy=busy[1],
        large_requests=requests[0],
        small_requests=requests[1],
        speedup=theirs / mine,
    )
