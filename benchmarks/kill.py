"""``kill -9`` on a real llama-server in the middle of its segments: the answers are whole.

    python benchmarks/kill.py --runs 10 [--out FILE]

Two llama.cpp servers play the pair. In each run the small one is killed after a few tokens of a
delegated segment, the large one finishes, and the small one is started again. The event log says
where it happened.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _processes import wait

from relaygen import FellBack, Limits, Relay, Sampling, Text
from relaygen._gate import Breaker
from relaygen._types import Role
from relaygen.engines.llama_server import LlamaServerEngine
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL

PORTS: dict[Role, int] = {"large": 18081, "small": 18082}
MODELS: dict[Role, str] = {"large": EMBEDDED_LARGE.name, "small": EMBEDDED_SMALL.name}
QUESTION = (
    "A shop sells pens at {a} cents and books at {b} cents. How much do {c} pens and two books "
    "cost? Reason step by step and put the final answer within \\boxed{{}}."
)


def start(role: Role) -> subprocess.Popen[bytes]:
    """One llama-server, ready."""
    script = Path(__file__).parent.parent / "scripts" / "llama-server.py"
    command = [sys.executable, str(script), MODELS[role], "--port", str(PORTS[role])]
    log = Path(tempfile.gettempdir()) / f"relaygen-kill-{role}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    wait(url(role), process, log)
    return process


def url(role: Role) -> str:
    """Where it listens."""
    return f"http://127.0.0.1:{PORTS[role]}"


async def one(relay: Relay, victim: subprocess.Popen[bytes], number: int) -> dict[str, Any]:
    """One answer with a murder in it."""
    draw = random.Random(number)
    segment, patience = 1, draw.randint(1, 2)
    asked = QUESTION.format(a=draw.randint(11, 99), b=draw.randint(101, 999), c=draw.randint(3, 9))
    task = relay.task(
        asked,
        sampling=Sampling(temperature=0.0),
        limits=Limits(max_tokens=500),
        gates=(Breaker(failures=3, cooldown=0.5),),
    )
    generating = relay.generating(task)
    killed_at, seen, previous = None, 0, ""
    fallen: list[FellBack] = []
    async for event in generating.events():
        if isinstance(event, FellBack):
            fallen.append(event)
        if not isinstance(event, Text):
            continue
        if event.role == "small" and previous != "small":
            seen += 1
            within = 0
        previous = event.role
        if event.role == "small" and seen == segment and killed_at is None:
            within += 1
            if within == patience:
                victim.send_signal(signal.SIGKILL)
                killed_at = generating.snapshot().usage.completion_tokens
    made = generating.snapshot()
    return {
        "run": number,
        "killed_at_token": killed_at,
        "within_segment": patience,
        "fell_back_at": [event.token for event in fallen],
        "errors": [event.error for event in fallen][:1],
        "finish": made.finish,
        "whole": made.finish == "stop" and "\\boxed{" in made.answer,
        "large_tokens": made.usage.large_tokens,
        "small_tokens": made.usage.small_tokens,
    }


def main() -> None:
    """All runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("kill.jsonl"), help="JSON lines")
    given = parser.parse_args()
    servers = {role: start(role) for role in PORTS}
    try:
        records: list[dict[str, Any]] = []
        for number in range(3 * given.runs):  # an answer without a long enough segment counts not
            if sum(bool(record["fell_back_at"]) for record in records) == given.runs:
                break
            if servers["small"].poll() is not None:
                servers["small"] = start("small")
            engines = {role: LlamaServerEngine(url(role), role=role) for role in PORTS}
            with Relay(large=engines["large"], small=engines["small"]) as relay:
                records.append(relay.run(one(relay, servers["small"], number)))
            print(json.dumps(records[-1]), flush=True)
    finally:
        for process in servers.values():
            process.kill()
    given.out.write_text("".join(json.dumps(record) + "\n" for record in records))
    struck = [record for record in records if record["fell_back_at"]]
    whole = sum(record["whole"] for record in struck)
    print(f"{len(struck)} of {len(records)} runs were struck inside a segment; {whole} are whole")


if __name__ == "__main__":
    main()
