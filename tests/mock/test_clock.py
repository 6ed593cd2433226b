from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from relaygen.mock._clock import Waiter


class Connection:
    """An ASGI channel whose client goes away when told to."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.closing.wait()
        return {"type": "http.disconnect"}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_it_never_wakes_early() -> None:
    async def test() -> None:
        waiter = Waiter(Connection().receive)
        for wait in (0.0004, 0.0015, 0.01, 0.02):
            due = time.monotonic() + wait
            assert await waiter.until(due)
            assert time.monotonic() >= due
        await waiter.aclose()

    run(test())


def test_a_disconnect_wakes_at_once() -> None:
    async def test() -> None:
        connection = Connection()
        waiter = Waiter(connection.receive)
        asyncio.get_running_loop().call_later(0.01, connection.closing.set)
        assert not await waiter.until(time.monotonic() + 3600)
        assert waiter.gone
        assert not await waiter.until(0)
        await waiter.forever()
        await waiter.aclose()

    run(test())


def test_what_is_overdue_lets_others_run() -> None:
    async def test() -> None:
        connection = Connection()
        waiter = Waiter(connection.receive)
        asyncio.get_running_loop().call_soon(connection.closing.set)
        count = 0
        while await waiter.until(0):
            count += 1
        assert count < 20
        await waiter.aclose()

    run(test())


def test_forever_ends_with_the_client() -> None:
    async def test() -> None:
        connection = Connection()
        waiter = Waiter(connection.receive)
        asyncio.get_running_loop().call_later(0.01, connection.closing.set)
        await waiter.forever()
        assert waiter.gone
        await waiter.aclose()

    run(test())


def test_closing_stops_the_watch() -> None:
    async def test() -> None:
        before = asyncio.all_tasks()
        waiter = Waiter(Connection().receive)
        assert asyncio.all_tasks() != before
        await waiter.aclose()
        assert asyncio.all_tasks() == before
        assert not waiter.gone

    run(test())
