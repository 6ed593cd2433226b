"""What the relay server itself costs, over mock engines shaped like a large and a small GPU model.

    python benchmarks/serving.py one           # one stream against the engines' own time
    python benchmarks/serving.py streams 64    # delay per token and CPU, against direct reading
    python benchmarks/serving.py levels        # the most streams within 20 ms
    python benchmarks/serving.py handoffs      # CPU and bytes of a hand-off, short and long prompts

The relay runs on one core; mocks and client share the other. Both mocks play the shipped trace
``long``; the large one takes 40 ms a token and 0.3 ms per uncached prompt token, the small one
6.5 ms and 0.05 ms. The ceiling counts the trace's decoding alone. ``relaygen bench`` measures the
relay without its server. Results are printed and appended to a file as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from _processes import Server, server
from _streams import Truth, direct_delays, read_all, relay_delays, relayed, summary

from relaygen._types import ROLES, Role
from relaygen.bench import Figures, Shape, played
from relaygen.bench._measure import ideal_seconds
from relaygen.bench._mocks import SHAPES
from relaygen.mock import load_trace, own_time

PROFILE = "qwen3-32b+1.7b"
RELAY_CORE, OTHER_CORE = 0, 1
LARGE_PORT, SMALL_PORT, DIRECT_PORT, RELAY_PORT = 18101, 18102, 18103, 18104
QUESTION = "How many tokens does it take?"
LIMIT_MS = 20.0
FAST = Shape(0.5)


@dataclass(frozen=True)
class Rig:
    """Everything that runs."""

    large: Server
    small: Server
    relay: Server


@contextmanager
def rig(trace: str, logs: Path, *, fast: bool = False) -> Iterator[Rig]:
    """Two mocks and the relay."""
    shapes = dict.fromkeys(ROLES, FAST) if fast else SHAPES

    def mock(role: Role, port: int) -> Any:
        shape = shapes[role]
        arguments = ["mock-engine", "--trace", trace, "--kv-tokens", "4000000"]
        arguments += ["--token-ms", f"{shape.token_ms}", "--prefill-ms", f"{shape.prefill_ms}"]
        arguments += ["--context", "131072"]
        return server(arguments, port=port, core=OTHER_CORE, log=logs / f"{role}.log")

    with mock("large", LARGE_PORT) as large, mock("small", SMALL_PORT) as small:
        arguments = ["serve", "--large", large.url, "--small", small.url, "--profile", PROFILE]
        arguments += ["--max-concurrent", "512", "--pause", "off"]
        with server(arguments, port=RELAY_PORT, core=RELAY_CORE, log=logs / "relay.log") as relay:
            yield Rig(large, small, relay)


def body(model: str = "relaygen", question: str = QUESTION) -> dict[str, Any]:
    """A streamed chat in which every chunk says who wrote it."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 8192,
        "relay": {"annotate": True},
    }


def log_of(mock: Server) -> list[dict[str, Any]]:
    """The mock's requests since they were last forgotten."""
    return list(httpx.get(f"{mock.url}/mock/log", timeout=60).json())


def forget(each: Rig) -> None:
    """Empty the mocks' logs."""
    for mock in (each.large, each.small):
        httpx.delete(f"{mock.url}/mock/log")


def chat(each: Rig) -> str:
    """The relay's chat route."""
    return f"{each.relay.url}/v1/chat/completions"


def one(each: Rig, truth: Truth, runs: int, best: float) -> dict[str, Any]:
    """Wall time against the engines' own time, one stream at a time."""
    ratios, walls = [], []
    shares: dict[str, Any] = {}
    asyncio.run(read_all(chat(each), body("relaygen@large"), 1, 0))  # connections, tables
    for number in range(runs):
        forget(each)
        question = f"{QUESTION} Run {number}."
        (reading,) = asyncio.run(read_all(chat(each), body(question=question), 1, 0))
        reply = relayed(reading)
        assert reply.text == truth.shown, "the text differs from the trace"
        kept = {role: reply.relay["tokens"][role] for role in ("large", "small")}
        own = own_time(log_of(each.large), kept["large"]) + own_time(
            log_of(each.small), kept["small"]
        )
        wall = reading.ended - reading.started
        ratios.append(wall / own)
        walls.append(wall)
        shares = {**kept, "handoffs": reply.relay["handoffs"], "own_s": own}
    return {
        "measure": "one stream",
        "runs": runs,
        "wall_s": statistics.median(walls),
        "wall_over_own": statistics.median(ratios),
        "share_of_ceiling": best / statistics.median(walls),
        "all": [round(ratio, 4) for ratio in ratios],
        **shares,
    }


def streams(each: Rig, truth: Truth, count: int, spread: float, best: float) -> dict[str, Any]:
    """Delay per token, CPU and memory at a number of streams."""
    forget(each)
    cpu, begun = each.relay.cpu_seconds(), time.monotonic()
    readings = asyncio.run(read_all(chat(each), body(), count, spread))
    cpu, took = each.relay.cpu_seconds() - cpu, time.monotonic() - begun
    replies = [relayed(reading) for reading in readings]
    walls = [reading.ended - reading.started for reading in readings]
    logs: dict[str, dict[str, list[dict[str, Any]]]] = {"large": {}, "small": {}}
    for role, mock in (("large", each.large), ("small", each.small)):
        for entry in log_of(mock):
            logs[role].setdefault(entry["session"], []).append(entry)
    delays: list[float] = []
    for reply in replies:
        mine = {role: logs[role].get(reply.session, []) for role in logs}
        delays += relay_delays(reply, truth, mine)
    tokens = sum(reply.usage.get("completion_tokens", 0) for reply in replies)
    discarded = sum(reply.relay["tokens"]["discarded"] for reply in replies)
    return {
        "measure": "relayed streams",
        "streams": count,
        "whole": sum(reply.text == truth.shown for reply in replies),
        "errors": sum(len(r.errors) for r in replies) + sum(r.status != 200 for r in readings),
        "tokens_per_s": tokens / took,
        "share_of_ceiling": best / statistics.median(walls),
        "share_of_ceiling_slowest": best / max(walls),
        "chunks_per_token": sum(len(reply.ends) for reply in replies) / max(1, tokens),
        "relay_cpu_us_per_token": 1e6 * cpu / max(1, tokens),
        "relay_cpu_share": cpu / took,
        "relay_peak_mb": each.relay.peak_mb(),
        "discarded": discarded,
        **summary(delays),
    }


def direct(trace: str, logs: Path, count: int, spread: float, token_ms: float) -> dict[str, Any]:
    """The same client reading a mock without a relay, at the same rate."""
    arguments = ["mock-engine", "--trace", trace, "--token-ms", f"{token_ms:.3f}"]
    arguments += ["--kv-tokens", "4000000"]
    asked = {**body("mock"), "return_token_ids": True}
    with server(arguments, port=DIRECT_PORT, core=OTHER_CORE, log=logs / "direct.log") as mock:
        begun = time.monotonic()
        url = f"{mock.url}/v1/chat/completions"
        readings = asyncio.run(read_all(url, asked, count, spread))
        took = time.monotonic() - begun
    delays = [delay for reading in readings for delay in direct_delays(reading)]
    return {
        "measure": "direct streams",
        "streams": count,
        "tokens_per_s": len(delays) / took,
        **summary(delays),
    }


def compared(
    each: Rig, truth: Truth, trace: str, logs: Path, count: int, best: float
) -> list[dict[str, Any]]:
    """Relayed and direct reading at the same number of streams and the same rate."""
    spread = 3.0
    through = streams(each, truth, count, spread, best)
    rate = through["tokens_per_s"] / count
    beside = direct(trace, logs, count, spread, 1000.0 / rate)
    through["p99_added_ms"] = through["p99_ms"] - beside["p99_ms"]
    return [through, beside]


def handoffs(each: Rig, runs: int) -> list[dict[str, Any]]:
    """CPU of a hand-off: a relayed text against the large model alone, at two prompt lengths."""
    found = []
    for ids in (1_000, 32_000):
        question = "word " * (ids // 5)  # the mock's tokenizer needs a byte each for these
        cost: dict[str, list[float]] = {"relaygen": [], "relaygen@large": []}
        changes, sent = 0, 0
        for model in (*cost, *cost):  # the first round warms up
            for _ in range(runs):
                forget(each)
                cpu = each.relay.cpu_seconds()
                (reading,) = asyncio.run(read_all(chat(each), body(model, question), 1, 0))
                cost[model].append(each.relay.cpu_seconds() - cpu)
                reply = relayed(reading)
                if model == "relaygen":
                    changes = reply.relay["handoffs"]
                    prompt = reply.usage["prompt_tokens"]
                    entries = [e for m in (each.large, each.small) for e in log_of(m)]
                    sent = sum(e["received_bytes"] for e in entries)
        both = {model: statistics.median(times[runs:]) for model, times in cost.items()}
        found.append(
            {
                "measure": "hand-off",
                "prompt_tokens": prompt,
                "handoffs": changes,
                "cpu_ms": 1000 * (both["relaygen"] - both["relaygen@large"]) / changes,
                "bytes": sent // (changes + 1),
                "cpu_s": {model: round(seconds, 3) for model, seconds in both.items()},
            }
        )
    return found


def main() -> None:
    """The chosen measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("one", "streams", "levels", "handoffs"))
    parser.add_argument("count", type=int, nargs="?", default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--trace", default="long")
    parser.add_argument("--out", type=Path, default=Path("serving.jsonl"))
    given = parser.parse_args()
    truth = Truth.of([token.decode() for token in load_trace(given.trace).tokens])
    best = ideal_seconds(Figures.of(played(load_trace(given.trace))), SHAPES)
    os.sched_setaffinity(0, {OTHER_CORE})
    logs = Path(tempfile.mkdtemp(prefix="relaygen-bench-"))
    with rig(given.trace, logs, fast=given.what == "handoffs") as each:
        if given.what == "one":
            found = [one(each, truth, given.runs, best)]
        elif given.what == "streams":
            found = compared(each, truth, given.trace, logs, given.count, best)
        elif given.what == "handoffs":
            found = handoffs(each, given.runs)
        else:
            found = []
            for count in (128, 192, 256):
                found.append(streams(each, truth, count, 3.0, best))
                print(json.dumps(found[-1]), flush=True)
                if found[-1]["p99_ms"] > LIMIT_MS:
                    break
    for record in found:
        print(json.dumps(record, indent=1))
    with given.out.open("a") as sink:
        sink.writelines(json.dumps(record) + "\n" for record in found)


if __name__ == "__main__":
    main()
