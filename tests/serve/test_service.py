from __future__ import annotations

import pytest

from relaygen import EngineUnreachableError
from relaygen._gate import Breaker, PayGate
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.serve._service import listed
from relaygen.serve._settings import Settings

from .support import ANSWER, REASONING, THINKING, get, pair, post


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("user", "foo"), "user, foo"),
        (("a\r\nset-cookie: x", "größe"), "a??set-cookie: x, gr??e"),
        (("x" * 200,), "x" * 100),
        (("",), ""),
    ],
)
def test_names_for_a_header(names: tuple[str, ...], text: str) -> None:
    assert listed(names) == text


def test_many_names_are_cut() -> None:
    text = listed(tuple(f"field{n}" for n in range(1000)))
    assert len(text) == 1000
    assert text.endswith("...")


def test_delegation_is_watched_where_it_may_not_pay_and_no_seed_asks_for_the_same() -> None:
    service = pair(settings=Settings(pause="auto")).service
    assert [type(gate) for gate in service._gates(False)] == [Breaker, PayGate]
    assert service._gates(True) == (service.breaker,)
    assert service._gates(False)[0] is service.breaker
    assert service._gates(False)[1] is not service._gates(False)[1]
    assert len(pair().service._gates(False)) == 1


def test_the_small_model_finishes_where_that_is_wanted() -> None:
    dies = [Failure(EngineUnreachableError("gone", retryable=False), request=None, token=3)]
    rescued = pair(large=ScriptedEngine(THINKING, failures=dies), settings=Settings(rescue=True))
    body = post(rescued).json()
    assert body["choices"][0]["message"]["content"] == ANSWER
    assert body["choices"][0]["message"]["reasoning_content"] == REASONING
    assert body["relay"]["fallbacks"] >= 1
    assert post(pair(large=ScriptedEngine(THINKING, failures=dies))).status_code == 503


def test_a_large_engine_that_fails_once_is_tried_again() -> None:
    failure = Failure(EngineUnreachableError("reset"), request=0)
    served = pair(large=ScriptedEngine(THINKING, failures=[failure]), policy="large")
    body = post(served).json()
    assert body["choices"][0]["message"]["content"] == ANSWER
    assert len(served.large.requests) == 2


def test_what_ready_says_of_delegation() -> None:
    served = pair()
    assert get(served, "/ready").json()["delegation"] == "on"
    for _ in range(3):
        served.service.breaker.failed()
    assert get(served, "/ready").json()["delegation"] == "paused"
    served.service.breaker._until = 0.0
    assert get(served, "/ready").json()["delegation"] == "trying again"
