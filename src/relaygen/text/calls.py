"""Where a tool call is open in a text."""

from __future__ import annotations


class CallSpan:
    """Follows the tags of tool calls through a text that arrives in parts.

    Args:
        opening: for example ``<tool_call>``.
        closing: for example ``</tool_call>``.
    """

    __slots__ = ("_closing", "_opening", "_tail", "open")

    def __init__(self, opening: str, closing: str) -> None:
        self._opening = opening
        self._closing = closing
        self._tail = ""
        self.open = False

    @property
    def opening(self) -> bool:
        """Whether the text ends in a beginning of the opening tag."""
        sizes = range(1, len(self._opening))
        return not self.open and any(self._tail.endswith(self._opening[:n]) for n in sizes)

    def feed(self, text: str) -> bool:
        """Whether a call is open behind this text."""
        seen = self._tail + text
        while True:
            tag = self._closing if self.open else self._opening
            at = seen.find(tag)
            if at < 0:
                self._tail = seen[-(len(tag) - 1) :]
                return self.open
            seen = seen[at + len(tag) :]
            self.open = not self.open
