"""The sync face."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator

import pytest

from relaygen import UsageError
from relaygen._sync import LoopThread


async def counting(count: int, closed: list[bool]) -> AsyncGenerator[int, None]:
    try:
        for number in range(count):
            await asyncio.sleep(0)
            yield number
    finally:
        closed.append(True)


def test_call_and_iterate() -> None:
    loop = LoopThread()
    assert loop.call(asyncio.sleep(0, 5)) == 5
    closed: list[bool] = []
    assert list(loop.iterate(counting(4, closed))) == [0, 1, 2, 3]
    assert closed == [True]
    loop.close()
    loop.close()


def test_errors_cross_the_thread() -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise KeyError("x")

    loop = LoopThread()
    iteration = iter(loop.iterate(failing()))
    assert next(iteration) == 1
    with pytest.raises(KeyError):
        next(iteration)
    loop.close()


def test_leaving_early_aborts_and_waits_for_the_clean_up() -> None:
    loop = LoopThread()
    closed: list[bool] = []

    async def endless() -> AsyncGenerator[int, None]:
        try:
            while True:
                await asyncio.sleep(0.001)
                yield 1
        finally:
            await asyncio.sleep(0.01)
            closed.append(True)

    for _ in loop.iterate(endless()):
        break
    # The for loop's iterator is closed when it is collected, which CPython does at once.
    assert closed == [True]
    loop.close()


def test_a_forgotten_close_does_not_hang_the_program() -> None:
    code = (
        "from relaygen._sync import LoopThread\nimport asyncio\n"
        "print(LoopThread().call(asyncio.sleep(0, 'done')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "done\n"


def test_the_thread_is_gone_after_close() -> None:
    before = threading.enumerate()
    loop = LoopThread()
    assert len(threading.enumerate()) == len(before) + 1
    loop.close()
    assert threading.enumerate() == before


def test_closing_the_loop_ends_what_runs_and_leaves_no_reader_waiting() -> None:
    loop = LoopThread()
    closed: list[bool] = []

    async def stuck() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    iteration = iter(loop.iterate(stuck()))
    assert next(iteration) == 1
    loop.close()
    assert closed == [True]
    with pytest.raises(UsageError, match="closed"):
        next(iteration)
