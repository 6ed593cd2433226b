"""Reading an asynchronous generator and knowing when it has to wait.

What is there already can then be sent together; nothing is delayed for it, and no task or queue
stands in between.
"""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ready(Generic[T]):
    """Iterates over `source`.

    Args:
        source: is read to its end; closing it stays the caller's business.
        idle: awaited each time before the next item has to be waited for.
    """

    def __init__(
        self, source: AsyncGenerator[T, None], idle: Callable[[], Awaitable[None]]
    ) -> None:
        self._source = source
        self._idle = idle

    def __aiter__(self) -> Ready[T]:
        return self

    async def __anext__(self) -> T:
        item: T = await _step(self._source.__anext__(), self._idle)
        return item


@types.coroutine
def _step(step: Any, idle: Callable[[], Awaitable[None]]) -> Generator[Any, Any, Any]:
    """`await step`, with `idle` awaited between its first suspension and handing that on.

    The future that `step` waits for is only held back meanwhile: the event loop accepts it later,
    even when it is done by then. An exception that arrives here goes into `step` as it would
    without us, or its generator would be left running.
    """
    try:
        waiting = step.send(None)
    except StopIteration as done:
        return done.value
    sent: Any = None
    problem: BaseException | None = None
    try:
        yield from idle().__await__()
    except BaseException as error:
        problem = error
    while True:
        if problem is None:
            try:
                sent = yield waiting
            except BaseException as error:
                problem = error
        try:
            if problem is None:
                waiting = step.send(sent)
            else:
                problem, thrown = None, problem
                waiting = step.throw(thrown)
        except StopIteration as done:
            return done.value
