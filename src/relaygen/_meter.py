"""Seconds of one engine request, split into waiting for the first token and decoding."""

from __future__ import annotations

import time

from ._results import ModelUsage
from ._types import Delta


class Meter:
    """Started with a request, stopped at its hand-off or end.

    Args:
        usage: where to add up.
        expected: prompt tokens that the engine has computed or generated before.
    """

    def __init__(self, usage: ModelUsage, *, expected: int = 0) -> None:
        self._usage = usage
        self._expected = expected
        self._start = self._split_at = time.perf_counter()
        self._first: float | None = None
        self._last = 0.0
        self._pieces = 0
        usage.requests += 1

    def read(self, delta: Delta) -> None:
        """A delta arrived."""
        usage = self._usage
        if delta.pieces:
            self._last = time.perf_counter()
            if self._first is None:
                self._first = self._last
            self._pieces += len(delta.pieces)
        usage.repaired += delta.repaired
        if delta.drafted is not None:
            usage.drafted = (usage.drafted or 0) + delta.drafted
            usage.accepted = (usage.accepted or 0) + (delta.accepted or 0)
        if delta.cached is not None:
            usage.cached = (usage.cached or 0) + delta.cached
            usage.reevaluated += max(0, self._expected - delta.cached)
        if delta.evaluated is not None:
            usage.evaluated = (usage.evaluated or 0) + delta.evaluated

    @property
    def pieces(self) -> int:
        """That came so far."""
        return self._pieces

    def split(self) -> float:
        """Seconds since the start or the last split."""
        now = time.perf_counter()
        seconds, self._split_at = now - self._split_at, now
        return seconds

    def stop(self) -> float:
        """Add everything to the usage; seconds since the last split."""
        usage = self._usage
        usage.seconds += time.perf_counter() - self._start
        if self._first is not None:
            usage.first_seconds += self._first - self._start
            usage.decode_seconds += self._last - self._first
            usage.decoded += self._pieces - 1
        return self.split()
