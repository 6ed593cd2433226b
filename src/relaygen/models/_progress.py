"""How a fetch tells its caller where it is. No terminal code here."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, Protocol

FetchStep = Literal["wait", "hub", "mirror", "join", "verify"]
"""``wait``: another process is fetching it. ``hub``, ``mirror``: bytes arrive. ``join``: the
mirror's parts are put together and hashed. ``verify``: the file is hashed."""


@dataclass(frozen=True)
class ProgressEvent:
    """One report.

    Attributes:
        model: what is fetched (a catalogue name or a file name).
        step: what is being done.
        done: bytes of this step behind us, those of an earlier, interrupted call included.
        total: bytes of this step; 0 where unknown.
        note: a line for the user, or ``""``; a report with a note says nothing about bytes.
    """

    model: str
    step: FetchStep
    done: int = 0
    total: int = 0
    note: str = ""


class FetchProgress(Protocol):
    """Called from the fetching thread, several times a second; what it raises ends the fetch."""

    def __call__(self, event: ProgressEvent, /) -> None:
        """Take one report."""


def log_notes(event: ProgressEvent, /) -> None:
    """The progress of callers who gave none: notes are logged, as they must not be missed."""
    if event.note:
        logging.getLogger("relaygen.models").warning("%s: %s", event.model, event.note)


@dataclass(frozen=True)
class Reporter:
    """A progress callback with the model's name filled in."""

    model: str
    progress: FetchProgress

    def note(self, step: FetchStep, text: str) -> None:
        """Send a line for the user."""
        self.progress(ProgressEvent(self.model, step, note=text))

    def bytes(self, step: FetchStep, done: int, total: int) -> None:
        """Send a count."""
        self.progress(ProgressEvent(self.model, step, done, total))
