"""An engine's stream that can be read on while a probe of the other engine is out."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from ._errors import EngineReplyError
from ._types import Delta


class Inbox:
    """Wraps one stream; `aclose` aborts it.

    Args:
        stream: an engine's stream.
    """

    def __init__(self, stream: AsyncGenerator[Delta, None]) -> None:
        self._stream = stream
        self._waiting: deque[Delta] = deque()
        self._next: asyncio.Task[Delta] | None = None

    async def _advance(self) -> Delta:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            raise EngineReplyError(
                "the stream stopped without a finish reason", retryable=True
            ) from None

    async def get(self) -> Delta:
        """The next delta.

        Raises:
            EngineError: the stream failed, or stopped without a last delta.
        """
        if self._waiting:
            return self._waiting.popleft()
        if self._next is not None:
            task, self._next = self._next, None
            return await task
        return await self._advance()

    async def until(self, task: asyncio.Task[Any]) -> None:
        """Wait for `task`; what arrives meanwhile waits too."""
        while not task.done():
            if self._waiting and self._waiting[-1].end is not None:
                await asyncio.wait({task})
                return
            if self._next is None:
                self._next = asyncio.ensure_future(self._advance())
            await asyncio.wait({task, self._next}, return_when=asyncio.FIRST_COMPLETED)
            if self._next.done():
                if self._next.cancelled() or self._next.exception() is not None:
                    await asyncio.wait({task})  # `get` will raise it
                    return
                self._waiting.append(self._next.result())
                self._next = None

    @property
    def waiting(self) -> int:
        """Pieces that arrived and were not taken."""
        return sum(len(delta.pieces) for delta in self._waiting)

    async def aclose(self) -> None:
        """Abort the stream. What came at the last moment waits still, for whoever counts it."""
        if self._next is not None:
            self._next.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                self._waiting.append(await self._next)
        await self._stream.aclose()
