"""The guard (``--pause auto``) under a load that evicts the engines' prefix caches.

    python benchmarks/guard.py --runs 3 --out guard.jsonl

Two mock engines play the shipped trace ``long``; two relays, with and without the guard, share
them. Several streams run at once, each with a prompt of its own. Three settings:

- ``tight``: the engines' caches hold less than the streams need, so that a hand-off may have to
  compute the whole text again;
- ``ample``: they hold everything. Here the guard must lose nothing;
- ``falling``: tight, and all streams but one end early: does the one delegate again? Its answer is
  twice as long, and its figures are the ones that are shown.

Arms: ``off`` and ``auto`` (the same relay without and with the guard), ``large`` (the large model
alone). They are run one after the other and the order turns from run to run. Printed is a Markdown
table of medians; every run is a line of JSON. ``late`` says how much later than due the large
engine sent its tokens, one in ten later still: where that is no small share of a token's time, the
machine was too busy and the run says nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx
from _processes import Server, server
from _streams import Reading, Relayed, percentile, read, relayed

PROFILE = "qwen3-32b+1.7b"
ARMS = ("off", "auto", "large")
SETTINGS = ("tight", "ample", "falling")
PORTS = {"large": 18111, "small": 18112, "off": 18113, "auto": 18114}
AMPLE = 4_000_000
EARLY, LATE = 0.8, 2.0
"""Where the load falls: how long the answers of the others and of the one that stays are, as shares
of the usual length."""
PARTS = 10
"""Parts of a stream whose delegation is told one by one."""


@dataclass(frozen=True)
class Load:
    """What is asked of whom; milliseconds and tokens.

    Attributes:
        streams: at once.
        prompt: of each.
        tokens: of each answer.
        cache: tokens that each engine's cache holds where it is tight.
        large, small: (per token, per token that must be computed again).
    """

    streams: int
    prompt: int
    tokens: int
    cache: int
    large: tuple[float, float]
    small: tuple[float, float]


@contextmanager
def rig(load: Load, cache: int, logs: Path) -> Iterator[dict[str, Server]]:
    """Two mocks and two relays over them."""
    with ExitStack() as stack:
        found: dict[str, Server] = {}

        def start(name: str, arguments: Sequence[str]) -> None:
            log = logs / f"{name}.log"
            found[name] = stack.enter_context(
                server(arguments, port=PORTS[name], core=None, log=log)
            )

        for name, (token, prefill) in (("large", load.large), ("small", load.small)):
            speed = ["--token-ms", f"{token}", "--prefill-ms", f"{prefill}"]
            start(name, ["mock-engine", "--trace", "long", "--kv-tokens", str(cache), *speed])
        engines = [x for name in ("large", "small") for x in (f"--{name}", found[name].url)]
        for pause in ("off", "auto"):
            start(pause, ["serve", *engines, "--profile", PROFILE, "--pause", pause])
        yield found


def body(load: Load, number: int, *, model: str, tokens: int) -> dict[str, Any]:
    """A streamed chat; its prompt begins with the stream's number, so that none shares another's.

    The mock's tokenizer needs a token for each of these bytes.
    """
    return {
        "model": model,
        "messages": [{"role": "user", "content": f"{number:04d}" + "." * (load.prompt - 4)}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": tokens,
        "relay": {"annotate": True},
    }


async def ask(load: Load, relay: Server, *, model: str, falling: bool) -> list[Reading]:
    """All streams at once, begun at even distances within one twentieth of their time."""
    spread = load.tokens * load.large[0] / 1000 / 20

    async def one(client: aiohttp.ClientSession, number: int) -> Reading:
        await asyncio.sleep(spread * number / load.streams)
        length = (EARLY if number else LATE) if falling else 1.0
        asked = body(load, number, model=model, tokens=int(length * load.tokens))
        return await read(client, f"{relay.url}/v1/chat/completions", asked)

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as client:
        return list(await asyncio.gather(*(one(client, n) for n in range(load.streams))))


def late(log: Sequence[dict[str, Any]]) -> float:
    """Milliseconds by which an engine's tokens were late; one in ten was later."""
    waits = [
        at - each["started"] - each["prefill_s"] - n * each["token_s"]
        for each in log
        for n, at in enumerate(each["emitted"], start=1)
    ]
    return 1000 * percentile(waits, 0.9)


def parts(reply: Relayed) -> list[float]:
    """The small model's share in each part of a reply, from first to last."""
    small = [role == "small" for role in reply.roles]
    size = max(1, len(small) // PARTS)
    return [round(statistics.mean(small[n * size : (n + 1) * size]), 3) for n in range(PARTS)]


def measure(load: Load, rigged: dict[str, Server], arm: str, *, falling: bool) -> dict[str, Any]:
    """One run of one arm on empty caches."""
    for engine in ("large", "small"):
        httpx.delete(f"{rigged[engine].url}/mock/cache")
        httpx.delete(f"{rigged[engine].url}/mock/log")
    relay = rigged["off" if arm == "large" else arm]
    model = "relaygen@large" if arm == "large" else "relaygen"
    readings = asyncio.run(ask(load, relay, model=model, falling=falling))
    replies = [relayed(reading) for reading in readings]
    if errors := [error for reply in replies for error in reply.errors]:
        raise SystemExit(f"a stream failed: {errors[0]}")
    counted = range(1 if falling else len(replies))  # where the load falls, the one that stays
    walls = [readings[n].ended - readings[n].started for n in counted]
    logs = {
        engine: httpx.get(f"{rigged[engine].url}/mock/log", timeout=60).json()
        for engine in ("large", "small")
    }
    return {
        "arm": arm,
        "seconds": round(statistics.median(walls), 3),
        "slowest": round(max(walls), 3),
        "tokens": replies[0].usage["completion_tokens"],
        "utilization": statistics.mean(replies[n].relay["utilization"] or 0 for n in counted),
        "handoffs": statistics.mean(replies[n].relay["handoffs"] for n in counted),
        "computed": {
            engine: sum(each["prompt_tokens"] - each["cached_tokens"] for each in log)
            for engine, log in logs.items()
        },
        "late_ms": round(late(logs["large"]), 2),
        "paused_at_end": sum(replies[n].relay["paused"] is not None for n in counted),
        "small_share_by_part": parts(replies[0]) if falling else None,
    }


def table(records: Sequence[dict[str, Any]]) -> str:
    """Markdown: medians over the runs, and each arm's speed against the large model alone."""
    columns = ("setting", "arm", "s per stream", "slowest", "against large alone", "large tokens",
               "hand-offs", "prompt tokens computed, large", "small", "late, ms")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for setting in dict.fromkeys(each["setting"] for each in records):
        here = [each for each in records if each["setting"] == setting]
        by_arm = {arm: [each for each in here if each["arm"] == arm] for arm in ARMS}
        alone = statistics.median(each["seconds"] for each in by_arm["large"])
        for arm, runs in by_arm.items():
            seconds, slowest, share, handoffs, large, small, behind = (
                statistics.median(each) for each in zip(*map(_figures, runs), strict=True)
            )
            cells = (setting, arm, f"{seconds:.2f}", f"{slowest:.2f}", f"{alone / seconds:.2f}×",
                     f"{share:.0%}", f"{handoffs:.0f}", f"{large:,.0f}", f"{small:,.0f}",
                     f"{behind:.1f}")  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        gains = [
            off["seconds"] / auto["seconds"]
            for off, auto in zip(by_arm["off"], by_arm["auto"], strict=True)
        ]
        notes = f"{statistics.median(gains):.2f}×; {min(gains):.2f} to {max(gains):.2f}"
        lines.append(f"| {setting} | auto against off | | | {notes} " + "| " * 5 + "|")
    falling = [each["small_share_by_part"] for each in records if each["arm"] == "auto"]
    for shares in filter(None, falling):
        told = " ".join(f"{share:.0%}" for share in shares)
        lines += ["", f"With auto, small share of the stream that stays, by tenth: {told}"]
    return "\n".join(lines)


def _figures(run: dict[str, Any]) -> tuple[float, ...]:
    computed = run["computed"]["large"], run["computed"]["small"]
    shares = run["utilization"], run["handoffs"]
    return run["seconds"], run["slowest"], *shares, *computed, run["late_ms"]


def pair_of(text: str) -> tuple[float, float]:
    """``TOKEN,PREFILL`` in milliseconds."""
    token, prefill = text.split(",")
    return float(token), float(prefill)


def main() -> None:
    """Every setting, every arm, as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--cache", type=int, default=8000)
    parser.add_argument("--large", type=pair_of, default=(20.0, 0.3), metavar="TOKEN,PREFILL")
    parser.add_argument("--small", type=pair_of, default=(3.25, 0.1), metavar="TOKEN,PREFILL")
    parser.add_argument("--out", type=Path, default=Path("guard.jsonl"))
    given = parser.parse_args()
    load = Load(given.streams, given.prompt, given.tokens, given.cache, given.large, given.small)
    logs = Path(tempfile.mkdtemp(prefix="relaygen-guard-"))
    records = []
    for setting in given.settings.split(","):
        with rig(load, AMPLE if setting == "ample" else load.cache, logs) as rigged:
            for run in range(given.runs):
                turn = run % len(ARMS)
                for arm in (*ARMS[turn:], *ARMS[:turn]):
                    found = measure(load, rigged, arm, falling=setting == "falling")
                    records.append({"setting": setting, "run": run, **found})
                    line = json.dumps(records[-1] | {"load": vars(load)})
                    with given.out.open("a") as sink:
                        sink.write(line + "\n")
    print(table(records))


if __name__ == "__main__":
    main()
