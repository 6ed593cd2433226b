"""Text from token bytes: one incremental decoder per generation."""

from __future__ import annotations

import codecs


class Utf8:
    """Decodes the joined bytes of a generation, token by token.

    Bytes that are not UTF-8 become U+FFFD; an incomplete character waits for its rest.
    """

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> str:
        """The text that these bytes completed."""
        return self._decoder.decode(data)

    @property
    def whole(self) -> bool:
        """Between characters: nothing waits."""
        return not self._decoder.getstate()[0]

    def reset(self) -> None:
        """Forget an incomplete character, whose bytes were discarded."""
        self._decoder.reset()

    def finish(self) -> str:
        """The rest at the end of the text: U+FFFD for an incomplete character, else empty."""
        return self._decoder.decode(b"", final=True)
