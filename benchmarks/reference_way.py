"""The reference implementation's way of working beside ours, over the same mock engines and trace.

    python benchmarks/reference_way.py [--tokens N] [--runs N] [--context N] [--out FILE]

The reference's way: for each segment the model listing and one chat call that is not streamed, in
which the whole text so far is sent again as the assistant's message to be continued; stop strings
that match anywhere end a segment. Ours: token ids over streams, the relay's own detectors.

Both mock engines play one trace whatever is asked, so the reference's hand-offs fall on it as they
do on a model's text: where a stop string first ends in the trace behind the segment's fifth token,
the mock cuts its reply there, be it in the middle of a word, and plays on from that byte in the
next call. Its segments differ from ours therefore, and each row's ceiling is that of its own
segments. A third row gives the reference's way our hand-off points: each call ends by its
``max_tokens`` where our segment ended. One connection per engine is kept, which favours it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from relaygen import Generation, Limits, Relay
from relaygen._types import ROLES, Role
from relaygen.bench import Figures, mocks, shortened
from relaygen.bench._figures import PROFILE, aplayed
from relaygen.bench._measure import ideal_seconds
from relaygen.bench._mocks import SHAPES
from relaygen.engines.vllm import VllmEngine
from relaygen.mock import Trace, load_trace, own_time
from relaygen.profiles import load

CLOSING = "</think>"
ENDS = (".", "!", "?", "\n\n")
"""What ends a delegated segment there."""
SPACED = {"So": "So "}
"""Cues that our profiles hold in another form: a space stands for the word bound there."""
LEAST = 5
"""Tokens of a large segment before its stop strings count there."""


@dataclass
class Written:
    """One text.

    Attributes:
        tokens: kept, by role.
        seconds: from the first request to the end.
        requests: of any kind.
        own_s: the engines' own time.
        sent_bytes: of all bodies.
    """

    text: str = ""
    tokens: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    seconds: float = 0.0
    requests: int = 0
    handoffs: int = 0
    own_s: float = 0.0
    sent_bytes: int = 0


class Reference:
    """Writes a text segment by segment, as the reference does.

    Args:
        urls: of the engines.
        cues: stop strings of the large model.
    """

    def __init__(self, urls: Mapping[Role, str], cues: Sequence[str]) -> None:
        self._clients = {
            role: httpx.Client(base_url=url, timeout=600) for role, url in urls.items()
        }
        self._cues = tuple(cues)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def by_stop_strings(self, question: str) -> Written:
        """Its own hand-off points: a stop string decides who is next."""
        written, role = Written(), ROLES[0]
        began = time.perf_counter()
        while True:
            stops = [CLOSING, *(self._cues if role == "large" else ENDS)]
            least = {"min_tokens": LEAST} if role == "large" else {}
            chunk, _ = self._call(written, question, role, {"stop": stops, **least})
            if CLOSING in chunk or not chunk:
                break
            following: Role = role
            if role == "large" and chunk.endswith(self._cues):
                following = "small"
            elif role == "small" and chunk.endswith(ENDS):
                following = "large"
            written.handoffs += following != role
            role = following
        written.handoffs += role != "small"
        self._call(written, question, "small", {})  # the answer
        written.seconds = time.perf_counter() - began
        return written

    def by_lengths(self, question: str, segments: Sequence[tuple[Role, int]]) -> Written:
        """Given hand-off points: each segment's tokens are asked for."""
        written = Written()
        began = time.perf_counter()
        for number, (role, tokens) in enumerate(segments):
            written.handoffs += number > 0 and role != segments[number - 1][0]
            self._call(written, question, role, {"max_tokens": tokens})
        written.seconds = time.perf_counter() - began
        return written

    def _call(
        self, written: Written, question: str, role: Role, more: Mapping[str, Any]
    ) -> tuple[str, int]:
        """One segment: which model is it, and the whole text again."""
        client = self._clients[role]
        model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        messages = [{"role": "user", "content": question}]
        if written.text:
            messages.append({"role": "assistant", "content": written.text})
        body = {
            "model": model,
            "messages": messages,
            "add_generation_prompt": not written.text,
            "continue_final_message": bool(written.text),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,  # the mock's markers of thinking are no special text
            "max_tokens": 32_768,
            **more,
        }
        reply = client.post("/v1/chat/completions", json=body).raise_for_status().json()
        written.requests += 2
        chunk, count = reply["choices"][0], reply["usage"]["completion_tokens"]
        written.text += chunk["message"]["content"].removesuffix("<|im_end|>")
        written.tokens[role] += count - ("<|im_end|>" in chunk["message"]["content"])
        return chunk["message"]["content"], count


async def ours(relay: Relay, question: str) -> tuple[Written, Generation]:
    """The same by the relay."""
    generation = await relay.agenerate(question, limits=Limits(max_tokens=1 << 16), seed=0)
    usage = generation.usage
    tokens: dict[Role, int] = {"large": usage.large_tokens, "small": usage.small_tokens}
    requests = usage.large.requests + usage.small.requests
    return (
        Written(generation.text, tokens, usage.seconds, requests, usage.handoffs),
        generation,
    )


def booked(written: Written, urls: Mapping[Role, str]) -> Written:
    """With what the engines' logs say, which are emptied."""
    for role, url in urls.items():
        entries = httpx.get(f"{url}/mock/log", timeout=60).json()
        httpx.delete(f"{url}/mock/log")
        written.own_s += own_time(entries, written.tokens[role])
        written.sent_bytes += sum(entry["received_bytes"] for entry in entries)
    return written


async def measured(trace: Trace, runs: int, context: int) -> list[dict[str, Any]]:
    """Every way `runs` times, in turn."""
    profile = load(PROFILE)
    cues = [SPACED.get(cue, cue) for cue in profile.cues]
    segments = [
        (role, segment.tokens)
        for segment in (await aplayed(trace)).segments
        if (role := segment.role) != "inserted"
    ]
    found: dict[str, list[Written]] = {}
    numbers = iter(range(1_000_000))

    def question() -> str:  # a new one each time, or the prefix cache would know it
        return f"{next(numbers)}. How many tokens does it take? " + "word " * (context // 5)

    async with mocks(trace, max_stops=len(cues) + 1) as urls:
        reference = Reference(urls, cues)
        large, small = (VllmEngine(urls[role], role=role) for role in ROLES)
        async with Relay(large, small, profile=profile) as relay:
            await relay.agenerate(question())  # connections, tables
            booked(Written(), urls)
            for _ in range(runs):
                written, _ = await ours(relay, question())
                found.setdefault("relaygen", []).append(booked(written, urls))
                for name, call in (
                    ("reference", lambda q: reference.by_stop_strings(q)),
                    ("reference, our points", lambda q: reference.by_lengths(q, segments)),
                ):
                    written = await asyncio.to_thread(call, question())
                    found.setdefault(name, []).append(booked(written, urls))
        reference.close()
    return [row(name, those, trace) for name, those in found.items()]


def row(name: str, those: Sequence[Written], trace: Trace) -> dict[str, Any]:
    """One way's record; its counts are the same in every run."""
    last = those[-1]
    seconds = statistics.median(written.seconds for written in those)
    tokens = sum(last.tokens.values())
    figures = Figures(last.tokens["large"], last.tokens["small"], last.handoffs, (), 0)
    return {
        "way": name,
        "runs": len(those),
        "whole": sum(written.text == trace.text for written in those),
        "seconds": seconds,
        "ms_per_token": 1000 * seconds / len(trace.tokens),
        "utilization": last.tokens["large"] / tokens,
        "handoffs": last.handoffs,
        "requests": last.requests,
        "sent_bytes": last.sent_bytes,
        "wall_over_own": seconds / statistics.median(written.own_s for written in those),
        "share_of_ceiling": ideal_seconds(figures, SHAPES) / seconds,
        "tokens": asdict(last)["tokens"],
    }


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table and how to read it."""
    table = Table(box=None, pad_edge=False)
    headings = ("way", "seconds", "ms/token", "large", "hand-offs", "requests", "sent")
    for place, heading in enumerate((*headings, "/ own time", "of its ceiling", "whole")):
        table.add_column(heading, justify="right" if place else "left")
    for each in rows:
        table.add_row(
            each["way"],
            f"{each['seconds']:.2f}",
            f"{each['ms_per_token']:.2f}",
            f"{each['utilization']:.1%}",
            str(each["handoffs"]),
            str(each["requests"]),
            f"{each['sent_bytes'] / 1000:,.0f} kB",
            f"{each['wall_over_own']:.3f}",
            f"{each['share_of_ceiling']:.3f}",
            f"{each['whole']} of {each['runs']}",
        )
    console = Console(highlight=False, width=110)
    console.print(table)
    console.print(
        "\nThe engines play one trace. The reference's hand-offs fall where one of its stop "
        "strings first ends in it, also inside words and numbers; in the last row its calls end "
        "at our hand-off points by max_tokens. Ceiling: nothing but the decoding of each row's "
        "own tokens."
    )


def main() -> None:
    """All ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trace", default="long")
    parser.add_argument("--tokens", type=int, help="shorten the trace; default: the whole")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--context", type=int, default=0, help="tokens of the prompt, about")
    parser.add_argument("--out", type=Path, help="append the rows as JSON lines")
    given = parser.parse_args()
    trace = load_trace(given.trace)
    if given.tokens:
        trace = shortened(trace, given.tokens)
    rows = asyncio.run(measured(trace, given.runs, given.context))
    show(rows)
    if given.out:
        with given.out.open("a") as sink:
            sink.writelines(json.dumps(each) + "\n" for each in rows)
    assert all(each["whole"] == each["runs"] for each in rows), "a text differs from the trace"


if __name__ == "__main__":
    main()
