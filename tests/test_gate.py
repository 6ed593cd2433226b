"""Gates: the circuit breaker and the check that delegation pays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen._gate import Breaker, PayGate, RoundTrip


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def broken(clock: Clock, failures: int = 3) -> Breaker:
    breaker = Breaker(failures=failures, cooldown=1.0, longest=4.0, clock=clock)
    for _ in range(failures):
        breaker.failed()
    return breaker


def test_a_breaker_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(failures=3, clock=Clock())
    for _ in range(2):
        breaker.failed()
    breaker.succeeded()
    breaker.failed()
    breaker.failed()
    assert (breaker.state, breaker.blocked("delegate"), breaker.opened) == ("closed", "", 0)
    breaker.failed()
    assert breaker.state == "open"
    assert breaker.blocked("delegate") == breaker.blocked("lead") != ""
    assert breaker.opened == 1


def test_a_breaker_lets_one_trial_through_after_the_cooldown() -> None:
    clock = Clock()
    breaker = broken(clock)
    clock.now += 1.0
    assert str(breaker.state) == "half-open"
    assert breaker.blocked("delegate") == ""
    breaker.began()
    assert breaker.blocked("delegate") != ""  # one at a time
    breaker.succeeded()
    assert str(breaker.state) == "closed"


def test_a_lost_trial_does_not_block_for_ever() -> None:
    clock = Clock()
    breaker = broken(clock)
    clock.now += 1.0
    breaker.began()  # and nobody says how it ended
    clock.now += 1.0
    assert breaker.blocked("delegate") == ""


def test_failed_trials_are_made_at_growing_distances() -> None:
    clock = Clock()
    breaker = broken(clock)
    waits = []
    for _ in range(4):
        start = clock.now
        while breaker.blocked("delegate"):
            clock.now += 0.25
        waits.append(clock.now - start)
        breaker.began()
        breaker.failed()
    assert waits == [1.0, 2.0, 4.0, 4.0]
    assert breaker.opened == 1
    clock.now += 4.0
    breaker.succeeded()
    for _ in range(3):
        breaker.failed()
    clock.now += 1.0
    assert breaker.state == "half-open"  # a success has reset the distance


def feed(gate: PayGate, saved: Sequence[float], large: float = 0.04) -> None:
    for each in saved:
        gate.began()
        gate.returned(RoundTrip(9, 10 * large - each, large))


def test_saved_is_what_the_large_model_would_have_taken_less_the_round_trip() -> None:
    assert RoundTrip(9, 0.3, 0.04).saved == pytest.approx(0.1)
    assert RoundTrip(0, 0.3, 0.04).saved == pytest.approx(-0.26)


def test_delegation_pauses_when_it_costs_more_than_it_saves() -> None:
    gate = PayGate(least=3)
    feed(gate, [-0.1, -0.1])
    assert gate.pauses == 0  # too few to judge
    feed(gate, [-0.1])
    assert gate.paused
    assert "-100 ms" in gate.blocked("delegate")
    assert gate.blocked("lead") == ""
    assert gate.pauses == 1


def test_a_paused_conversation_tries_again_and_resumes_only_with_a_margin() -> None:
    gate = PayGate(least=3, skip=2, weight=0.5)
    feed(gate, [-0.1] * 3)
    for _ in range(2):
        assert gate.blocked("delegate")
        gate.refused()
    assert gate.blocked("delegate") == ""
    feed(gate, [0.11])  # mean about 0: not enough to resume
    assert gate.paused
    assert gate.blocked("delegate")
    for _ in range(4):  # the distance has doubled
        gate.refused()
    assert gate.blocked("delegate") == ""
    feed(gate, [0.2])
    assert not gate.paused


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=50))
def test_delegation_that_always_pays_is_never_paused(saved: list[float]) -> None:
    gate = PayGate()
    feed(gate, saved)
    assert not gate.paused


@given(st.lists(st.floats(-1.0, -0.001), min_size=3, max_size=50))
def test_delegation_that_never_pays_is_paused(saved: list[float]) -> None:
    gate = PayGate(least=3)
    feed(gate, saved)
    assert gate.paused


@given(st.lists(st.booleans(), max_size=60))
def test_trials_never_stop_coming(pays: list[bool]) -> None:
    gate = PayGate(least=1, skip=2)
    feed(gate, [-1.0])
    for each in pays:
        passed = 0
        while gate.blocked("delegate"):
            gate.refused()
            passed += 1
        assert passed <= 16
        feed(gate, [0.001 if each else -0.001])


def test_what_fails_while_it_is_open_began_before_and_says_nothing_new() -> None:
    clock = Clock()
    breaker = broken(clock)
    for _ in range(60):  # many generations lose the same engine
        clock.now += 0.01
        breaker.failed()
    clock.now += 0.4
    assert breaker.state == "half-open"
    breaker.began()
    breaker.failed()
    breaker.failed()
    clock.now += 1.5
    assert str(breaker.state) == "open"
    clock.now += 0.5
    assert str(breaker.state) == "half-open"
