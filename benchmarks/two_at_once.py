"""The embedded pair's two models decoding at once: what one takes from the other.

    [GOMP_SPINCOUNT=N | OMP_WAIT_POLICY=passive] python benchmarks/two_at_once.py [--threads N]

Milliseconds per token of each model alone, then both at once and the seconds until both are done.
libgomp reads the two variables when it is loaded, so each setting is a run of its own. With neither
set the engine's own number of spins holds (`engines/_child.py`); 300000 is libgomp's default.

What is asked of the machine: nothing else may run, and two GB of memory are free. Where models spin
for each other's cores a run takes minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import Sequence

from relaygen import Relay, Sampling
from relaygen._types import ROLES, Role, SegmentRequest
from relaygen.engines.base import Engine

TOKENS: dict[Role, int] = {"large": 60, "small": 120}
QUESTION = (
    "Question {}: A train leaves at 3 pm and drives 60 miles per hour. "
    "Let us think step by step about all of the details. "
)


class Pair:
    """Both engines, and a new conversation for each measurement."""

    def __init__(self, relay: Relay) -> None:
        self._engines = relay.engines
        self._numbers = itertools.count(1)

    async def ready(self) -> None:
        """Load both models."""
        for engine in self._engines.values():
            await engine.info()

    async def ms_per_token(self, role: Role) -> float:
        """Of decoding, the first token left out."""
        engine, name = self._engines[role], str(next(self._numbers))
        ids = await engine.tokenize(QUESTION.format(name))
        sampling = Sampling(0.0, 1.0, 0, 0.0)
        times = await arrivals(engine, SegmentRequest(ids, TOKENS[role], sampling, name))
        return 1000 * (times[-1] - times[0]) / (len(times) - 1)

    async def together(self, roles: Sequence[Role]) -> str:
        """So many conversations at once."""
        began = time.perf_counter()
        each = await asyncio.gather(*map(self.ms_per_token, roles))
        seconds = time.perf_counter() - began
        told = ", ".join(f"{role} {ms:.1f}" for role, ms in zip(roles, each, strict=True))
        return f"{told} ms/token, {seconds:.1f} s"


async def arrivals(engine: Engine, request: SegmentRequest) -> list[float]:
    """When each token came, seconds of `time.perf_counter`."""
    times: list[float] = []
    async for delta in engine.stream(request):
        times += [time.perf_counter()] * len(delta.pieces)
    await engine.release(request.session)
    return times


async def measured(threads: int | None) -> None:
    """One line per measurement."""
    async with Relay(ctx=1024, threads=threads, parallel=4) as relay:
        pair = Pair(relay)
        await pair.ready()
        for name in ("alone", "alone again"):
            told = [f"{role} {await pair.ms_per_token(role):.1f}" for role in ROLES]
            print(f"{name}: {', '.join(told)} ms/token", flush=True)
        print("one each:", await pair.together(ROLES), flush=True)
        print("two each:", await pair.together(ROLES * 2), flush=True)


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, help="of each model; default: all usable CPUs")
    asyncio.run(measured(parser.parse_args().threads))


if __name__ == "__main__":
    main()
