"""What a relay makes of a trace without an engine."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen._types import Sampling, SegmentRequest
from relaygen.bench import Figures, played, shortened
from relaygen.bench._figures import Playing
from relaygen.mock import Trace, load_trace
from relaygen.policies import LargeOnly


def test_a_trace_is_shared_as_the_detectors_say() -> None:
    generation = played(load_trace("short"))
    figures = Figures.of(generation)
    assert generation.text == load_trace("short").text
    assert figures.tokens == len(load_trace("short").tokens)
    assert figures.large == sum(s.tokens for s in generation.segments if s.role == "large")
    assert sum(figures.delegated) + figures.answer == figures.small
    assert 0 < figures.utilization < 1


def test_one_model_alone_writes_all_of_it() -> None:
    figures = Figures.of(played(load_trace("short"), LargeOnly()))
    assert (figures.small, figures.handoffs, figures.utilization) == (0, 0, 1.0)


@settings(max_examples=15, deadline=None)
@given(st.integers(60, 400))
def test_a_shortened_trace_has_the_wanted_length_and_the_same_end(size: int) -> None:
    whole = load_trace("long")
    trace = shortened(whole, size)
    assert len(trace.tokens) == size
    assert trace.thinking
    assert trace.text.startswith("<think>\n")
    assert trace.text.partition("</think>")[2] == whole.text.partition("</think>")[2]
    assert played(trace).text == trace.text


def test_a_trace_is_never_made_longer() -> None:
    trace = load_trace("short")
    assert shortened(trace, 10_000) is trace


@pytest.mark.parametrize(
    ("trace", "tokens"),
    [(load_trace("long"), 10), (Trace.of(["a ", "b ", "c"]), 2)],
    ids=["too short", "no thinking"],
)
def test_what_cannot_be_shortened_is_refused(trace: Trace, tokens: int) -> None:
    with pytest.raises(UsageError):
        shortened(trace, tokens)


def test_ids_that_leave_the_trace_are_an_error() -> None:
    engine = Playing(load_trace("short"))

    async def run() -> None:
        prompt = await engine.render(None)  # type: ignore[arg-type]  # it does not look
        request = SegmentRequest((*prompt.ids, 7), 5, Sampling(), "s")
        async for _ in engine.stream(request):
            pass

    with pytest.raises(UsageError, match="left the trace"):
        asyncio.run(run())
