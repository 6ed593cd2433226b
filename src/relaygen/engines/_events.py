"""An event stream as it is read: objects, and what its failures mean."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from .._errors import EngineError, EngineReplyError
from ._replies import Replies
from ._sse import EventParser
from ._transport import Reply, TransportError

_REST_S = 3.0
"""Seconds without an event behind the last token, after which the rest of the stream is left."""

_TAIL_S = 0.1
"""Seconds to wait behind the last event for the end of the reply, which keeps the connection."""


class Events:
    """The objects of an event stream, as many at a time as have come.

    Attributes:
        ended: the server said that this is all.
    """

    def __init__(
        self,
        read: Replies,
        reply: Reply,
        stall: float,
        trim: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._read = read
        self._trim = trim
        self._reply = reply
        self._stall = stall
        self._begun = False
        self._failure: EngineError | None = None
        self._parser = EventParser()
        self.ended = False

    async def read(self) -> list[dict[str, Any]]:
        """The next ones; an empty list at the end of the stream.

        Raises:
            EngineError: broken off, stalled, an error event, or what is no JSON object.
        """
        if self._failure is not None:
            raise self._failure
        while not self.ended:
            try:
                data = await self._reply.read()
            except TransportError as error:
                if self._begun and self._reply.late:
                    raise self._read.stalled(self._stall) from error
                raise self._read.unreachable(error) from error
            if not data:
                self.ended = True
                break
            try:
                payloads = self._parser.feed(data)
            except ValueError as error:
                raise EngineReplyError(
                    f"{self._read.url} sent {error}", role=self._read.role
                ) from None
            if not payloads:  # a ping, or part of an event
                continue
            if self._begun:
                self._reply.alive()
            else:
                self._begun = True
                self._reply.watch(self._stall)
            if b"[DONE]" in payloads:
                self.ended = True
                payloads = payloads[: payloads.index(b"[DONE]")]
            if payloads:
                if self._trim is not None:
                    payloads = list(map(self._trim, payloads))
                return self._objects(payloads)
        return []

    def _objects(self, payloads: list[bytes]) -> list[dict[str, Any]]:
        """What comes before a failure is given; the next `read` raises it."""
        found: list[dict[str, Any]] = []
        for payload in payloads:
            try:
                found.append(self._read.event(payload))
            except EngineError as error:
                if not found:
                    raise
                self._failure = error
                break
        return found

    def hasten(self) -> None:
        """The last tokens came: what else is told follows at once, or is not waited for."""
        self._stall = _REST_S
        self._reply.watch(_REST_S)

    async def drain(self) -> None:
        """Wait a moment for the end of the reply, so that its connection can be used again."""
        self._reply.watch(_TAIL_S)
        with contextlib.suppress(TransportError):
            await self._reply.all()

    def close(self) -> None:
        """End the connection at once, which aborts the work, unless all was read."""
        self._reply.close()
