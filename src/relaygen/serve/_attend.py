"""Doing a request's work while its client is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class Gone(Exception):
    """The client went away; the work was stopped."""


class Cut(Exception):
    """The server stopped the work: its time is up."""


class Attendance:
    """The work in progress.

    Attributes:
        tasks: one for each request that generates.
    """

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()

    def cut(self) -> None:
        """Stop everything."""
        for task in self.tasks:
            task.cancel()

    async def attend(self, receive: Receive, work: Coroutine[Any, Any, T]) -> T:
        """The work's result. It has ended, its engines aborted, whatever is returned or raised.

        Args:
            receive: of the request, whose body has been read.
            work: runs in a task of its own.

        Raises:
            Gone: the client closed the connection first.
            Cut: the work was cancelled.
        """
        task = asyncio.ensure_future(work)
        watcher = asyncio.ensure_future(_gone(receive))
        self.tasks.add(task)
        try:
            await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Gone
            if task.cancelled():
                raise Cut
            return task.result()
        finally:
            self.tasks.discard(task)
            task.cancel()
            watcher.cancel()
            await asyncio.gather(task, watcher, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
