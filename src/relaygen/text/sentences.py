"""Sentence ends that survive decimals, abbreviations, list numbers, factorials, math and code.

``.`` before a newline, a blank line and the CJK full stops decide at once. A bare ``.``, ``!`` or
``?`` waits for the next character: white space confirms it, closing quotes and brackets extend the
wait, anything else (``3.14``, ``e.g.``, ``n!=``) denies it.

The reference ends segments at any token that holds ``.``, ``!`` or ``?``.
"""

from __future__ import annotations

import copy
import re

from .scanner import Scanner

_FULL_STOPS = frozenset("。！？｡")
_CLOSERS = frozenset("\"'”’»)]}*_")
# No `no.`, `min.`, `max.`: in worked maths they end sentences more often than they abbreviate.
_ABBREVIATION = re.compile(
    r"(?:^|[^A-Za-z.])(?:"
    r"(?i:e\.g|i\.e|etc|vs|cf|viz|approx|resp|eq|eqs|fig|figs|nos|vol|pp|inc|ltd|dept"
    r"|(?:[a-z]\.)+[a-z])"
    r"|Dr|Mr|Mrs|Ms|Prof|Sr|Jr|St)\.$"  # titles have a capital: `5 ms.` and `the 1st.` end
)
_LIST_NUMBER = re.compile(r"^[\s>*#_-]*\d{1,3}\.$")
_FACTORIAL = re.compile(r"(?:\d|\)|(?:^|[^A-Za-z])[a-z])!$")


class SentenceDetector:
    """Feeds on one character at a time, after the scanner of the same text.

    Attributes:
        pending: a terminator was seen and the next character decides.
        content: the current sentence holds something besides white space.
    """

    __slots__ = ("_exempt", "_terminator", "content", "pending")

    def __init__(self) -> None:
        self.pending = False
        self.content = False
        self._terminator = ""
        self._exempt = False

    def fork(self) -> SentenceDetector:
        """An independent copy."""
        return copy.copy(self)

    def feed(self, char: str, scanner: Scanner) -> bool:
        """Whether a sentence ended at or before this character; `scanner` has read it already."""
        if scanner.blank:
            return self._close()
        if self.pending:
            if char.isspace():
                self.pending = False
                decided = char in "\r\n" and self._terminator == "."
                return (decided or not self._exempt) and self._close()
            if char in _CLOSERS:
                return False
            self.pending = False
        if char.isspace():
            return False
        self.content = True
        if char.isalnum() or scanner.inside:
            return False
        if char in _FULL_STOPS:
            return self._close()
        if char in ".!?":
            self.pending = True
            self._terminator = char
            self._exempt = _exempt(scanner)
        return False

    def close(self) -> None:
        """A sentence ended here by someone else's word (a hand-off, a stage change)."""
        self._close()

    def _close(self) -> bool:
        had_content, self.content, self.pending = self.content, False, False
        return had_content


def _exempt(scanner: Scanner) -> bool:
    tail = scanner.tail
    if tail.endswith("!"):
        return _FACTORIAL.search(tail) is not None
    if not tail.endswith("."):
        return False
    if _LIST_NUMBER.match(scanner.line) and tail.endswith(scanner.line):
        return True
    return _ABBREVIATION.search(tail) is not None
