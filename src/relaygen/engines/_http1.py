"""HTTP/1.1 replies from raw bytes, as far as a client of an inference server needs them.

No I/O. It exists for speed: an event stream brings one small chunk per token, which here costs
microseconds where a general client spends tens of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Framing = Literal["none", "chunked", "length", "close"]
"""How the end of a body is known; ``close`` is the end of the connection."""

_LONGEST_SIZE = 1024
"""Bytes of a chunk's size line, extensions included; more is no HTTP."""


@dataclass(frozen=True)
class Head:
    """Status line and fields of a reply; names are in lower case, of equal ones the last counts."""

    status: int
    reason: str
    fields: dict[str, str]
    version: str

    @property
    def kept(self) -> bool:
        """Whether the server keeps the connection behind the body."""
        how = self.fields.get("connection", "").lower()
        return "close" not in how and (self.version != "HTTP/1.0" or "keep-alive" in how)

    @property
    def framing(self) -> Framing:
        """How the body ends (of a reply to GET or POST)."""
        if self.status in (204, 304) or 100 <= self.status < 200:
            return "none"
        if self.fields.get("transfer-encoding", "").lower().endswith("chunked"):
            return "chunked"
        return "length" if "content-length" in self.fields else "close"


def parse_head(raw: bytes) -> Head:
    """Everything up to and with the empty line.

    Raises:
        ValueError: that is no HTTP.
    """
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    version, _, rest = first.partition(" ")
    code, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or len(code) != 3 or not code.isdigit():
        raise ValueError(first)
    fields = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(line)
        fields[name.strip().lower()] = value.strip()
    if not fields.get("content-length", "0").isdigit():
        raise ValueError(fields["content-length"])
    return Head(int(code), reason, fields, version)


class Body:
    """Takes a body's bytes out of its framing.

    Attributes:
        done: the body is complete.
        clean: so is the connection: nothing followed, and it may serve another request.
    """

    def __init__(self, framing: Framing, length: int = 0) -> None:
        self._framing = framing
        self._left = length
        self._raw = b""
        self._behind = self._trailer = False
        self.done = framing == "none" or (framing == "length" and not length)
        self.clean = self.done

    def feed(self, data: bytes) -> bytes:
        """What these bytes add to the body.

        Raises:
            ValueError: that is no HTTP.
        """
        if self._framing == "chunked":
            return self._chunks(data)
        if self._framing == "close":
            return data
        self.clean = len(data) == self._left
        data = data[: self._left]
        self._left -= len(data)
        self.done = not self._left
        return data

    def end(self) -> bool:
        """The connection has ended; whether the body may end so."""
        self.done = self.done or self._framing == "close"
        return self.done

    def _chunks(self, data: bytes) -> bytes:
        if self._raw:
            data = self._raw + data
        found: list[bytes] = []
        at, size = 0, len(data)
        while at < size and not self.done:
            if self._left:  # inside a chunk
                part = data[at : at + self._left]
                found.append(part)
                at += len(part)
                self._left -= len(part)
                self._behind = not self._left
                continue
            stop = data.find(b"\r\n", at)
            if stop < 0:
                if size - at > _LONGEST_SIZE:
                    raise ValueError("a chunk without a size")
                break
            line, at = data[at:stop], stop + 2
            if self._behind:
                if line:
                    raise ValueError("a chunk longer than its size")
                self._behind = False
            elif self._trailer:  # the last chunk came; fields may follow it
                self.done = not line
            else:
                self._left = _size(line)
                self._trailer = not self._left
        self._raw = data[at:]
        self.clean = self.done and not self._raw
        return found[0] if len(found) == 1 else b"".join(found)


def _size(line: bytes) -> int:
    """The length of a chunk, from the line before it."""
    number = line if line.isalnum() else line.partition(b";")[0].strip()
    if not number.isalnum():  # `int` takes signs and underscores too
        raise ValueError(f"no chunk size: {line[:40]!r}")
    return int(number, 16)
