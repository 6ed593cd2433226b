"""Stage detection: where does the thinking open, and where does it close?

Markers are found by id where they are one token (text that merely spells them is no marker), else
in the joined text of consecutive tokens. Tokens that may still turn out to be part of a marker are
held, so that nothing is decided on half a marker.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from .._types import Piece, Stage

Phase = Literal["unopened", "reasoning", "answer"]


@dataclass(frozen=True, slots=True)
class Marker:
    """How a marker is recognised: by id where it is one token, else by text."""

    text: str
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What one token settled.

    Attributes:
        released: how many of the oldest waiting tokens are now known not to belong to a marker.
        marker: ``open`` or ``close`` when a marker was completed by this token.
        size: tokens of that marker, the last of the waiting ones; all of them are settled too.
        before: text of the marker's tokens in front of the marker.
        after: text of its last token behind the marker.
    """

    released: int
    marker: Literal["", "open", "close"] = ""
    size: int = 0
    before: str = ""
    after: str = ""


class StageDetector:
    """Watches the assistant's text for the markers of thinking.

    Args:
        opening: the marker that opens the thinking.
        closing: the marker that closes it.
        phase: ``unopened`` where the model itself has yet to open it, ``reasoning`` where the
            prompt did, ``answer`` where there is no thinking.
    """

    __slots__ = ("_blank", "_closing", "_opening", "_waiting", "phase")

    def __init__(self, opening: Marker, closing: Marker, phase: Phase) -> None:
        self._opening = opening
        self._closing = closing
        self._blank = 0  # tokens of white space in front of a thinking yet to be opened
        self._waiting: deque[str] = deque()
        self.phase: Phase = phase

    def feed(self, text: str, piece: Piece) -> Found:
        """One token. In phase ``answer`` everything is released at once."""
        if self.phase == "answer":
            return Found(1)
        if self.phase == "unopened":
            return self._before_opening(text, piece)
        self._waiting.append(text)
        return self._look(self._closing, "close", piece)

    def _before_opening(self, text: str, piece: Piece) -> Found:
        mark = self._opening
        meant = piece.id is not None and piece.id == mark.id
        if not (meant or self._waiting or text.strip()):
            self._blank += 1
            return Found(0)
        self._waiting.append(text)
        stripped = "".join(self._waiting).lstrip()
        if meant or (mark.id is None and stripped.startswith(mark.text)):
            return self._look(mark, "open", piece)
        if mark.id is None and mark.text.startswith(stripped):
            return Found(0)
        self.phase = "answer"
        return self.flush()

    def _look(self, mark: Marker, name: Literal["open", "close"], piece: Piece) -> Found:
        waiting = self._waiting
        if mark.id is not None:
            if piece.id != mark.id:
                return self.flush()
            return self._settle(name, len(waiting) - 1, "", "")
        joined = "".join(waiting)
        at = joined.find(mark.text)
        if at < 0:
            return self._release(joined, mark.text)
        first, offset = 0, 0
        while offset + len(waiting[first]) <= at:
            offset += len(waiting[first])
            first += 1
        return self._settle(name, first, joined[offset:at], joined[at + len(mark.text) :])

    def _settle(self, name: Literal["open", "close"], first: int, before: str, after: str) -> Found:
        size = len(self._waiting) - first
        released = first + self._blank
        self._forget()
        self.phase = "reasoning" if name == "open" else "answer"
        return Found(released, name, size, before, after)

    def _release(self, joined: str, marker: str) -> Found:
        """Release what cannot be the beginning of the marker."""
        possible = next(
            n
            for n in range(min(len(joined), len(marker) - 1), -1, -1)
            if joined.endswith(marker[:n])
        )
        released, left = 0, len(joined) - possible
        while self._waiting and (left >= len(self._waiting[0]) if possible else True):
            left -= len(self._waiting.popleft())
            released += 1
        return Found(released)

    def flush(self) -> Found:
        """Release everything that waits: the stream ended or somebody else goes on."""
        released = len(self._waiting) + self._blank
        self._forget()
        return Found(released)

    def _forget(self) -> None:
        self._waiting.clear()
        self._blank = 0

    def use(self, opening: Marker, closing: Marker) -> None:
        """The markers as the next writer's tokenizer has them."""
        self._opening, self._closing = opening, closing

    def restore(self, stage: Stage) -> None:
        """Tokens were taken back, perhaps with a marker: return to the stage that was kept."""
        self._forget()
        if self.phase != "unopened":
            self.phase = stage

    def close(self) -> None:
        """There is nothing (more) to close: by an insertion, or because nothing was opened."""
        self._forget()
        self.phase = "answer"
