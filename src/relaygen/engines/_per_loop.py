"""Things that belong to one event loop, for engines that outlive it.

A program may call ``asyncio.run`` more than once with the same engine; a connection pool or a lock
of the first loop would fail in the second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes its thing on first use and again in every other event loop.

    Args:
        make: called without arguments inside the loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[asyncio.AbstractEventLoop, T] | None = None

    def get(self) -> T:
        """The thing of the running loop."""
        loop = asyncio.get_running_loop()
        if self._made is None or self._made[0] is not loop:
            self._made = (loop, self._make())
        return self._made[1]

    def take(self) -> T | None:
        """The thing of the running loop, which is then forgotten; None where there is none."""
        made, self._made = self._made, None
        return made[1] if made and made[0] is asyncio.get_running_loop() else None
