"""The inbox: one stream, read on while a probe is out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from relaygen import EngineReplyError, EngineUnreachableError
from relaygen._inbox import Inbox
from relaygen._types import Delta, Piece


async def deltas(
    count: int, closed: list[bool], *, error: bool = False
) -> AsyncGenerator[Delta, None]:
    try:
        for n in range(count):
            await asyncio.sleep(0.002)
            yield Delta((Piece(n, b"x"),), end="turn" if n == count - 1 and not error else None)
        if error:
            raise EngineUnreachableError("reset")
    finally:
        closed.append(True)


def play(body: Callable[[], Awaitable[None]]) -> None:
    async def go() -> None:
        await body()

    asyncio.run(go())


def test_what_arrives_during_a_probe_waits_in_order() -> None:
    async def body() -> None:
        inbox = Inbox(deltas(10, []))
        assert (await inbox.get()).pieces[0].id == 0
        await inbox.until(asyncio.ensure_future(asyncio.sleep(0.012)))
        waiting = inbox.waiting
        assert 1 <= waiting <= 8
        ids = [(await inbox.get()).pieces[0].id for _ in range(9)]
        assert ids == list(range(1, 10))
        await inbox.aclose()

    play(body)


def test_a_stream_that_ends_early_is_an_error() -> None:
    async def body() -> None:
        async def nothing() -> AsyncGenerator[Delta, None]:
            for delta in list[Delta]():
                yield delta

        with pytest.raises(EngineReplyError, match="without a finish reason"):
            await Inbox(nothing()).get()

    play(body)


def test_an_error_during_a_probe_is_raised_at_the_next_get() -> None:
    async def body() -> None:
        inbox = Inbox(deltas(1, [], error=True))
        await inbox.until(asyncio.ensure_future(asyncio.sleep(0.03)))
        assert (await inbox.get()).pieces
        with pytest.raises(EngineUnreachableError):
            await inbox.get()

    play(body)


def test_until_reads_nothing_beyond_the_end() -> None:
    async def body() -> None:
        inbox = Inbox(deltas(2, []))
        await inbox.until(asyncio.ensure_future(asyncio.sleep(0.05)))
        assert inbox.waiting == 2
        assert [(await inbox.get()).end for _ in range(2)] == [None, "turn"]

    play(body)


def test_what_came_while_nobody_looked_is_counted_at_the_end() -> None:
    async def body() -> None:
        inbox = Inbox(deltas(100, []))
        await inbox.get()
        probe = asyncio.ensure_future(asyncio.sleep(60))
        waiting = asyncio.ensure_future(inbox.until(probe))
        await asyncio.sleep(0)  # it reads on
        waiting.cancel()
        await asyncio.wait({waiting})
        probe.cancel()
        await asyncio.sleep(0.01)
        assert inbox.waiting == 0
        await inbox.aclose()
        assert inbox.waiting == 1

    play(body)


def test_closing_aborts_the_stream_even_while_it_is_read() -> None:
    async def body() -> None:
        closed: list[bool] = []
        inbox = Inbox(deltas(100, closed))
        await inbox.get()
        await inbox.until(asyncio.ensure_future(asyncio.sleep(0.004)))
        await inbox.aclose()
        assert closed == [True]

    play(body)
