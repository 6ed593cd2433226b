"""Text as it is generated: reasoning to stderr, the answer to stdout, coloured by writer.

Model text is written raw: no markup, no wrapping, each piece with its own colour codes, so that two
streams on one terminal cannot bleed into each other. On a terminal, control characters are made
visible instead of obeyed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TextIO

from relaygen._events import Event, Inserted, StageChanged, Text
from relaygen._results import Generation
from relaygen.cli._summary import BLOCKS, LETTERS, Glyphs, Line, Mark, Shown, short_summary, summary

# Violet and green, as in the reports, are told apart by people with any common colour blindness.
# These two, and the orange, have a contrast of about 4 : 1 on white and on black alike. The small
# model's text is in italics too, for those who see no colour: dim text would lose its contrast,
# underlining hides the underscores of code and formulas, and bold type is too loud for either.
_MANY_COLOURS: Mapping[Mark, str] = {
    "large": "38;5;98",
    "small": "3;38;5;30",
    "inserted": "38;5;166",
    "faint": "2",
}
# With 16 colours the terminal's theme decides what they look like, and only its own text colour is
# sure to be readable.
_FEW_COLOURS: Mapping[Mark, str] = {"small": "3;35", "inserted": "36", "faint": "2"}

_UNSAFE = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\n\t"
}


class Out:
    """One output stream: knows whether it is a terminal, what colours it has, where its line is.

    Args:
        stream: a text stream such as ``sys.stdout``.

    Attributes:
        terminal: whether a person looks at it; ``FORCE_COLOR`` has no say in this.
        movable: whether its cursor can be moved back.
        width: columns; 80 where it is no terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        console = Console(file=stream)
        plain = console.no_color or console.color_system is None
        few = console.color_system == "standard"
        self._codes: Mapping[Mark, str] = {} if plain else _FEW_COLOURS if few else _MANY_COLOURS
        self._stream = stream
        self._line = ""  # its last character
        self.terminal = stream.isatty()
        self.movable = self.terminal and not console.is_dumb_terminal
        self.width = max(40, console.width)

    @property
    def glyphs(self) -> Glyphs:
        """Blocks where there are colours, and where the encoding has them; else letters."""
        try:
            "".join(BLOCKS).encode(self._stream.encoding or "utf-8")
        except UnicodeEncodeError:
            return LETTERS
        return BLOCKS if self._codes else LETTERS

    def write(self, text: str, mark: Mark = "") -> None:
        """Write at once, without an end of line of its own.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        if not text:
            return
        self._line = text[-1]
        if self.terminal:
            text = text.translate(_UNSAFE)
        encoding = self._stream.encoding or "utf-8"
        text = text.encode(encoding, errors="replace").decode(encoding)
        code = self._codes.get(mark)
        self._stream.write(f"\x1b[{code}m{text}\x1b[0m" if code else text)
        self._stream.flush()

    def erase_line(self) -> None:
        """Take back what was written since the last end of line; on a movable terminal only."""
        self._stream.write("\r\x1b[K")
        self._stream.flush()
        self._line = ""

    def end_line(self) -> None:
        """Start a new line, unless this is the start of one."""
        if self._line not in ("", "\n"):
            self.write("\n")

    def lines(self, lines: Iterable[Line]) -> None:
        """Write whole lines."""
        for line in lines:
            for text, mark in line:
                self.write(text, mark)
            self.write("\n")

    def say(self, text: str) -> None:
        """Write one plain line, behind whatever was written before."""
        self.end_line()
        self.write(f"{text}\n")


class Screen:
    """Where the events of a generation become visible. A context manager: it leaves whole lines.

    Args:
        out: takes the answer; ``sys.stdout`` by default.
        err: takes the reasoning; ``sys.stderr`` by default.
        reasoning: whether to show the reasoning.
        answer: whether to show anything of the text.
        status: whether to show what is being waited for.
    """

    def __init__(
        self,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        reasoning: bool = True,
        answer: bool = True,
        status: bool = True,
    ) -> None:
        self.out = Out(out or sys.stdout)
        self.err = Out(err or sys.stderr)
        self._answer = answer
        self._reasoning = reasoning and answer
        self._status = status and self.err.movable
        self._waiting = False  # a status is on the screen
        self._writing = False  # text that is not shown is being written
        self._thought = False  # reasoning is, and no answer behind it

    def status(self, text: str) -> None:
        """Show what is being waited for, until something else is written; on terminals only."""
        self._clear_status()
        if self._status:
            self.err.write(text, "faint")
            self._waiting = True

    def _clear_status(self) -> None:
        if self._waiting:
            self._waiting = False
            self.err.erase_line()

    def show(self, event: Event) -> None:
        """Show what is to be seen of an event."""
        if not self._answer:
            if isinstance(event, Text) and not self._writing:
                self._writing = True
                self.status("writing …")
        elif isinstance(event, Text) and event.stage == "answer":
            self._clear_status()
            self._part()
            self.out.write(event.text, event.role)
        elif isinstance(event, Text) and event.stage == "reasoning" and self._reasoning:
            self._clear_status()
            self._thought = True
            self.err.write(event.text, event.role)
        elif isinstance(event, Inserted) and self._thought and self.err.terminal:
            self.err.end_line()
            self.err.write(event.text.strip(), "inserted")
        elif isinstance(event, StageChanged):
            self._part()

    def _part(self) -> None:
        """End the reasoning; an empty line follows where the answer is on the same terminal."""
        if self._thought:
            self._thought = False
            self.err.end_line()
            if self.err.terminal and self.out.terminal:
                self.err.write("\n")

    def end(self) -> None:
        """The text is over: whatever follows starts on a new line. Safe to call twice."""
        self._clear_status()
        self.out.end_line()
        if self._thought:
            self._thought = False
            self.err.end_line()

    def summary(self, generation: Generation, shown: Shown) -> None:
        """The summary on stderr, behind an empty line."""
        self.err.write("\n")
        self.err.lines(summary(generation, shown, width=self.err.width, glyphs=self.err.glyphs))

    def short_summary(self, generation: Generation) -> None:
        """One line on stderr after a turn of a chat."""
        self.err.lines(short_summary(generation, width=self.err.width))

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, BrokenPipeError):
            self.end()
