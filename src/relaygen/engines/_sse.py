"""Server-sent events from raw bytes, however the network cut them."""

from __future__ import annotations


class EventParser:
    """Incremental; only ``data`` matters to us.

    Lines end at LF or CRLF alone: engines write JSON whose strings may hold U+2028 or U+0085,
    at which text-based line splitters would cut an event in two.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads of the events that this chunk completed; comments (pings) give none."""
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
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
