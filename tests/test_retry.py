"""Trying again."""

from __future__ import annotations

import asyncio

import pytest

from relaygen import EngineError, EngineReplyError, EngineUnreachableError, _retry
from relaygen._retry import pause_before, retried


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retry, "_FIRST_S", 0.0)


class Calls:
    def __init__(self, *errors: EngineError) -> None:
        self.errors = list(errors)
        self.made = 0

    async def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "ok"


def test_a_failure_that_may_pass_is_tried_again() -> None:
    calls = Calls(EngineUnreachableError("a"), EngineUnreachableError("b"))
    assert asyncio.run(retried(calls, 2)) == "ok"
    assert calls.made == 3


def test_the_last_failure_is_raised() -> None:
    calls = Calls(EngineUnreachableError("a"), EngineUnreachableError("b"))
    with pytest.raises(EngineUnreachableError, match="b"):
        asyncio.run(retried(calls, 1))


def test_what_cannot_help_is_not_tried() -> None:
    calls = Calls(EngineReplyError("a"))
    with pytest.raises(EngineReplyError):
        asyncio.run(retried(calls, 5))
    assert calls.made == 1


def test_pauses_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retry, "_FIRST_S", 0.5)
    assert [pause_before(n) for n in range(3)] == [0.5, 1.0, 2.0]
