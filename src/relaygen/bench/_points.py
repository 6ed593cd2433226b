"""What is measured: one setting at a time is swept, the others stay at their least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..policies import Policy
from ._paced import PacedPolicy

Sweep = Literal["streams", "context", "handoffs"]
SWEEPS: tuple[Sweep, ...] = ("streams", "context", "handoffs")


@dataclass(frozen=True, slots=True)
class Point:
    """One setting.

    Attributes:
        sweep: what it belongs to.
        streams: generations at a time.
        context: tokens of each prompt; 0 for a short question.
        policy: None for the profile's relay.
    """

    sweep: Sweep
    streams: int = 1
    context: int = 0
    policy: Policy | None = None

    @property
    def name(self) -> str:
        """The setting that is swept, for people."""
        if self.sweep == "streams":
            return f"{self.streams} stream{'s' if self.streams != 1 else ''}"
        if self.sweep == "context":
            return f"context {self.context:,}"
        if isinstance(self.policy, PacedPolicy):
            return f"segments of {self.policy.large} and {self.policy.small}"
        return "the relay's own"


def points(
    sweeps: Sequence[Sweep],
    *,
    streams: Sequence[int],
    contexts: Sequence[int],
    rates: Sequence[float],
    utilization: float,
) -> list[Point]:
    """All points, sweep by sweep.

    Args:
        sweeps: which.
        streams, contexts: their values; `Point` says of what.
        rates: hand-offs per 1,000 tokens, both ways.
        utilization: the large model's share where a rate is given.

    Raises:
        UsageError: a rate makes no sense.
    """
    found: dict[Sweep, list[Point]] = {
        "streams": [Point("streams", streams=count) for count in streams],
        "context": [Point("context", context=tokens) for tokens in contexts],
        "handoffs": [Point("handoffs", policy=PacedPolicy.at(rate, utilization)) for rate in rates],
    }
    return [point for sweep in SWEEPS if sweep in sweeps for point in found[sweep]]
