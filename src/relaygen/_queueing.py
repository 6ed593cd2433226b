"""A closed network of engines: how long streams wait for each other. Exact, pure.

Every stream is always at one station or thinking, and goes on at once where it is done. Each
station may get faster with more requests, as an engine does that decodes a batch. The network has a
product form, and its normalizing constants come from the convolution of J. P. Buzen,
"Computational algorithms for closed queueing networks with exponential servers", Communications of
the ACM 16(9), 1973; it gives what mean value analysis gives (M. Reiser and S. S. Lavenberg, Journal
of the ACM 27(2), 1980) and stays stable where speeds depend on the number of requests.

Assumed, and true of engines only roughly: all streams are alike and independent; a station divides
its speed evenly among its requests (then times of any distribution give the same means) or serves
them in order with exponential times; speed depends on the number of requests alone; the network has
run for long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ._errors import UsageError


@dataclass(frozen=True, slots=True)
class Station:
    """Where work is done.

    Attributes:
        work: time that a visit takes alone.
        speeds: with 1, 2, … requests, in that of one; the last one goes on.
    """

    work: float
    speeds: Sequence[float] = (1.0,)


@dataclass(frozen=True, slots=True)
class Load:
    """Long-run averages.

    Attributes:
        throughput: rounds through all stations per time, of all streams together.
        busy: share of the time in which each station has a request.
        requests: at each station.
    """

    throughput: float
    busy: tuple[float, ...]
    requests: tuple[float, ...]


def closed_network(stations: Sequence[Station], think: float, streams: int) -> Load:
    """Streams that go round through all stations and a time for themselves.

    Args:
        stations: each visited once a round.
        think: time of a round in which a stream keeps no station busy.
        streams: at least one.

    Raises:
        UsageError: no stream, or no time at all.
    """
    if streams < 1:
        raise UsageError(f"at least one stream, not {streams}")
    around = think + sum(station.work for station in stations)
    if not around > 0.0:
        raise UsageError("a round takes no time")
    # Two bounds of the time between rounds. In this unit no weight that matters underflows.
    slowest = max(station.work / max(station.speeds[:streams]) for station in stations)
    scale = max(slowest, around / streams)
    states = [_states(station.work / scale, station.speeds, streams) for station in stations]
    alone = _states(think / scale, range(1, streams + 1), streams)
    whole = alone
    for each in states:
        whole = _convolved(whole, each)
    busy, requests = [], []
    for place, each in enumerate(states):
        rest = alone
        for other in (*states[:place], *states[place + 1 :]):
            rest = _convolved(rest, other)
        chances = [each[n] * rest[streams - n] / whole[streams] for n in range(streams + 1)]
        busy.append(math.fsum(chances[1:]))
        requests.append(math.fsum(n * chance for n, chance in enumerate(chances)))
    return Load(whole[streams - 1] / whole[streams] / scale, tuple(busy), tuple(requests))


def _states(work: float, speeds: Sequence[float], streams: int) -> list[float]:
    """Weight of 0, 1, … requests at a station, the largest being 1: their scale cancels out."""
    if not work:
        return [1.0] + [0.0] * streams
    logs = [0.0]
    for n in range(streams):
        logs.append(logs[-1] + math.log(work) - math.log(speeds[min(n, len(speeds) - 1)]))
    top = max(logs)
    return [math.exp(value - top) for value in logs]


def _convolved(one: Sequence[float], two: Sequence[float]) -> list[float]:
    return [sum(map(float.__mul__, one[: n + 1], two[n::-1])) for n in range(len(one))]
