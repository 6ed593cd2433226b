"""What the relay itself computes per token, per prompt and per hand-off. No model, no timing.

    python benchmarks/hot_path.py {loop,text,json,hints,connections} [--runs N]

CPU seconds of this process: medians, with the least of all runs beside. To compare two versions,
run each with ``PYTHONPATH`` at its ``src``, in turn: A B A B.

loop: the whole relay without HTTP, over the long trace: microseconds per token.
text: the detectors alone on the same text.
json: a prompt of 1k, 8k and 32k ids, made and read.
hints: a profile's texts looked up at a mock engine, once and by 16 streams at the same time.
connections: new ones per text over mock engines, and what one costs.

What is asked of the machine: CPU time moves little when others run beside; wall times (hints,
connections) need an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from relaygen import Limits, Relay
from relaygen._hints import HintIds
from relaygen._types import ROLES, Role
from relaygen.bench import Shape, mocks, shortened
from relaygen.bench._figures import PROFILE, aplayed
from relaygen.bench._paced import PacedPolicy
from relaygen.engines._pieces import ids_of
from relaygen.engines._wire import Wire
from relaygen.engines.vllm import VllmEngine
from relaygen.mock import load_trace
from relaygen.policies import RelayPolicy
from relaygen.profiles import load, make_policy
from relaygen.text.reader import Reader
from relaygen.text.repetition import RepetitionGuard

FAST: dict[Role, Shape] = {"large": Shape(2.0, 0.001), "small": Shape(1.0, 0.001)}
STREAMS = 16


def cpu(work: Callable[[], object], runs: int, per: int = 1) -> str:
    """Microseconds, median and least."""
    spent = []
    for _ in range(runs):
        began = time.process_time()
        work()
        spent.append(1e6 * (time.process_time() - began) / per)
    return f"{statistics.median(spent):.2f} us (least {min(spent):.2f})"


async def wall(work: Callable[[], Awaitable[object]], runs: int) -> str:
    """Milliseconds, median and least."""
    spent = []
    for _ in range(runs):
        began = time.perf_counter()
        await work()
        spent.append(1e3 * (time.perf_counter() - began))
    return f"{statistics.median(spent):.2f} ms (least {min(spent):.2f})"


def loop(runs: int) -> None:
    trace = load_trace("long")
    for name in ("relay", "large"):
        policy = make_policy(name, load(PROFILE))
        told = cpu(lambda: asyncio.run(aplayed(trace, policy)), runs, len(trace.tokens))  # noqa: B023
        print(f"{name}: {told} per token", flush=True)


def text(runs: int) -> None:
    tokens = [token.decode(errors="replace") for token in load_trace("long").tokens]
    policy = make_policy("relay", load(PROFILE))
    assert isinstance(policy, RelayPolicy)

    def read() -> None:
        reader = Reader(policy.cues)
        for token in tokens:
            reader.feed(token)

    def guard() -> None:
        watching = RepetitionGuard()
        for token in tokens:
            watching.feed(token)

    print("reader:", cpu(read, runs, len(tokens)), "per token")
    print("repetition guard:", cpu(guard, runs, len(tokens)), "per token")


def prompts(runs: int) -> None:
    draw = random.Random(1)
    for size in (1_000, 8_000, 32_000):
        ids = tuple(draw.randrange(150_000) for _ in range(size))
        wire, sent, answer = Wire("http://127.0.0.1:1"), {"prompt": ids}, {"tokens": list(ids)}
        raw = json.dumps(answer)
        growing = [ids + tuple(range(64 * step)) for step in range(runs + 1)]
        wire._written("grown", ids)
        print(f"{size} ids")
        print("  whole:", cpu(lambda: json.dumps(sent).encode(), runs))  # noqa: B023
        print("  64 more:", cpu(lambda: wire._written("grown", growing.pop(0)), runs))  # noqa: B023
        print("  read:", cpu(lambda: json.loads(raw), runs))  # noqa: B023
        print("  checked:", cpu(lambda: ids_of(answer, wire), runs))  # noqa: B023


@asynccontextmanager
async def served() -> AsyncIterator[dict[Role, str]]:
    async with mocks(shortened(load_trace("long"), 600), FAST) as urls:
        yield urls


async def hints(runs: int) -> None:
    policy = make_policy("relay", load(PROFILE))
    assert isinstance(policy, RelayPolicy)
    async with served() as urls:
        for streams in (1, STREAMS):
            spent = []
            for _ in range(runs):
                engine = VllmEngine(urls["large"])
                await engine.info()
                table = HintIds(engine)
                began = time.perf_counter()
                await asyncio.gather(*(table.ids(policy.hints) for _ in range(streams)))
                spent.append(1e3 * (time.perf_counter() - began))
                await engine.aclose()
            told = f"{statistics.median(spent):.0f} ms (least {min(spent):.0f})"
            print(f"{len(policy.hints)} texts, {streams} streams: {told}", flush=True)


async def connections(runs: int) -> None:
    made = 0

    async def counted(*_: Any) -> None:
        nonlocal made
        made += 1

    watch = aiohttp.TraceConfig()
    watch.on_connection_create_end.append(counted)
    usual = aiohttp.ClientSession.__init__

    def traced(self: aiohttp.ClientSession, *args: Any, **more: Any) -> None:
        usual(self, *args, trace_configs=[watch], **more)

    paced = PacedPolicy.at(100.0, 0.7)
    async with served() as urls:
        large, small = (VllmEngine(urls[role], role=role) for role in ROLES)
        aiohttp.ClientSession.__init__ = traced  # type: ignore[method-assign]
        async with Relay(large, small, profile=PROFILE) as relay:
            for name, policy, hinted in (
                ("relay, cold", "relay", True),
                ("relay", "relay", True),
                ("relay without hints", "relay", False),
                ("paced", paced, True),
                ("large", "large", True),
            ):
                made, limits = 0, Limits(max_tokens=1 << 16)
                usage = (
                    await relay.agenerate(name, policy=policy, limits=limits, seed=0, hints=hinted)
                ).usage
                print(f"{name}: {made} new connections, {usage.handoffs} hand-offs", flush=True)
        aiohttp.ClientSession.__init__ = usual  # type: ignore[method-assign]
        for name, keep in (("kept", 3.0), ("new", 0.0)) * 2:
            wire, asked = Wire(urls["large"], keep=keep), {"prompt": "x"}
            call = lambda: wire.post("/tokenize", asked)  # noqa: B023, E731
            await wall(call, 20)
            began, count = time.process_time(), 20 * runs
            told = await wall(call, count)
            spent = 1e6 * (time.process_time() - began) / count
            print(f"a call over a {name} connection: {told}, CPU {spent:.0f} us", flush=True)
            await wire.aclose()


def main() -> None:
    """The chosen measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("loop", "text", "json", "hints", "connections"))
    parser.add_argument("--runs", type=int, default=11)
    given = parser.parse_args()
    if given.what in ("hints", "connections"):
        asyncio.run((hints if given.what == "hints" else connections)(given.runs))
    else:
        {"loop": loop, "text": text, "json": prompts}[given.what](given.runs)


if __name__ == "__main__":
    main()
