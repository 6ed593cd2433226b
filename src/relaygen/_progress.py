"""How far a long piece of work is, for whoever shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Step:
    """Where one step of the work stands.

    Attributes:
        name: of the step: ``traces``, ``score`` and ``check`` are a calibration's, ``answers`` an
            evaluation's, ``bench`` a benchmark's, ``doctor`` an examination's.
        done, total: traces or answers, those of an earlier run included.
        left: seconds that the rest will take, by what this run took so far; None while unknown.
        note: one line for the user, or "".
    """

    name: Literal["traces", "score", "check", "answers", "bench", "doctor"]
    done: int
    total: int
    left: float | None = None
    note: str = ""


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """Show nothing."""


class Clock:
    """Seconds left, from the work that this run has done.

    Args:
        total: work to be done by this run, in any unit.
    """

    def __init__(self, total: float) -> None:
        self._total = total
        self._done = 0.0
        self._started = time.monotonic()

    def left(self, done: float = 0.0) -> float | None:
        """After `done` more units of work."""
        self._done += done
        if not self._done:
            return None
        spent = time.monotonic() - self._started
        return spent / self._done * max(self._total - self._done, 0.0)
