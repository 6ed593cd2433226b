"""Seconds from the decision to hand over to the receiver's first token, on shared cores.

    python benchmarks/handoffs.py [MODEL]

The same model plays both roles and the word passes every seventh token, so that nothing but the
hand-off differs from one model alone. The first hand-off reads the whole prompt and is left out.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass

from relaygen import HandedOff, Limits, Relay, Sampling
from relaygen.policies import HandOff, LargeOnly, Start, Stay, Token
from relaygen.policies.base import Decision

QUESTION = "Explain in four sentences why the sky is blue."
RUNS = 3


@dataclass(frozen=True)
class EverySeventh(LargeOnly):
    """Hands over after seven tokens, for as long as there is text."""

    name = "every-seventh"
    roles = frozenset(("large", "small"))

    def start(self, start: Start) -> Passing:  # type: ignore[override]
        return Passing()


class Passing:
    def begin(self, *_: object) -> None:
        pass

    def feed(self, token: Token) -> Decision:
        return HandOff(token.index, "lead", "seventh") if token.index == 6 else Stay()

    def probed(self, piece: object) -> Decision:
        return Stay()

    def answer(self, on_duty: object) -> object:
        return on_duty


def main() -> int:
    model = sys.argv[1] if len(sys.argv) > 1 else "qwen2.5-coder-0.5b"
    options = {"sampling": Sampling(0.0), "limits": Limits(max_tokens=60), "seed": 0}
    with Relay(model, model) as relay:
        relay.generate("Say hi.", policy=EverySeventh(), **options)
        seconds = []
        for _ in range(RUNS):
            events = relay.stream(QUESTION, policy=EverySeventh(), **options)
            seconds += [e.seconds for e in events if isinstance(e, HandedOff)][1:]
    print(
        f"{len(seconds)} hand-offs: median {statistics.median(seconds):.2f} s, "
        f"{min(seconds):.2f} to {max(seconds):.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
