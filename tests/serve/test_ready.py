from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from relaygen.serve._ready import Ready


async def numbers(log: list[str], *, pause_before: int = 3) -> AsyncGenerator[int, None]:
    try:
        for number in range(6):
            if number == pause_before:
                await asyncio.sleep(0.001)
            yield number
    finally:
        log.append("closing")
        await asyncio.sleep(0)
        log.append("closed")


def test_idle_is_called_just_before_a_wait_and_not_between() -> None:
    async def scenario() -> list[str]:
        log: list[str] = []

        async def idle() -> None:
            log.append("idle")

        async for number in Ready(numbers(log), idle):
            log.append(str(number))
        return log

    # The last wait is that of the generator's own end.
    assert asyncio.run(scenario()) == [*"012", "idle", *"345", "closing", "idle", "closed"]


def test_idle_may_wait_longer_than_the_source() -> None:
    async def scenario() -> list[int]:
        async def idle() -> None:
            await asyncio.sleep(0.02)

        return [number async for number in Ready(numbers([]), idle)]

    assert asyncio.run(scenario()) == list(range(6))


@pytest.mark.parametrize("in_idle", [True, False])
def test_a_cancellation_reaches_the_source(in_idle: bool) -> None:
    async def scenario() -> list[str]:
        log: list[str] = []
        here = asyncio.Event()

        async def endless() -> AsyncGenerator[int, None]:
            try:
                yield 0
                await asyncio.sleep(60)
            finally:
                log.append("stopped")

        async def idle() -> None:
            here.set()
            if in_idle:
                await asyncio.sleep(60)

        async def reading() -> None:
            async with aclosing(endless()) as source:
                async for _ in Ready(source, idle):
                    pass

        task = asyncio.ensure_future(reading())
        await here.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return log

    assert asyncio.run(scenario()) == ["stopped"]


def test_an_error_of_idle_stops_the_source_and_is_raised() -> None:
    async def scenario() -> list[str]:
        log: list[str] = []

        async def idle() -> None:
            if "closing" not in log:
                raise OSError("broken pipe")

        async def reading() -> None:
            async with aclosing(numbers(log)) as source:
                async for _ in Ready(source, idle):
                    pass

        with pytest.raises(OSError, match="broken pipe"):
            await reading()
        return log

    assert asyncio.run(scenario()) == ["closing", "closed"]


def test_an_error_of_the_source_is_raised() -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.sleep(0)
        raise ValueError("source")

    async def scenario() -> None:
        async def idle() -> None:
            pass

        async for _ in Ready(failing(), idle):
            pass

    with pytest.raises(ValueError, match="source"):
        asyncio.run(scenario())
