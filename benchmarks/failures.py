"""A broken small engine never breaks a text: planted failures, byte by byte against the truth.

    python benchmarks/failures.py --runs 20 [--out FILE]

Two mock engines play one trace over HTTP, the relay runs over both, and the small one fails at a
random token inside one of its segments: reset, stall beyond the timeout, garbage bytes, an error
event, an early end without a finish reason. Apart from these it answers 500 at a segment's start,
and runs ten times slower. The event log says where it failed; the text must equal the trace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from relaygen import FellBack, Generation, Relay
from relaygen._gate import Breaker
from relaygen.engines.vllm import VllmEngine
from relaygen.mock import MockConfig, load_trace, serving

PROFILE = "qwen3-32b+1.7b"
INSIDE = ("reset", "stall", "garbage", "error", "end")
STALL_S = 0.4


@dataclass(frozen=True)
class Place:
    """A segment of the small engine: its request's number in a generation, and its tokens."""

    request: int
    tokens: int


class Bench:
    """Two mocks and a relay over them."""

    def __init__(self, large: str, small: str, truth: str) -> None:
        self.small = small
        self.truth = truth
        self.relay = Relay(
            large=VllmEngine(large, role="large"),
            small=VllmEngine(small, timeout=STALL_S, first_timeout=STALL_S, role="small"),
            profile=PROFILE,
        )

    async def generate(self) -> tuple[Generation, list[FellBack], float]:
        """One generation with everything that fell back in it."""
        task = self.relay.task("How many?", gates=(Breaker(failures=3, cooldown=0.2),), seed=1)
        generating = self.relay.generating(task)
        started = time.perf_counter()
        fallen = [e async for e in generating.events() if isinstance(e, FellBack)]
        return generating.snapshot(), fallen, time.perf_counter() - started

    async def log(self) -> list[dict[str, Any]]:
        """The small engine's requests so far."""
        async with httpx.AsyncClient() as client:
            return list((await client.get(f"{self.small}/mock/log")).json())

    async def plan(self, **failure: Any) -> None:
        """Plant a failure in the small engine."""
        async with httpx.AsyncClient() as client:
            (await client.post(f"{self.small}/mock/failures", json=failure)).raise_for_status()

    async def places(self) -> list[Place]:
        """The small engine's segments in an undisturbed generation."""
        before = len(await self.log())
        generation, fallen, _ = await self.generate()
        assert generation.text == self.truth
        assert not fallen
        entries = (await self.log())[before:]
        return [Place(n, entry["tokens"]) for n, entry in enumerate(entries)]


async def one(bench: Bench, kind: str, place: Place, token: int) -> dict[str, Any]:
    """Plant one failure, generate, and look at what the logs say of it."""
    entries = await bench.log()
    number = entries[-1]["number"] + 1 + place.request
    await bench.plan(kind=kind, token=token, request=number)
    generation, fallen, seconds = await bench.generate()
    entry = next(e for e in await bench.log() if e["number"] == number)
    return {
        "kind": kind,
        "segment": place.request,
        "token": token,
        "seen_by_engine": entry["failure"],
        "tokens_before": entry["tokens"],
        "fell_back_at": [event.token for event in fallen],
        "errors": [event.error for event in fallen],
        "whole": generation.text == bench.truth,
        "seconds": round(seconds, 3),
    }


async def measured(runs: int, seed: int) -> list[dict[str, Any]]:
    """All kinds, interleaved."""
    draw = random.Random(seed)
    trace = load_trace("short")
    with (
        serving(MockConfig(trace=trace, token_ms=4, prefill_ms=0.01)) as large,
        serving(MockConfig(trace=trace, token_ms=2, prefill_ms=0.01)) as small,
    ):
        bench = Bench(large, small, trace.text)
        places = await bench.places()
        within = [place for place in places if place.tokens > 2]
        print(f"{len(trace.tokens)} tokens, {len(places)} segments of the small engine")
        records = []
        for _ in range(runs):
            for kind in (*INSIDE, "http500", "slow"):
                place = draw.choice(within if kind != "http500" else places)
                token = draw.randint(1, place.tokens - 2) if kind != "http500" else 0
                records.append(await one(bench, kind, place, token))
        await bench.relay.aclose()
    return records


def report(records: list[dict[str, Any]]) -> None:
    """One line a kind; a broken text is an error."""
    print(f"{'kind':<9}{'runs':>5}{'whole':>7}{'inside a segment':>18}{'fell back':>11}")
    for kind in (*INSIDE, "http500", "slow"):
        those = [record for record in records if record["kind"] == kind]
        counts = Counter[str]()
        for record in those:
            counts["whole"] += record["whole"]
            counts["inside"] += record["seen_by_engine"] == kind and record["tokens_before"] > 0
            counts["fell"] += bool(record["fell_back_at"])
        print(
            f"{kind:<9}{len(those):>5}{counts['whole']:>7}{counts['inside']:>18}{counts['fell']:>11}"
        )
    assert all(record["whole"] for record in records), "a text differs from its trace"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("failures.jsonl"), help="JSON lines")
    given = parser.parse_args()
    found = asyncio.run(measured(given.runs, given.seed))
    given.out.write_text("".join(json.dumps(record) + "\n" for record in found))
    report(found)
