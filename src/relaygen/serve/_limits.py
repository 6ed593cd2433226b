"""Admission: so many requests generate, so many wait, the rest is told when to come back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from ._errors import ApiError, unavailable

_LONGEST_S = 60
_WEIGHT = 0.2  # of the newest request in the mean duration


class Admission:
    """First come, first served.

    Args:
        most: requests that run at once.
        queue: requests that wait beyond those.
        clock: seconds, monotonic.

    Attributes:
        running: how many run.
        draining: whether nobody new is let in.
    """

    def __init__(
        self, most: int, queue: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._queue = queue
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._mean = 0.0
        self.running = 0
        self.draining = False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nobody runs or waits."""
        return not self.running and not self._waiting

    @property
    def retry_after(self) -> int:
        """Seconds until a place may be free, from how long requests took."""
        rounds = (len(self._waiting) + 1) / self._most
        return max(1, min(_LONGEST_S, round(self._mean * rounds)))

    def check(self) -> None:
        """Whether a request may come in at all, before anything is done for it.

        Raises:
            ApiError: 503 while draining, 429 where the queue is full.
        """
        if self.draining:
            raise unavailable(
                "the server is shutting down", code="shutting_down", seconds=self.retry_after
            )
        if self.running >= self._most and len(self._waiting) >= self._queue:
            raise ApiError(
                429,
                f"{self.running} requests are running and {len(self._waiting)} wait",
                type="rate_limit_error",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(self.retry_after)},
            )

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None, None]:
        """Wait for a place and hold it. A caller that is cancelled gives it up.

        Raises:
            ApiError: see `check`.
        """
        self.check()
        if self.running < self._most:
            self.running += 1
        else:
            await self._turn()
        began = self._clock()
        try:
            yield
        finally:
            took = self._clock() - began
            self._mean += (_WEIGHT if self._mean else 1.0) * (took - self._mean)
            self._leave()

    async def _turn(self) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._leave()  # the place was handed over in the same moment
            else:
                self._waiting.remove(mine)
            raise

    def _leave(self) -> None:
        """Hand the place over, or free it."""
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self.running -= 1
