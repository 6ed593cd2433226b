"""Trying again what may work a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ._errors import EngineError

T = TypeVar("T")

_FIRST_S = 0.2


def pause_before(retry: int) -> float:
    """Seconds to wait before the retry of this number, counted from 0."""
    return _FIRST_S * float(2**retry)


async def retried(call: Callable[[], Awaitable[T]], retries: int) -> T:
    """The result of `call`, which is made up to `retries` times more where that may help.

    Raises:
        EngineError: it still failed, or a retry cannot help.
    """
    for retry in range(retries):
        try:
            return await call()
        except EngineError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(pause_before(retry))
    return await call()
