"""The thin sync face: one event loop on a daemon thread, so a forgotten `close` hangs nobody."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from ._errors import UsageError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers without an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relaygen", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end; Ctrl-C in the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, generator: AsyncGenerator[T, None]) -> Iteration[T]:
        """Iterate over an async generator; it runs ahead of its reader."""
        return Iteration(generator, self._loop)

    def close(self) -> None:
        """Stop the loop. Safe to call twice."""
        if self._thread.is_alive():
            self.call(_cancel_others())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


class Iteration(Generic[T]):
    """A running async generator, read from another thread."""

    _END = object()

    def __init__(self, generator: AsyncGenerator[T, None], loop: asyncio.AbstractEventLoop) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._loop = loop
        self._over = threading.Event()
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start, generator)

    def _start(self, generator: AsyncGenerator[T, None]) -> None:
        # One task for the whole life: timeouts and cancellation inside need a single owner.
        self._task = self._loop.create_task(self._pump(generator))
        self._task.add_done_callback(lambda task: self._over.set())

    async def _pump(self, generator: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(generator):
                async for item in generator:
                    self._items.put(item)
            self._items.put(self._END)
        except asyncio.CancelledError:  # by `close`, or because the loop ends: nobody may wait on
            self._items.put(_Raised(UsageError("closed before the end of the stream")))
            raise
        except Exception as error:
            self._items.put(_Raised(error))

    def __iter__(self) -> Iterator[T]:
        try:
            while (item := self._items.get()) is not self._END:
                if isinstance(item, _Raised):
                    raise item.error
                yield item
        finally:
            self.close()

    def close(self) -> None:
        """Abort the generator and wait for its clean-up. Safe to call twice."""
        if not self._over.is_set():
            self._loop.call_soon_threadsafe(self._cancel)
            self._over.wait()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error
