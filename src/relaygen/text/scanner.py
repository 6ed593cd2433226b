"""Where in a text are we: code or math, a boxed result, the start of a line?

The rules (our own; the reference has none, so `3.14` ends its sentences and `now` fires in code):
``\\( \\)``, ``\\[ \\]``, ``$ $``, ``$$ $$`` and back-ticks are spans. ``$`` before a digit or a
space never opens one (prices); nor does one behind a word or a bracket, or before punctuation: it
closes math that opened with a digit (``$3x = 5$.``). No span crosses a blank line; an unclosed
inline span lapses at a newline or after 200 characters. A fence (three back-ticks) is a block, not
a span: it goes on behind blank lines and ends at its closing fence only.
"""

from __future__ import annotations

import copy

INLINE_LIMIT = 200
"""Characters after which an unclosed inline span is taken for a stray delimiter."""

_INLINE = frozenset({"\\)", "$", "`"})
_LINE_PREFIX = 24
_OPENING = frozenset("`$([")  # outside spans no other character begins anything
_CLOSING = frozenset(".,;:!?)]}\"'”’")  # before these a `$` opens nothing
_CLOSED = frozenset(")]}")  # nor does it behind these


class Scanner:
    """Feeds on one character at a time; all state is bounded and `fork` is cheap.

    Attributes:
        tail: the last `keep` characters.
        line: the first characters of the current line.
        blank: whether the last character was a newline that closed a blank line.
        fence: whether we are in a fenced code block.
    """

    __slots__ = (
        "_depth",
        "_dollar",
        "_escape",
        "_keep",
        "_line_blank",
        "_span",
        "_span_length",
        "_ticks",
        "_was_boxed",
        "blank",
        "fence",
        "line",
        "tail",
    )

    def __init__(self, keep: int = 64) -> None:
        self._keep = keep
        self.tail = ""
        self.line = ""
        self.blank = False
        self.fence = False
        self._line_blank = False
        self._span = ""  # the closing delimiter of the open span
        self._span_length = 0
        self._dollar = False  # the last character was a `$` that may open a span
        self._ticks = 0  # back-ticks just seen
        self._escape = False
        self._depth = 0  # open braces of `\boxed{`
        self._was_boxed = False

    def fork(self) -> Scanner:
        """An independent copy."""
        return copy.copy(self)

    @property
    def inside(self) -> bool:
        """Inside code or math."""
        return bool(self._span) or self.fence

    @property
    def sealed(self) -> bool:
        """Inside ``\\boxed{…}``, its closing brace included, or on a ``####`` line."""
        return self._depth > 0 or self._was_boxed or self.line.startswith("####")

    def feed(self, char: str) -> None:
        """One character."""
        escaped, self._escape = self._escape, char == "\\" and not self._escape
        self._was_boxed = self._depth > 0
        self.blank = False
        if char == "\n":
            self._newline()
        elif self._span:
            self._within(char, escaped)
        elif self._dollar or self._ticks or char in _OPENING:
            self._outside(char, escaped)
        if char != "\n":
            if len(self.line) < _LINE_PREFIX:
                self.line += char
            self._line_blank = self._line_blank and char.isspace()
        self.tail = (self.tail + char)[-self._keep :]
        if self._depth or char == "{":
            self._braces(char, escaped)

    def _newline(self) -> None:
        self.blank = self._line_blank
        if self.blank:
            self._depth = 0
        if self.blank or self._span in _INLINE:
            self._span = ""
        self._dollar = False
        self._ticks = 0
        self.line = ""
        self._line_blank = True

    def _outside(self, char: str, escaped: bool) -> None:
        if self._dollar:
            self._dollar = False
            if char == "$":
                self._open("$$")
                return
            if self._opens(char):
                self._open("$")
                return
        if char == "`":
            self._ticks += 1
            if self._ticks == 3:
                self.fence = not self.fence
            return
        ticks, self._ticks = self._ticks, 0
        if self.fence:
            return
        if ticks == 1:
            self._open("`")
        elif escaped and char in "([":
            self._open("\\)" if char == "(" else "\\]")
        elif char == "$" and not escaped:
            self._dollar = True

    def _opens(self, char: str) -> bool:
        """Whether the `$` just read, with `char` behind it, opens a span."""
        if char.isdigit() or char.isspace() or char in _CLOSING:
            return False
        left = self.tail[-2:-1]
        return not ((left.isascii() and left.isalnum()) or left in _CLOSED)

    def _open(self, closing: str) -> None:
        self._span = closing
        self._span_length = 0

    def _within(self, char: str, escaped: bool) -> None:
        self._span_length += 1
        span = self._span
        if span in ("\\)", "\\]"):
            closed = escaped and char == span[1]
        elif span == "$$":
            closed = char == "$" and self.tail.endswith("$") and self._span_length > 1
        else:
            closed = char == span and (span == "`" or not escaped)  # code knows no escapes
        if closed or (span in _INLINE and self._span_length >= INLINE_LIMIT):
            self._span = ""

    def _braces(self, char: str, escaped: bool) -> None:
        if self._depth and not escaped:
            self._depth += (char == "{") - (char == "}")
        elif char == "{" and self.tail.endswith("\\boxed{"):
            self._depth = 1
