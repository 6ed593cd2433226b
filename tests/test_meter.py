"""Seconds and cache counts of one request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relaygen import ModelUsage, _meter
from relaygen._meter import Meter
from relaygen._types import Delta, Piece


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_meter, "time", clock)
    return clock


def delta(
    count: int, cached: int | None = None, evaluated: int | None = None, repaired: int = 0
) -> Delta:
    pieces = tuple(Piece(n, b"x") for n in range(count))
    return Delta(pieces, None, cached, evaluated, repaired)


def test_waiting_and_decoding_are_apart(clock: Clock) -> None:
    usage = ModelUsage()
    meter = Meter(usage)
    clock.now = 2.0
    meter.read(delta(1))
    clock.now = 2.5
    meter.read(delta(2))
    assert meter.split() == 2.5
    clock.now = 3.5
    meter.read(delta(2))
    meter.read(delta(0))
    clock.now = 4.0
    assert meter.stop() == 1.5
    assert (usage.seconds, usage.first_seconds, usage.decode_seconds) == (4.0, 2.0, 1.5)
    assert usage.decoded == 4
    assert usage.requests == 1
    assert usage.decode_ms == 375.0


def test_drafts_add_up_and_stay_unknown_where_nothing_is_told() -> None:
    usage = ModelUsage()
    meter = Meter(usage)
    meter.read(delta(3))
    assert (usage.drafted, usage.accepted, usage.acceptance) == (None, None, None)
    meter.read(replace(delta(1), drafted=3, accepted=0))
    meter.read(replace(delta(0), drafted=5, accepted=4))
    Meter(usage).read(replace(delta(1), drafted=2, accepted=1))
    assert (usage.drafted, usage.accepted, usage.acceptance) == (10, 5, 0.5)


def test_a_request_without_a_token(clock: Clock) -> None:
    usage = ModelUsage()
    meter = Meter(usage)
    clock.now = 1.0
    meter.stop()
    assert (usage.seconds, usage.first_seconds, usage.decoded) == (1.0, 0.0, 0)
    assert usage.decode_ms is None


def test_hidden_counts_stay_unknown_and_lost_cache_shows(clock: Clock) -> None:
    usage = ModelUsage()
    meter = Meter(usage, expected=50)
    meter.read(delta(1))
    assert (usage.cached, usage.evaluated, usage.reevaluated) == (None, None, 0)
    meter.read(delta(1, cached=30, evaluated=25))
    meter.read(delta(1, repaired=2))
    assert (usage.cached, usage.evaluated, usage.reevaluated) == (30, 25, 20)
    assert usage.repaired == 2
    Meter(usage, expected=10).read(delta(1, cached=12, evaluated=1))
    assert (usage.cached, usage.reevaluated) == (42, 20)
