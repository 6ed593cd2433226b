from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest

from relaygen.serve._errors import ApiError
from relaygen.serve._limits import Admission

T = TypeVar("T")


async def hold(admission: Admission, order: list[int], number: int, leave: asyncio.Event) -> None:
    async with admission.place():
        order.append(number)
        await leave.wait()


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """A place that is lost would be waited for without end."""
    return asyncio.run(asyncio.wait_for(scenario, 10))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_so_many_run_so_many_wait_in_order_and_the_rest_is_refused() -> None:
    async def scenario() -> None:
        admission, order = Admission(2, 2), list[int]()
        leave = [asyncio.Event() for _ in range(4)]
        tasks = [asyncio.ensure_future(hold(admission, order, n, leave[n])) for n in range(4)]
        await settle()
        assert (order, admission.running, admission.waiting) == ([0, 1], 2, 2)
        with pytest.raises(ApiError) as refused:
            admission.check()
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        leave[1].set()
        await settle()
        assert (order, admission.running, admission.waiting) == ([0, 1, 2], 2, 1)
        for event in leave:
            event.set()
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3]
        assert admission.idle

    run(scenario())


def test_who_gives_up_waiting_leaves_no_gap() -> None:
    async def scenario() -> None:
        admission, order = Admission(1, 5), list[int]()
        leave = asyncio.Event()
        tasks = [asyncio.ensure_future(hold(admission, order, n, leave)) for n in range(4)]
        await settle()
        tasks[1].cancel()
        await settle()
        assert admission.waiting == 2
        leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [0, 2, 3]
        assert admission.idle

    run(scenario())


def test_a_place_handed_to_somebody_who_just_gave_up_goes_on() -> None:
    async def scenario() -> None:
        admission, order = Admission(1, 5), list[int]()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(admission.place())
            leave = asyncio.Event()
            leave.set()
            tasks = [asyncio.ensure_future(hold(admission, order, n, leave)) for n in range(2)]
            await settle()
        tasks[0].cancel()  # in the same step in which it was given the place
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [1]
        assert admission.idle

    run(scenario())


def test_draining_lets_nobody_in_but_those_who_wait() -> None:
    async def scenario() -> None:
        admission, order, leave = Admission(1, 5), list[int](), asyncio.Event()
        tasks = [asyncio.ensure_future(hold(admission, order, n, leave)) for n in range(2)]
        await settle()
        admission.draining = True
        with pytest.raises(ApiError) as refused:
            admission.check()
        assert (refused.value.status, refused.value.code) == (503, "shutting_down")
        leave.set()
        await asyncio.gather(*tasks)
        assert order == [0, 1]

    run(scenario())


def test_the_wait_that_is_told_follows_how_long_requests_take() -> None:
    times = iter([0.0, 30.0, 30.0, 1000.0])

    async def scenario() -> list[int]:
        admission = Admission(2, 5, clock=lambda: next(times))
        told = [admission.retry_after]
        for _ in range(2):
            async with admission.place():
                pass
            told.append(admission.retry_after)
        return told

    assert run(scenario()) == [1, 15, 60]
