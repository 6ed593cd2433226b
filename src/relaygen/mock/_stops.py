"""The reply's text: pieces of characters, stop strings, and what is held back for them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Text:
    """Bytes in, text out, up to a stop string.

    Args:
        stops: stop strings.
        include: the stop string stays in the text; then nothing is held back for it.
    """

    def __init__(self, stops: Sequence[str], *, include: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""  # of tokens whose last character is not complete
        self._stops = tuple(stops)
        self._include = include
        self._hold = 0 if include or not stops else max(map(len, stops)) - 1
        self._longest = max(map(len, stops), default=0)
        self._text = ""
        self._sent = 0

    def prime(self, data: bytes) -> None:
        """The prompt's last bytes: a character that begins there is completed here."""
        self._decoder.decode(data)

    def feed(self, data: bytes, *, stoppable: bool = True) -> str | None:
        """One more token's bytes; the stop string that it completed.

        Servers show nothing of a token that ends inside a character until that is complete, not
        even what stands before it in the token.
        """
        text = self._begun + self._decoder.decode(data)
        inside = bool(self._decoder.getstate()[0])
        self._begun, text = (text, "") if inside else ("", text)
        if not self._stops:
            self._text += text
            return None
        begin = max(0, len(self._text) - self._longest + 1)
        self._text += text
        if not stoppable or not text:
            return None
        found = [
            (at + len(stop), at, stop)
            for stop in self._stops
            if (at := self._text.find(stop, begin)) >= 0
        ]
        if not found:
            return None
        end, at, stop = min(found)
        self._text = self._text[: end if self._include else at]
        return stop

    def take(self, *, last: bool = False) -> str:
        """What can be sent now."""
        if not self._stops:
            text, self._text = self._text, ""
            return text
        end = len(self._text) if last else max(self._sent, len(self._text) - self._hold)
        text, self._sent = self._text[self._sent : end], end
        return text
