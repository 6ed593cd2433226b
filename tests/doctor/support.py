"""Shared by the doctor's tests: pairs to examine, and engines with a cache of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from relaygen import Relay
from relaygen._checks import Finding
from relaygen._types import Delta, SegmentRequest
from relaygen.doctor import Examination, Report
from relaygen.engines.scripted import ScriptedEngine
from relaygen.mock import MockConfig, serving

TAGS = "qwen3-32b+1.7b"
LARGE: dict[str, Any] = {"trace": "short", "token_ms": 5.0, "prefill_ms": 0.1}
SMALL: dict[str, Any] = {"trace": "short", "token_ms": 0.5, "prefill_ms": 0.02}


def examined(relay: Relay, *, quick: bool = False, until: str = "") -> Report:
    """The whole report; with `until`, as far as the finding of this check."""

    async def run() -> Report:
        examination = Examination(relay, quick=quick)
        async with aclosing(examination.steps()) as steps:
            async for _ in steps:
                if until and any(each.check == until for each in examination.report.findings):
                    break
        await examination.aclose()
        return examination.report

    return asyncio.run(run())


def mocked(
    large: dict[str, Any] | None = None,
    small: dict[str, Any] | None = None,
    *,
    profile: str = TAGS,
    policy: str = "relay",
    **options: Any,
) -> Report:
    """Of two mock engines; what is given goes on top of `LARGE` and `SMALL`."""
    configs = MockConfig(**{**LARGE, **(large or {})}), MockConfig(**{**SMALL, **(small or {})})
    with serving(configs[0]) as one, serving(configs[1]) as two:
        return examined(Relay(one, two, profile=profile, policy=policy), **options)


def found(report: Report, check: str, level: str = "") -> list[Finding]:
    return [each for each in report.findings if each.check == check and level in ("", each.level)]


class Caching(ScriptedEngine):
    """Writes for ever, and computes what its last text does not begin with.

    Args:
        rigid: it cannot forget a token, and then computes everything again.
        shown: whether it tells what it computed.
    """

    def __init__(self, *, rigid: bool = False, shown: bool = True, **options: Any) -> None:
        super().__init__(**{"free": lambda text: " yes", **options})
        self._rigid, self._shown = rigid, shown
        self._held: tuple[int, ...] = ()

    def _computing(self, tokens: int) -> None:
        """So many tokens of a prompt are read."""

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        ids = request.ids
        most = min(len(ids) - 1, len(self._held))
        kept = next((n for n in range(most) if ids[n] != self._held[n]), most)
        if self._rigid and kept < len(self._held):
            kept = 0
        self._computing(len(ids) - kept)
        written: list[int] = []
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                written += [piece.id for piece in delta.pieces if piece.id is not None]
                counts = (kept, len(ids) - kept) if self._shown else (None, None)
                yield replace(delta, cached=counts[0], evaluated=counts[1])
        self._held = ids + tuple(written[:-1])


@dataclass
class Clock:
    """Time that only passes where an engine says so."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now


class Timed(Caching):
    """What it takes, it takes by that clock; `read_ms` for each token that is computed."""

    def __init__(self, clock: Clock, *, read_ms: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self._clock, self._read_ms = clock, read_ms

    async def _sleep(self, ms: float) -> None:
        self._clock.now += ms / 1000.0

    def _computing(self, tokens: int) -> None:
        self._clock.now += tokens * self._read_ms / 1000.0
