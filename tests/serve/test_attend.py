from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relaygen.serve._attend import Attendance, Cut, Gone


async def stays() -> dict[str, Any]:
    await asyncio.sleep(60)
    return {"type": "http.disconnect"}


def test_the_works_result_and_its_error() -> None:
    async def works() -> int:
        await asyncio.sleep(0)
        return 7

    async def fails() -> int:
        raise ValueError("no")

    async def scenario() -> int:
        attendance = Attendance()
        with pytest.raises(ValueError, match="no"):
            await attendance.attend(stays, fails())
        result = await attendance.attend(stays, works())
        assert not attendance.tasks
        return result

    assert asyncio.run(scenario()) == 7


@pytest.mark.parametrize("how", ["gone", "cut", "cancelled"])
def test_the_work_has_ended_when_the_call_has(how: str) -> None:
    async def scenario() -> list[str]:
        log: list[str] = []
        attendance = Attendance()
        begun = asyncio.Event()

        async def works() -> None:
            try:
                begun.set()
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
                log.append("ended")

        async def leaves() -> dict[str, Any]:
            await begun.wait()
            return {"type": "http.disconnect"}

        receive = leaves if how == "gone" else stays
        expected = {"gone": Gone, "cut": Cut, "cancelled": asyncio.CancelledError}[how]
        task = asyncio.ensure_future(attendance.attend(receive, works()))
        await begun.wait()
        if how == "cut":
            attendance.cut()
        if how == "cancelled":
            task.cancel()
        with pytest.raises(expected):
            await task
        return log

    assert asyncio.run(scenario()) == ["ended"]
