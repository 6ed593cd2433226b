"""The relay over two mock engines: what it takes beyond what the engines take themselves.

The relay runs in this process, each mock engine in one of its own. The ceiling is computed from the
trace and the decode costs alone: with n and m tokens by the large and the small model, as the real
detectors share the trace, and L and S milliseconds per token, a relay at the ceiling takes
n L + m S. Prefill, catch-up, requests and everything the relay does keep it below.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from .._api import Relay
from .._errors import EngineError
from .._progress import Clock, Progress, Step, silent
from .._results import Generation
from .._task import Limits
from .._types import ROLES, Role
from ..costs import Costs, ceiling
from ..engines.vllm import VllmEngine
from ..mock import Trace, own_time
from ..policies import LargeOnly, Policy
from ._figures import PROFILE, Figures, aplayed
from ._mocks import SHAPES, Shape, mocks
from ._points import Point

SPREAD_S = 3.0
"""Seconds within which many streams begin, so that they do not march in step."""
_EACH_S = 0.05
_TIMEOUT_S = 600.0
_WORD = "word "
_NAMED = {"X-Session-ID": "{session}"}
"""By which the mock engines' logs tell the streams apart."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One point. Where it says so, the median over the streams.

    Attributes:
        sweep, setting: which point.
        streams, context: see `Point`; the context is the prompt that was really sent, in tokens.
        whole: streams whose text was the trace, byte by byte.
        tokens, large, small, handoffs: of one stream.
        wall_s, wall_max_s: seconds from the request to the end, median and longest.
        over_own: wall over the engines' own time (their decoding and prefill), median.
        ceiling: speed-up over the large model alone if nothing but decoding took time.
        share, share_min: of the ceiling that was reached, median and of the slowest stream.
        speedup: wall seconds of the large model alone, measured likewise, over the relay's.
        cpu_us_per_token: CPU of the relay's process, microseconds, hand-offs included.
        cpu_ms_per_handoff: what a hand-off adds to the large model alone; None without any.
        discarded: tokens of one stream that were received and not kept, mean.
        requests: to both engines for one stream, mean.
        sent_bytes: of all bodies of one stream, mean.
    """

    sweep: str
    setting: str
    streams: int
    context: int
    whole: int
    tokens: int
    large: int
    small: int
    handoffs: int
    wall_s: float
    wall_max_s: float
    over_own: float
    ceiling: float
    share: float
    share_min: float
    speedup: float
    cpu_us_per_token: float
    cpu_ms_per_handoff: float | None
    discarded: float
    requests: float
    sent_bytes: float


@dataclass(frozen=True, slots=True)
class _Passed:
    """Some streams at a time, all over."""

    generations: tuple[Generation, ...]
    keys: tuple[str, ...]
    cpu_s: float

    @property
    def walls(self) -> list[float]:
        return [generation.usage.seconds for generation in self.generations]

    @property
    def cpu_per_token(self) -> float:
        return self.cpu_s / sum(g.usage.completion_tokens for g in self.generations)


async def measure(
    trace: Trace,
    wanted: Sequence[Point],
    *,
    shapes: Mapping[Role, Shape] = SHAPES,
    progress: Progress = silent,
) -> AsyncGenerator[Measured, None]:
    """Each point as soon as it is measured.

    Args:
        trace: what both models write.
        wanted: the points.
        shapes: how fast the models are.
        progress: is told before each pass, with an estimate of the time left.

    Raises:
        MissingExtraError: the extra ``[serve]`` is not installed.
        EngineError: a mock engine failed or does not start.
    """
    alone = sorted({(point.streams, point.context) for point in wanted})
    seconds = {key: _seconds(trace, key[1], shapes["large"]) for key in alone}
    warm = _seconds(trace, 0, shapes["large"])
    total = warm + sum(seconds.values()) + sum(seconds[p.streams, p.context] for p in wanted)
    clock, count = Clock(total), itertools.count(1)
    passes = 1 + len(alone) + len(wanted)

    def told(done: float) -> None:
        progress(Step("bench", next(count), passes, clock.left(done)))

    progress(Step("bench", 0, passes))
    async with _opened(trace, shapes) as rig:
        # Connections, and each engine's tables of ids and hints, which are asked for once.
        await asyncio.gather(*(rig.passed(1, 0, policy) for policy in ("large", "small", None)))
        told(warm)
        baseline: dict[tuple[int, int], _Passed] = {}
        for point in wanted:
            key = point.streams, point.context
            if key not in baseline:
                baseline[key] = await rig.passed(*key, LargeOnly())
                await rig.logs()
                told(seconds[key])
            passed = await rig.passed(*key, point.policy)
            told(seconds[key])
            figures = Figures.of(await aplayed(trace, point.policy))
            yield _measured(point, trace, figures, shapes, passed, baseline[key], await rig.logs())


def _seconds(trace: Trace, context: int, shape: Shape) -> float:
    """About what a pass takes, for the time left."""
    return (len(trace.tokens) * shape.token_ms + context * shape.prefill_ms) / 1000


class _Rig:
    """A relay over two mock engines."""

    def __init__(self, relay: Relay, urls: Mapping[Role, str]) -> None:
        self._relay, self._urls = relay, urls
        self._asked = itertools.count(1)

    async def passed(self, streams: int, context: int, policy: Policy | str | None) -> _Passed:
        """So many generations at a time, each with a question of its own."""
        spread = min(SPREAD_S, _EACH_S * streams)
        keys = tuple(uuid.uuid4().hex for _ in range(streams))

        async def one(place: int, key: str) -> Generation:
            await asyncio.sleep(spread * place / streams)
            task = self._relay.task(
                self._question(context), policy=policy, limits=Limits(max_tokens=1 << 16), seed=0
            )
            return await self._relay.generating(task, key=key).whole()

        cpu = time.process_time()
        done = await asyncio.gather(*(one(place, key) for place, key in enumerate(keys)))
        return _Passed(tuple(done), keys, time.process_time() - cpu)

    def _question(self, context: int) -> str:
        """A new one each time, or the prefix cache would know it; a word has a token per letter."""
        head = f"{next(self._asked)}. How many tokens does it take? "
        return head + _WORD * max(0, (context - len(head)) // len(_WORD))

    async def logs(self) -> dict[Role, dict[str, list[dict[str, Any]]]]:
        """By role and session, the requests since the last call."""
        import aiohttp

        found: dict[Role, dict[str, list[dict[str, Any]]]] = {role: {} for role in ROLES}
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            for role, url in self._urls.items():
                async with client.get(f"{url}/mock/log") as response:
                    for entry in await response.json():
                        found[role].setdefault(entry["session"], []).append(entry)
                async with client.delete(f"{url}/mock/log"):
                    pass
        return found


@asynccontextmanager
async def _opened(trace: Trace, shapes: Mapping[Role, Shape]) -> AsyncIterator[_Rig]:
    async with mocks(trace, shapes) as urls:
        large, small = (VllmEngine(urls[role], headers=_NAMED, role=role) for role in ROLES)
        async with Relay(large, small, profile=PROFILE) as relay:
            yield _Rig(relay, urls)


def _measured(
    point: Point,
    trace: Trace,
    figures: Figures,
    shapes: Mapping[Role, Shape],
    passed: _Passed,
    alone: _Passed,
    logs: Mapping[Role, Mapping[str, Sequence[Mapping[str, Any]]]],
) -> Measured:
    usages = [generation.usage for generation in passed.generations]
    if any(usage.fallbacks for usage in usages):
        raise EngineError("a mock engine failed", hint="is the machine out of memory or files?")
    entries = [logs[role].get(key, []) for role in ROLES for key in passed.keys]
    own = [
        sum(own_time(logs[role].get(key, []), usage.of(role).tokens) for role in ROLES)
        for key, usage in zip(passed.keys, usages, strict=True)
    ]
    walls, count = passed.walls, len(usages)
    best = ideal_seconds(figures, shapes)
    added = passed.cpu_per_token - alone.cpu_per_token
    return Measured(
        sweep=point.sweep,
        setting=point.name,
        streams=count,
        context=usages[0].prompt_tokens,
        whole=sum(generation.text == trace.text for generation in passed.generations),
        tokens=figures.tokens,
        large=figures.large,
        small=figures.small,
        handoffs=figures.handoffs,
        wall_s=statistics.median(walls),
        wall_max_s=max(walls),
        over_own=statistics.median(w / o for w, o in zip(walls, own, strict=True)),
        ceiling=ideal_speedup(figures, shapes),
        share=best / statistics.median(walls),
        share_min=best / max(walls),
        speedup=statistics.median(alone.walls) / statistics.median(walls),
        cpu_us_per_token=1e6 * passed.cpu_per_token,
        cpu_ms_per_handoff=1e3 * added * figures.tokens / figures.handoffs
        if figures.handoffs
        else None,
        discarded=sum(usage.discarded_tokens for usage in usages) / count,
        requests=sum(len(those) for those in entries) / count,
        sent_bytes=sum(int(e["received_bytes"]) for those in entries for e in those) / count,
    )


def ideal_seconds(figures: Figures, shapes: Mapping[Role, Shape]) -> float:
    """What a trace takes at the ceiling: nothing but the decoding of its tokens."""
    large, small = shapes["large"].token_ms, shapes["small"].token_ms
    return (figures.large * large + figures.small * small) / 1000


def ideal_speedup(figures: Figures, shapes: Mapping[Role, Shape]) -> float:
    """The ceiling, as a speed-up over the large model alone."""
    return ceiling(Costs(shapes["large"].token_ms, shapes["small"].token_ms), figures.utilization)


def measured_dict(measured: Measured) -> dict[str, Any]:
    """For JSON."""
    return {"kind": "mock", **asdict(measured)}
