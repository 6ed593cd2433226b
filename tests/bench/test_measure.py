"""Measuring over mock engines in processes of their own: counts, not times."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen import Relay
from relaygen._progress import Step
from relaygen._types import Role
from relaygen.bench import Figures, Measured, Point, Shape, measure, mocks, played, shortened
from relaygen.bench._measure import _Rig, ideal_seconds, ideal_speedup, measured_dict
from relaygen.bench._paced import PacedPolicy
from relaygen.engines.scripted import ScriptedEngine
from relaygen.mock import load_trace

TRACE = shortened(load_trace("long"), 100)
SHAPES: dict[Role, Shape] = {"large": Shape(2.0, 0.01), "small": Shape(1.0)}
PACED = PacedPolicy(7, 3)


@pytest.fixture(scope="module")
def found() -> tuple[list[Measured], list[Step]]:
    wanted = [
        Point("streams", streams=3),
        Point("context", context=700),
        Point("handoffs", policy=PACED),
    ]
    steps: list[Step] = []

    async def run() -> list[Measured]:
        async with aclosing(
            measure(TRACE, wanted, shapes=SHAPES, progress=steps.append)
        ) as measured:
            return [one async for one in measured]

    return asyncio.run(run()), steps


def test_texts_are_whole_and_counts_the_traces(found: tuple[list[Measured], list[Step]]) -> None:
    streams, context, paced = found[0]
    own = Figures.of(played(TRACE))
    assert [one.whole for one in found[0]] == [3, 1, 1]
    assert (streams.large, streams.small, streams.handoffs) == (own.large, own.small, own.handoffs)
    assert (streams.streams, context.streams, paced.streams) == (3, 1, 1)
    assert 600 < context.context < 750 > 10 * streams.context
    assert paced.handoffs == Figures.of(played(TRACE, PACED)).handoffs > streams.handoffs
    assert streams.requests == own.handoffs + 1
    assert paced.requests == paced.handoffs + 1
    assert context.sent_bytes > streams.sent_bytes > 0


def test_the_ceiling_is_of_the_trace_and_the_decode_costs_alone(
    found: tuple[list[Measured], list[Step]],
) -> None:
    for one in found[0]:
        best = (2.0 * one.large + 1.0 * one.small) / 1000
        assert one.share == pytest.approx(best / one.wall_s)
        assert one.share_min == pytest.approx(best / one.wall_max_s)
        assert one.ceiling == pytest.approx(2.0 * one.tokens / 1000 / best)
        assert one.share_min <= one.share <= 1  # nobody is faster than the ceiling
        assert one.over_own > 1


def test_progress_tells_every_pass(found: tuple[list[Measured], list[Step]]) -> None:
    steps = found[1]
    # warm-up, the large model alone at three settings, and three points
    assert [step.done for step in steps] == list(range(len(steps)))
    assert {step.total for step in steps} == {len(steps) - 1} == {7}
    assert steps[-1].left == 0
    assert steps[0].left is None


def test_a_record_is_plain_data(found: tuple[list[Measured], list[Step]]) -> None:
    record = measured_dict(found[0][0])
    assert record["kind"] == "mock"
    assert record["setting"] == "3 streams"


@given(st.integers(0, 5000))
def test_no_question_is_asked_twice_and_each_is_as_long_as_wanted(context: int) -> None:
    rig = _Rig(Relay(ScriptedEngine(""), ScriptedEngine("")), {})
    asked = [rig._question(context) for _ in range(12)]
    assert len({question[:16] for question in asked}) == 12  # a block of the prefix cache
    for question in asked:
        assert len(question) <= max(context, 40)
        assert len(question) > context - 5


def test_ideal_times() -> None:
    figures = Figures(large=70, small=30, handoffs=2, delegated=(30,), answer=0)
    shapes: dict[Role, Shape] = {"large": Shape(40.0, 9.0), "small": Shape(10.0, 9.0)}
    assert ideal_seconds(figures, shapes) == pytest.approx(3.1)
    assert ideal_speedup(figures, shapes) == pytest.approx(4.0 / 3.1)


def test_mock_engines_end_with_their_context() -> None:
    async def run() -> dict[Role, str]:
        async with mocks(TRACE, SHAPES, model="m", max_stops=9) as urls:
            for url in urls.values():
                told = (await asyncio.to_thread(httpx.get, f"{url}/mock/trace")).json()
                assert told["text"] == TRACE.text
            return urls

    urls = asyncio.run(run())
    assert len(set(urls.values())) == 2
    for url in urls.values():
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)
