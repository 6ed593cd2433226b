"""Waiting for absolute times, and for the client to go away."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Waiter:
    """Sleeps for one request; wakes at once when its client disconnects.

    Times are those of `time.monotonic`. Everything is due at an absolute time, so that a late
    wake-up delays nothing behind it.

    Args:
        receive: the request's ASGI channel, its body already read.

    Attributes:
        gone: the client has disconnected.
    """

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._loop = asyncio.get_running_loop()
        self._sleeping: asyncio.Future[None] | None = None
        self._task = self._loop.create_task(self._watch(receive))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._wake(self._sleeping)

    @staticmethod
    def _wake(future: asyncio.Future[None] | None) -> None:
        if future is not None and not future.done():
            future.set_result(None)

    async def until(self, due: float) -> bool:
        """Sleep until then, never less; False as soon as the client is gone."""
        slept = False
        while not self.gone:
            left = due - time.monotonic()
            if left <= 0:
                if not slept:
                    await asyncio.sleep(0)  # others get their turn, and a disconnect is noticed
                return not self.gone
            slept = True
            # Whole milliseconds, rounded up: uvloop's timers know no others, and turn shorter
            # ones into a busy loop.
            await self._sleep(math.ceil(left * 1000) / 1000)
        return False

    async def _sleep(self, seconds: float | None) -> None:
        self._sleeping = future = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake, future)
        try:
            await future
        finally:
            self._sleeping = None
            if timer is not None:
                timer.cancel()

    async def forever(self) -> None:
        """Sleep until the client is gone."""
        while not self.gone:
            await self._sleep(None)

    async def aclose(self) -> None:
        """Stop watching; a request's handler ends with it."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
