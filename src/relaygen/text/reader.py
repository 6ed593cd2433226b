"""Reads a text token by token and says what each token completed: a cue, a sentence, or neither.

The one piece of code that run time and calibration share, so that both see the same segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .cues import CueSet
from .scanner import Scanner
from .sentences import SentenceDetector


@dataclass(frozen=True, slots=True)
class Reading:
    """What one token did.

    Attributes:
        cue: the longest cue that this token completed, or None.
        end: ``here``: a sentence ended and this token belongs to it; ``before``: a sentence ended
            before this token, which starts the next one; ``""``: neither.
        held: tokens up to and including this one that a coming ``before`` would exclude.
    """

    cue: str | None = None
    end: Literal["", "here", "before"] = ""
    held: int = 0


class Reader:
    """The text state of one generation; feeds on kept tokens of both roles.

    Args:
        cues: the cues to look for.
    """

    __slots__ = ("_before", "_cues", "_held", "_scanner", "_sentences")

    def __init__(self, cues: CueSet | None = None) -> None:
        self._cues = cues if cues is not None else CueSet(())
        self._scanner = Scanner(keep=max(64, self._cues.longest + 2))
        self._sentences = SentenceDetector()
        self._before: tuple[Scanner, SentenceDetector] | None = None
        self._held = 0

    @property
    def fresh(self) -> bool:
        """At the start of a sentence: nothing but white space since the last end."""
        return not self._sentences.content

    @property
    def sealed(self) -> bool:
        """Inside ``\\boxed{…}`` or on a ``####`` line, where nobody may take over."""
        return self._scanner.sealed

    def feed(self, text: str, whole: bool = True) -> Reading:
        """One token.

        Args:
            text: what the token completed; empty while a character is incomplete.
            whole: whether the text ends between characters.
        """
        scanner, sentences = self._scanner, self._sentences
        waited = sentences.pending  # for the terminator of an earlier token
        cue: str | None = None
        end: Literal["", "here", "before"] = ""
        for position, char in enumerate(text):
            scanner.feed(char)
            if sentences.feed(char, scanner) and not end:
                keeps = not waited or position > 0 or (whole and text.isspace())
                end = "here" if keeps else "before"
            found = self._cues.match(scanner, text[position + 1 : position + 2])
            if found is not None and (cue is None or len(found) > len(cue)):
                cue = found
            waited = waited and sentences.pending
        self._mark(text, whole, end)
        return Reading(cue, end, self._held)

    def _mark(self, text: str, whole: bool, end: str) -> None:
        """Remember the state that `rewind` returns to: after the last undoubtedly kept token."""
        if end == "before":
            self._held += 1
        elif self._sentences.pending and text and whole:
            self._before = (self._scanner.fork(), self._sentences.fork())
            self._held = 0
        elif self._sentences.pending:
            self._held += 1
        else:
            self._before = None
            self._held = 0

    def cut(self) -> None:
        """Somebody else goes on here: a pending terminator at a segment's end is an end."""
        if self._sentences.pending:
            self._sentences.close()
        self._before = None
        self._held = 0

    def rewind(self) -> None:
        """Take back the `held` tokens of the last reading; a sentence ended before them."""
        if self._before is not None:
            self._scanner, self._sentences = self._before
        self._before = None
        self._held = 0
        self._sentences.close()
