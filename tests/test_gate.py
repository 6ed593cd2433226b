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


def paused(*, skip: int = 2) -> PayGate:
    gate = PayGate(skip=skip)
    feed(gate, [-0.1] * 3)
    assert gate.paused
    return gate


def cues_before_the_next_trial(gate: PayGate) -> int:
    passed = 0
    while gate.blocked("delegate"):
        gate.refused()
        passed += 1
    return passed


def test_delegation_pauses_when_it_costs_more_than_it_saves() -> None:
    gate = PayGate()
    feed(gate, [-0.1, -0.1])
    assert gate.pauses == 0  # too few to judge
    feed(gate, [-0.1])
    assert gate.paused
    assert "-100 ms" in gate.blocked("delegate")
    assert gate.blocked("lead") == ""
    assert gate.pauses == 1


def test_reading_the_prompt_is_not_counted_against_delegation() -> None:
    gate = PayGate()
    feed(gate, [-30.0, 0.2, -0.1, 0.2])
    assert not gate.paused


def test_one_stall_does_not_end_what_pays_but_a_second_does() -> None:
    gate = PayGate()
    feed(gate, [0.2, 0.2, 0.2, -30.0])
    assert gate.pauses == 0
    feed(gate, [-30.0])
    assert gate.pauses == 1


def test_a_segment_that_pays_resumes_at_once() -> None:
    gate = paused()
    assert cues_before_the_next_trial(gate) == 2
    feed(gate, [0.05])
    assert not gate.paused
    assert gate.blocked("delegate") == ""


def test_a_trial_has_a_second_segment_when_the_first_has_caught_up() -> None:
    gate = paused()
    cues_before_the_next_trial(gate)
    feed(gate, [-0.7])  # it read what was written meanwhile
    assert gate.paused
    assert gate.blocked("delegate") == ""
    feed(gate, [0.2])
    assert not gate.paused


def test_less_than_the_margin_is_not_enough_to_resume() -> None:
    gate = paused()
    cues_before_the_next_trial(gate)
    feed(gate, [0.03, 0.039])  # a large token takes 0.04 s
    assert gate.paused
    assert cues_before_the_next_trial(gate) == 4
    feed(gate, [0.041])
    assert not gate.paused


def test_a_hopeless_trial_ends_with_its_first_segment() -> None:
    gate = paused()
    cues_before_the_next_trial(gate)
    feed(gate, [-0.81])  # three times what the large model would have taken
    assert cues_before_the_next_trial(gate) == 4


def test_trials_are_made_at_growing_distances_until_one_pays() -> None:
    gate = paused()
    waits = []
    for _ in range(6):
        waits.append(cues_before_the_next_trial(gate))
        feed(gate, [-0.1, -0.1])
    assert waits == [2, 4, 8, 16, 16, 16]
    cues_before_the_next_trial(gate)
    feed(gate, [0.1, -0.1])
    assert not gate.paused  # the mean is above zero
    feed(gate, [-0.3])
    assert cues_before_the_next_trial(gate) == 2
    assert gate.pauses == 2


def test_a_trial_that_never_returns_does_not_open_the_gate() -> None:
    gate = paused()
    cues_before_the_next_trial(gate)
    gate.began()
    gate.failed()
    assert cues_before_the_next_trial(gate) == 2


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=50))
def test_delegation_that_always_pays_is_never_paused(saved: list[float]) -> None:
    gate = PayGate()
    feed(gate, saved)
    assert not gate.paused


@given(st.lists(st.floats(-1.0, -0.001), min_size=3, max_size=50))
def test_delegation_that_never_pays_is_paused(saved: list[float]) -> None:
    gate = PayGate()
    feed(gate, saved)
    assert gate.paused
    assert gate.pauses == 1


@given(st.lists(st.booleans(), max_size=60))
def test_trials_never_stop_coming(pays: list[bool]) -> None:
    gate = paused()
    for each in pays:
        assert cues_before_the_next_trial(gate) <= 16
        feed(gate, [0.001 if each else -0.001])


@given(st.floats(-3.0, 0.0), st.floats(0.05, 0.35), st.integers(1, 40))
def test_when_the_load_falls_delegation_resumes(lost: float, saved: float, trials: int) -> None:
    gate = paused()
    for _ in range(trials):
        cues_before_the_next_trial(gate)
        feed(gate, [lost])
    cues_before_the_next_trial(gate)
    feed(gate, [lost])  # once more it reads everything, and finds it again from now on
    cues_before_the_next_trial(gate)
    feed(gate, [saved])
    assert not gate.paused


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
