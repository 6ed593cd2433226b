"""Whether the small model may be handed the word: a circuit breaker and a check that it pays.

A gate is asked before every hand-off to the small model and told how the hand-offs went. Pure but
for the clock, which is a parameter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from ._types import Kind

_HOPELESS = 3.0
"""A trial's first segment that took so many times what the large model would have taken: its second
one could not save enough."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One delegated segment, measured.

    Attributes:
        tokens: that the small model wrote and that were kept.
        seconds: from the decision to delegate to the large model's next token.
        large_seconds: of the large model per token of plain decoding, in this conversation.
    """

    tokens: int
    seconds: float
    large_seconds: float

    @property
    def alone(self) -> float:
        """Seconds that the large model alone would have taken."""
        return (self.tokens + 1) * self.large_seconds

    @property
    def saved(self) -> float:
        """Seconds saved; negative where the large model alone would have been faster."""
        return self.alone - self.seconds


class Gate(Protocol):
    """Decides whether the small model may be handed the word."""

    def blocked(self, kind: Kind) -> str:
        """Why not, in a few words; "" where it may."""
        ...

    def refused(self) -> None:
        """A hand-off that the policy wanted did not take place."""
        ...

    def began(self) -> None:
        """The small model was handed the word."""
        ...

    def failed(self) -> None:
        """It failed."""
        ...

    def succeeded(self) -> None:
        """It sent a token."""
        ...

    def returned(self, trip: RoundTrip) -> None:
        """A delegated segment is over and the large model goes on."""
        ...


def blocked(gates: Iterable[Gate], kind: Kind) -> str:
    """Why the first gate that blocks does; "" where none does."""
    return next(filter(None, (gate.blocked(kind) for gate in gates)), "")


class Breaker:
    """Pauses delegation after failures in a row and tries again by itself.

    Shared by all generations that use one small engine. While open, nothing is sent to it; after
    `cooldown` one hand-off is let through at a time, and one success closes it.

    Args:
        failures: in a row after which it opens.
        cooldown: seconds until the first trial, doubled after each failed one up to `longest`.
        longest: seconds between trials at most.
        clock: seconds, monotonic.

    Attributes:
        opened: how often it has opened.
    """

    def __init__(
        self,
        *,
        failures: int = 3,
        cooldown: float = 1.0,
        longest: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._cooldown = cooldown
        self._longest = longest
        self._clock = clock
        self._failures = 0
        self._wait = cooldown
        self._until: float | None = None  # of the next trial; None while closed
        self._trial = False  # one is out
        self.opened = 0

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """``half-open``: the next hand-off is a trial."""
        if self._until is None:
            return "closed"
        return "open" if self._clock() < self._until else "half-open"

    def blocked(self, kind: Kind) -> str:
        """Whatever the kind: an engine that fails is of no use to either."""
        return "the small engine keeps failing" if self.state == "open" else ""

    def refused(self) -> None:
        """Time alone brings the next trial."""

    def began(self) -> None:
        """A trial holds back the others until it is decided or another cooldown is over."""
        if self._until is not None:
            self._trial = True
            self._until = self._clock() + self._wait

    def failed(self) -> None:
        """Opens it, or keeps it open for longer.

        While it is open, what fails besides a trial began before: it says nothing new.
        """
        self._failures += 1
        if self.state == "open" and not self._trial:
            return
        self._trial = False
        if self._until is not None:
            self._wait = min(2 * self._wait, self._longest)
            self._until = self._clock() + self._wait
        elif self._failures >= self._limit:
            self.opened += 1
            self._until = self._clock() + self._wait

    def succeeded(self) -> None:
        """Closes it."""
        self._failures = 0
        self._wait = self._cooldown
        self._until = None
        self._trial = False

    def returned(self, trip: RoundTrip) -> None:
        """How fast it was does not matter here."""


class PayGate:
    """Pauses one conversation's delegation while it costs more time than it saves.

    The mean of what the segments saved, weighted towards the last ones, decides: negative pauses.
    What it sees is a segment's round trip, in which queues and computing lost caches again are
    included. A loss counts for no more than the large model would have taken, so that one stall
    does not end what pays. Then, after some cues, a trial is let through, and delegation resumes
    when that saves more than `margin` of a large token.

    The first segment of all, and that of a trial, may have to read what the small model has missed:
    the whole prompt, or what was written meanwhile. What it costs is no loss if the next ones pay.
    So the first one is not counted against delegation, and a trial has two segments unless the
    first one shows that it is hopeless.

    A lead, such as the answer, is never blocked: it has one hand-off and no way back to pay for.

    Args:
        least: segments that count before it may pause.
        weight: of the newest segment in the mean, in (0, 1].
        skip: cues that pass before the first trial, doubled after each trial up to 8 times that.
        margin: of a large model's token that a segment must save to resume.

    Attributes:
        pauses: how often it has paused.
    """

    def __init__(
        self, *, least: int = 2, weight: float = 0.3, skip: int = 6, margin: float = 1.0
    ) -> None:
        self._least = least
        self._weight = weight
        self._first_skip = self._skip = skip
        self._margin = margin
        self._read = False  # the small model has read the prompt, or in a trial what it had missed
        self._seen = 0
        self._mean = 0.0
        self._paused = False
        self._left = 0  # cues to pass before the next trial
        self.pauses = 0

    @property
    def paused(self) -> bool:
        """Whether delegation is paused now."""
        return self._paused

    def blocked(self, kind: Kind) -> str:
        """A delegate only."""
        if kind == "lead" or not self._paused or self._left <= 0:
            return ""
        return f"delegation did not pay: {1000 * self._mean:+.0f} ms a segment"

    def refused(self) -> None:
        """One cue passed."""
        self._left -= 1

    def began(self) -> None:
        """Should a trial never return, the next one is as far away."""
        if self._paused:
            self._left = self._skip

    def failed(self) -> None:
        """The breaker's business."""

    def succeeded(self) -> None:
        """The breaker's business."""

    def returned(self, trip: RoundTrip) -> None:
        """One more segment is measured."""
        if self._paused:
            self._tried(trip)
            return
        first, self._read = not self._read, True
        if first and trip.saved < 0:
            return
        self._seen += 1
        weight = 1.0 if self._seen == 1 else self._weight
        self._mean += weight * (max(trip.saved, -trip.alone) - self._mean)
        if self._mean < 0 and self._seen >= self._least:
            self._paused, self._read = True, False
            self.pauses += 1
            self._left = self._skip

    def _tried(self, trip: RoundTrip) -> None:
        if trip.saved > self._margin * trip.large_seconds:
            self._paused, self._read = False, True
            self._mean = trip.saved
            self._skip = self._first_skip
        elif not self._read and trip.seconds <= _HOPELESS * trip.alone:
            self._read = True
            self._left = 0  # its second segment decides
        else:
            self._read = False
            self._skip = min(2 * self._skip, 8 * self._first_skip)
            self._left = self._skip
