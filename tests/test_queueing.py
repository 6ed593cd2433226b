"""The closed network against mean value analysis, closed forms and the laws that always hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen._queueing import Station, closed_network

WORK = st.floats(0.01, 100)
SPEEDS = st.lists(st.floats(0.2, 1.0), max_size=20).map(
    lambda gains: [1.0 + sum(gains[:n]) for n in range(len(gains) + 1)]
)


def mean_values(work: Sequence[float], think: float, streams: int) -> tuple[float, list[float]]:
    """The recursion of Reiser and Lavenberg for stations of one speed: another way to the same."""
    there = [0.0] * len(work)
    rate = 0.0
    for n in range(1, streams + 1):
        waits = [each * (1.0 + before) for each, before in zip(work, there, strict=True)]
        rate = n / (think + sum(waits))
        there = [rate * wait for wait in waits]
    return rate, there


@settings(deadline=None)
@given(st.lists(WORK, min_size=1, max_size=3), st.floats(0, 100), st.integers(1, 60))
def test_mean_value_analysis_says_the_same(work: list[float], think: float, streams: int) -> None:
    load = closed_network([Station(each) for each in work], think, streams)
    rate, there = mean_values(work, think, streams)
    assert load.throughput == pytest.approx(rate)
    assert load.requests == pytest.approx(there, abs=1e-9)
    assert load.busy == pytest.approx([rate * each for each in work])


@settings(deadline=None)
@given(WORK, SPEEDS, WORK, SPEEDS, st.floats(0, 100), st.integers(1, 60))
def test_what_always_holds(
    one: float, fast: list[float], two: float, faster: list[float], think: float, streams: int
) -> None:
    stations = [Station(one, fast), Station(two, faster)]
    load = closed_network(stations, think, streams)
    assert sum(load.requests) + load.throughput * think == pytest.approx(streams)
    assert load.throughput <= streams / (one + two + think) * (1 + 1e-9)
    for station, busy in zip(stations, load.busy, strict=True):
        best = station.speeds[min(streams, len(station.speeds)) - 1]
        assert load.throughput <= best / station.work * (1 + 1e-9)
        assert 0.0 <= busy <= 1.0 + 1e-9
    more = closed_network(stations, think, streams + 1)
    assert more.throughput >= load.throughput * (1 - 1e-9)


@settings(deadline=None)
@given(WORK, WORK, st.floats(0, 100))
def test_one_stream_waits_for_nobody(one: float, two: float, think: float) -> None:
    load = closed_network([Station(one, [1, 2, 3]), Station(two)], think, 1)
    assert load.throughput == pytest.approx(1 / (one + two + think))
    assert load.busy == pytest.approx((one * load.throughput, two * load.throughput))


def test_room_for_all_means_no_waiting() -> None:
    """1,024 streams and engines that are as fast for each of them: nothing underflows."""
    room = range(1, 1025)
    load = closed_network([Station(28.0, room), Station(2.0, room)], 5.0, 1024)
    assert load.throughput == pytest.approx(1024 / 35.0)
    assert load.requests == pytest.approx((1024 * 28 / 35, 1024 * 2 / 35))


def test_two_servers_by_hand() -> None:
    """Works 1 and 1, the first serving two at once, two streams: weights 1, 1, 1/2 and 1, 1, 1."""
    load = closed_network([Station(1.0, [1, 2]), Station(1.0)], 0.0, 2)
    whole = 0.5 + 1 + 1
    assert load.throughput == pytest.approx(2 / whole)
    assert load.busy == pytest.approx((1 - 1 / whole, 1 - 0.5 / whole))


def test_a_station_without_work_is_never_busy() -> None:
    load = closed_network([Station(3.0), Station(0.0)], 0.0, 5)
    assert load.busy == pytest.approx((1.0, 0.0))
    assert load.throughput == pytest.approx(1 / 3)


def test_nonsense() -> None:
    with pytest.raises(UsageError, match="at least one stream"):
        closed_network([Station(1.0)], 0.0, 0)
    with pytest.raises(UsageError, match="no time"):
        closed_network([Station(0.0)], 0.0, 1)
