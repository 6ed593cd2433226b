"""Event streams as a client sees them: what came when, and how late each token was."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import aiohttp

OPENING, CLOSING = "<think>\n", "</think>\n\n"
BORDER = 2
"""Tokens on either side of a hand-off that belong to it."""


@dataclass
class Reading:
    """One streamed reply; bytes are parsed afterwards, so that the client is light.

    Attributes:
        started, ended: seconds of `time.monotonic`.
        raw: arrival time and bytes of each read.
    """

    started: float
    ended: float = 0.0
    status: int = 0
    raw: list[tuple[float, bytes]] = field(default_factory=list)

    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """Arrival time and JSON of each event."""
        found: list[tuple[float, dict[str, Any]]] = []
        rest = b""
        for at, data in self.raw:
            *whole, rest = (rest + data).split(b"\n\n")
            for event in whole:
                payload = event.removeprefix(b"data: ")
                if event.startswith(b"data: ") and payload != b"[DONE]":
                    found.append((at, json.loads(payload)))
        return found


async def read(client: aiohttp.ClientSession, url: str, body: Mapping[str, Any]) -> Reading:
    """One request, read to its end."""
    reading = Reading(time.monotonic())
    async with client.post(url, json=body) as response:
        reading.status = response.status
        async for data in response.content.iter_any():
            reading.raw.append((time.monotonic(), data))
    reading.ended = time.monotonic()
    return reading


async def read_all(url: str, body: Mapping[str, Any], count: int, spread: float) -> list[Reading]:
    """`count` requests, begun at even distances within `spread` seconds."""

    async def later(number: int) -> Reading:
        await asyncio.sleep(spread * number / count)
        return await read(client, url, body)

    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as client:
        return list(await asyncio.gather(*(later(number) for number in range(count))))


def percentile(values: Sequence[float], share: float) -> float:
    """By rank; `values` need no order."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def direct_delays(reading: Reading) -> list[float]:
    """Seconds from each token's emission to its arrival, where the mock itself is read."""
    return [at - stamp for at, event in reading.events() for stamp in event.get("emitted", ())]


@dataclass
class Relayed:
    """A relayed reply.

    Attributes:
        id: of the response; the engines' session is its last part.
        text: reasoning and answer, as they were shown.
        roles: who wrote each chunk.
        ends: characters shown with and before each chunk.
        at: when each chunk arrived.
        relay: the usage chunk's ``relay`` object.
    """

    id: str = ""
    text: str = ""
    roles: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    relay: dict[str, Any] = field(default_factory=dict)
    errors: list[Any] = field(default_factory=list)

    @property
    def session(self) -> str:
        """The conversation's name at the engines."""
        return self.id.rpartition("-")[2]


def relayed(reading: Reading) -> Relayed:
    """What a client of the relay got."""
    found, parts, shown = Relayed(), [], 0
    for at, event in reading.events():
        if "error" in event:
            found.errors.append(event["error"])
            continue
        found.id = event["id"]
        found.usage = event.get("usage") or found.usage
        if event.get("usage"):
            found.relay = event.get("relay") or found.relay
        for choice in event["choices"]:
            delta = choice["delta"]
            text = delta.get("reasoning_content") or delta.get("content") or ""
            if text:
                parts.append(text)
                shown += len(text)
                found.ends.append(shown)
                found.at.append(at)
                found.roles.append((event.get("relay") or {}).get("model", ""))
    found.text = "".join(parts)
    return found


@dataclass(frozen=True)
class Truth:
    """A trace as a client should see it.

    Attributes:
        shown: its text without the markers of thinking.
        ends: for each token, the characters shown when it is complete.
    """

    shown: str
    ends: list[int]

    @classmethod
    def of(cls, tokens: Sequence[str]) -> Truth:
        """From a trace's tokens."""
        text = "".join(tokens)
        begin = len(OPENING)
        close = text.index(CLOSING)
        answer = close + len(CLOSING)

        def seen(end: int) -> int:
            return max(0, min(end, close) - begin) + max(0, end - answer)

        return cls(
            text[begin:close] + text[answer:], [seen(e) for e in accumulate(map(len, tokens))]
        )


def relay_delays(
    reply: Relayed, truth: Truth, logs: Mapping[str, Iterable[Mapping[str, Any]]]
) -> list[float]:
    """Seconds from each token's emission by its engine to its arrival, outside hand-offs.

    Args:
        reply: one relayed reply with its roles.
        truth: of the trace that both engines play.
        logs: by role, the engine's log entries of this session.
    """
    stamps = {role: _stamps(entries) for role, entries in logs.items()}
    arrived: list[tuple[str, float] | None] = []
    chunk = 0
    for end in truth.ends:
        while chunk < len(reply.ends) and reply.ends[chunk] < end:
            chunk += 1
        hidden = (
            end == 0
            or chunk == len(reply.ends)
            or (arrived and end == truth.ends[len(arrived) - 1])
        )
        arrived.append(None if hidden else (reply.roles[chunk], reply.at[chunk]))
    delays = []
    for position, each in enumerate(arrived):
        near = arrived[max(0, position - BORDER) : position + BORDER + 1]
        if each is None or any(other is None or other[0] != each[0] for other in near):
            continue
        stamp = stamps[each[0]].get(position)
        if stamp is not None:
            delays.append(each[1] - stamp)
    return delays


def _stamps(entries: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Position -> when it was last emitted; a later request is the one that was kept."""
    found: dict[int, float] = {}
    for entry in sorted(entries, key=lambda e: e["started"]):
        if entry["start"] is not None:
            found.update(enumerate(entry["emitted"], start=entry["start"]))
    return found


def summary(delays: Sequence[float]) -> dict[str, float]:
    """In milliseconds."""
    return {
        "tokens": len(delays),
        "p50_ms": 1000 * statistics.median(delays),
        "p99_ms": 1000 * percentile(delays, 0.99),
        "p999_ms": 1000 * percentile(delays, 0.999),
    }
