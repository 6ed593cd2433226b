"""Server-sent events from raw bytes, however the network cut them."""

from __future__ import annotations

_LONGEST = 1 << 26
"""Bytes of a line; the longest are those that repeat a prompt's token ids."""


class EventParser:
    """Incremental; only ``data`` matters to us.

    Lines end at LF or CRLF alone: engines write JSON whose strings may hold U+2028 or U+0085,
    at which text-based line splitters would cut an event in two.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads of the events that this chunk completed; comments (pings) give none.

        Raises:
            ValueError: a line without an end.
        """
        if not self._line and not self._data and chunk[:6] == b"data: " and chunk[-2:] == b"\n\n":
            payload = chunk[6:-2]
            if b"\n" not in payload and b"\r" not in payload:
                return [payload]  # the usual chunk: one event of one line
        found = []
        *lines, rest = chunk.split(b"\n")
        for part in lines:
            line = bytes(self._line + part).removesuffix(b"\r")
            self._line.clear()
            if line:
                self._field(line)
            elif self._data:
                found.append(b"\n".join(self._data))
                self._data.clear()
        self._line += rest
        if len(self._line) > _LONGEST:
            raise ValueError("a line without an end")
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
