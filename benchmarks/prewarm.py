"""Whether it pays that the small engine reads ahead: wall time and what it computes, by mode.

    python benchmarks/prewarm.py [--tokens N] [--runs N] [--prompts N …] [--prefill-ms X]
    python benchmarks/prewarm.py --live [--runs N]

Two mock engines in the shapes of the serving benchmark, each on a device of its own: what one does
never slows the other, so this is the best case. Hand-offs are paced: a few and many per 1,000
tokens, 70 % of them by the large model. The three modes of one run go at the same time, with
prompts of their own, so that they meet the same machine; runs follow one another.

What is asked of the machine: the mock engines sleep and compute nothing, so anything may run
beside, but a core should be free most of the time, since each late wake-up is in the wall time.
With ``--live`` the embedded pair shares the cores, so the machine must be idle, and the modes go
one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import aiohttp
from rich.console import Console
from rich.table import Table

from relaygen import Generation, Limits, Relay, Sampling
from relaygen._prewarm import PrewarmMode
from relaygen._types import ROLES, Role
from relaygen.bench import LARGE, SMALL, Shape, mocks, shortened
from relaygen.bench._figures import PROFILE
from relaygen.bench._paced import PacedPolicy
from relaygen.engines.vllm import VllmEngine
from relaygen.mock import load_trace

MODES: tuple[PrewarmMode, ...] = get_args(PrewarmMode)
PROMPTS = (100, 2_000, 16_000)
RATES = {"few": 20.0, "many": 100.0}
"""Hand-offs per 1,000 tokens."""
UTILIZATION = 0.7
WORD = "word "
NAMED = {"X-Session-ID": "{session}"}
LIVE_SENTENCES = 60
"""Of the live question's preface: several hundred tokens."""


class Bench:
    """Two mock engines and a relay over them.

    Args:
        relay: over both.
        client: for the mock engines' logs.
        small: address of the small one.
        text: what every generation must write.
    """

    def __init__(self, relay: Relay, client: aiohttp.ClientSession, small: str, text: str) -> None:
        self._relay, self._client, self._small, self._text = relay, client, small, text
        self._numbers = itertools.count(1)

    async def once(
        self, mode: PrewarmMode, prompt: int, policy: PacedPolicy
    ) -> tuple[Generation, float]:
        """One generation, and the tokens that the small engine computed for it."""
        head = f"{next(self._numbers)}. How many tokens does it take? "  # never in the cache
        question = head + WORD * max(0, (prompt - len(head)) // len(WORD))
        limits = Limits(max_tokens=1 << 16)
        task = self._relay.task(question, prewarm=mode, policy=policy, limits=limits, seed=0)
        key = uuid.uuid4().hex
        generating = self._relay.generating(task, key=key)
        async for _ in generating.events():
            pass
        found = generating.snapshot()
        assert found.text == self._text, "the text differs from the trace"
        async with self._client.get(f"{self._small}/mock/log?session={key}") as response:
            return found, computed(await response.json())


def computed(entries: Iterable[Mapping[str, Any]]) -> float:
    """Tokens that a mock engine has read or written; a request may end before its first."""
    total = 0.0
    for entry in entries:
        unread = entry["prompt_tokens"] - entry["cached_tokens"]
        if not entry["tokens"] and entry["prefill_s"]:
            unread *= min(1.0, (entry["ended"] - entry["started"]) / entry["prefill_s"])
        total += unread + entry["tokens"]
    return total


async def mocked(
    tokens: int, runs: int, prefill_ms: float, prompts: Sequence[int]
) -> list[dict[str, Any]]:
    """Every prompt, rate and mode."""
    trace = shortened(load_trace("long"), tokens)
    shapes: dict[Role, Shape] = {"large": LARGE, "small": replace(SMALL, prefill_ms=prefill_ms)}
    rows: list[dict[str, Any]] = []
    async with mocks(trace, shapes) as urls, aiohttp.ClientSession() as client:
        large, small = (VllmEngine(urls[role], headers=NAMED, role=role) for role in ROLES)
        async with Relay(large, small, profile=PROFILE) as relay:
            bench = Bench(relay, client, urls["small"], trace.text)
            await bench.once("off", 0, PacedPolicy(10, 10))  # connections, tables
            for prompt, (rate, pace) in itertools.product(prompts, RATES.items()):
                policy = PacedPolicy.at(pace, UTILIZATION)
                passed = [
                    await asyncio.gather(*(bench.once(mode, prompt, policy) for mode in MODES))
                    for _ in range(runs)
                ]
                about = {"prompt": prompt, "rate": rate, "prefill_ms": prefill_ms}
                rows += compared(passed, about)
    return rows


def live(runs: int) -> list[dict[str, Any]]:
    """The embedded pair, one generation at a time; greedy, so that lengths agree."""
    numbers = itertools.count(1)

    def once(relay: Relay, mode: PrewarmMode) -> tuple[Generation, float]:
        rest = "There are many numbers in this question, and few of them matter. " * LIVE_SENTENCES
        question = f"{next(numbers)}. {rest}What is 17 times 23? Explain each step."
        limits, sampling = Limits(max_tokens=200), Sampling(0.0)
        found = relay.generate(question, prewarm=mode, limits=limits, sampling=sampling, seed=0)
        usage = found.usage.small
        return found, float((usage.evaluated or 0) + usage.tokens + usage.discarded)

    with Relay() as relay:
        once(relay, "off")
        passed = [[once(relay, mode) for mode in MODES] for _ in range(runs)]
    return compared(passed, {"prompt": passed[0][0][0].usage.prompt_tokens, "rate": "live"})


def compared(
    passed: Sequence[Sequence[tuple[Generation, float]]], about: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One row per mode; a ratio is that of milliseconds per token within a run."""
    rows = []
    for place, mode in enumerate(MODES):
        mine = [run[place][0].usage for run in passed]
        paired = zip(mine, (run[0][0].usage for run in passed), strict=True)
        rows.append(
            {
                **about,
                "mode": mode,
                "runs": len(passed),
                "handoffs": statistics.median(usage.handoffs for usage in mine),
                "wall_s": statistics.median(usage.seconds for usage in mine),
                "over_off": statistics.median(
                    (usage.ms_per_token or 0.0) / (off.ms_per_token or 1.0) for usage, off in paired
                ),
                "small_computed": statistics.median(run[place][1] for run in passed),
                "prewarms": statistics.median(usage.small.prewarms for usage in mine),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table."""
    table = Table(box=None, pad_edge=False)
    headings = ("prompt", "hand-offs", "mode", "seconds", "/ off", "small computed", "ahead")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place == 2 else "right")
    for each in rows:
        table.add_row(
            f"{each['prompt']:,}",
            f"{each['handoffs']:g}",
            each["mode"],
            f"{each['wall_s']:.2f}",
            f"{each['over_off']:.3f}",
            f"{each['small_computed']:,.0f}",
            f"{each['prewarms']:g}",
        )
    Console(highlight=False, width=100).print(table)


def main() -> None:
    """The table, and its rows as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tokens", type=int, default=400, help="of each text")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--prompts", type=int, nargs="+", default=PROMPTS, help="tokens, about")
    parser.add_argument("--prefill-ms", type=float, default=SMALL.prefill_ms, help="of the small")
    parser.add_argument("--live", action="store_true", help="the embedded pair instead")
    parser.add_argument("--out", type=Path, help="append the rows")
    given = parser.parse_args()
    if given.live:
        rows = live(given.runs)
    else:
        rows = asyncio.run(mocked(given.tokens, given.runs, given.prefill_ms, given.prompts))
    show(rows)
    if given.out:
        with given.out.open("a") as sink:
            sink.writelines(json.dumps(each) + "\n" for each in rows)


if __name__ == "__main__":
    main()
