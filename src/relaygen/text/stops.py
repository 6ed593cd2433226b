"""The client's stop strings, over text that arrives in pieces of any size."""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """Passes text through until one of the strings is complete.

    Text that may be the beginning of a stop string is held back. The first string to be complete
    wins (of two that end together the longer one), so the result does not depend on how the text
    is cut into pieces; it and everything behind it never come out.

    Args:
        stops: the strings; empty ones are ignored.
    """

    __slots__ = ("_held", "_stops", "stopped")

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that is certain to be shown; sets `stopped` when a string is complete."""
        if not self._stops or self.stopped:
            return "" if self.stopped else text
        joined = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := joined.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return joined[: min(found)[1]]
        keep = max(_overlap(joined, stop) for stop in self._stops)
        self._held = joined[len(joined) - keep :]
        return joined[: len(joined) - keep]

    def flush(self) -> str:
        """What was held back, when the text is over."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` may be the beginning of `stop`."""
    return next(n for n in range(min(len(text), len(stop) - 1), -1, -1) if text.endswith(stop[:n]))
