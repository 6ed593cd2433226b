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
        held: tokens up to and including this one that this ``before`` excludes, or that a coming
            one would.
        marker: the longest marker that this token completed, or None.
        sealed: the place behind this token (with ``before``: behind the last one that belongs to
            the sentence) is inside ``\\boxed{…}`` or on a ``####`` line.
    """

    cue: str | None = None
    end: Literal["", "here", "before"] = ""
    held: int = 0
    marker: str | None = None
    sealed: bool = False


class Reader:
    """The text state of one generation; feeds on kept tokens of both roles.

    Args:
        cues: the cues to look for.
        markers: the markers to look for, in code, math and boxed results too.
    """

    __slots__ = ("_back", "_before", "_cues", "_held", "_markers", "_scanner", "_sentences")

    def __init__(self, cues: CueSet | None = None, markers: CueSet | None = None) -> None:
        self._cues = cues if cues is not None else CueSet(())
        self._markers = markers if markers is not None else CueSet(())
        longest = max(self._cues.longest, self._markers.longest)
        self._scanner = Scanner(keep=max(64, longest + 2))
        self._sentences = SentenceDetector()
        # The state behind the last token that surely belongs to a sentence which may be over.
        self._before: tuple[Scanner, SentenceDetector] | None = None
        self._back: tuple[Scanner, SentenceDetector] | None = None  # where `rewind` returns to
        self._held = 0  # tokens since

    @property
    def fresh(self) -> bool:
        """At the start of a sentence: nothing but white space since the last end."""
        return not self._sentences.content

    @property
    def sealed(self) -> bool:
        """Inside ``\\boxed{…}`` or on a ``####`` line, where no delegation starts."""
        return self._scanner.sealed

    def feed(self, text: str, whole: bool = True) -> Reading:
        """One token.

        Args:
            text: what the token completed; empty while a character is incomplete.
            whole: whether the text ends between characters.
        """
        scanner, sentences, waited = self._scanner, self._sentences, self._before
        cues, markers = self._cues, self._markers
        cue: str | None = None
        marker: str | None = None
        end: Literal["", "here", "before"] = ""
        for position, char in enumerate(text):
            scanner.feed(char)
            if sentences.feed(char, scanner) and not end:
                first = waited is not None and position == 0 and char.isspace()
                end = "before" if first and not (whole and text.isspace()) else "here"
            if char in cues.lasts:
                after = text[position + 1 : position + 2]
                cue = _longer(cue, cues.match(scanner, after))
            if char in markers.lasts:
                after = text[position + 1 : position + 2]
                marker = _longer(marker, markers.match(scanner, after, anywhere=True))
        held = self._mark(text, whole, end)
        sealed = (self._back[0] if self._back is not None else scanner).sealed
        return Reading(cue, end, held, marker, sealed)

    def _mark(self, text: str, whole: bool, end: str) -> int:
        """Remember the state that `rewind` returns to; the tokens that it would take back."""
        held = self._held + 1
        self._back = self._before if end == "before" else None
        if self._sentences.pending and not text:
            self._held += self._before is not None
        elif self._sentences.pending and whole:
            self._before = (self._scanner.fork(), self._sentences.fork())
            self._held = 0
        else:  # nothing waits, or a terminator shares its token with half a character
            self._before = None
            self._held = 0
        return held if end == "before" else self._held

    def cut(self) -> None:
        """Somebody else goes on here: a pending terminator at a segment's end is an end."""
        if self._sentences.pending:
            self._sentences.close()
        self._before = self._back = None
        self._held = 0

    def rewind(self) -> None:
        """Take back the `held` tokens of the last reading; a sentence ended before them."""
        if self._back is not None:
            self._scanner, self._sentences = self._back
        self._before = self._back = None
        self._held = 0
        self._sentences.close()


def _longer(found: str | None, candidate: str | None) -> str | None:
    if found is None or (candidate is not None and len(candidate) > len(found)):
        return candidate
    return found
