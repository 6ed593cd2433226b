"""Speculative decoding on real engines: the text stays the model's own, and the counts are told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from relaygen import EngineError, Generation, LargeOnly, MarginPolicy, Relay, SmallOnly, Speculation
from relaygen._types import Role, SegmentRequest
from relaygen.engines._gguf import read_header
from relaygen.engines.embedded import EmbeddedEngine

from .conftest import model_path
from .test_relay import GREEDY, NEAR_TIE, QUESTIONS, check, generate

pytestmark = pytest.mark.models
TWICE = "Write this line twice, nothing else: one fish, two fish, red fish, blue fish, old fish."


@pytest.fixture(scope="module")
def drafting_large() -> Iterator[EmbeddedEngine]:
    spec = Speculation("draft", model=model_path("small"))
    engine = EmbeddedEngine(
        model_path("large"), role="large", ctx=1024, parallel=2, speculation=spec
    )
    yield engine
    asyncio.run(engine.aclose())


@pytest.fixture(scope="module")
def drafting_small() -> Iterator[EmbeddedEngine]:
    spec = Speculation("ngram", tokens=6, lookup=3)
    engine = EmbeddedEngine(
        model_path("small"), role="small", ctx=1024, parallel=2, speculation=spec
    )
    yield engine
    asyncio.run(engine.aclose())


def same(
    plain: Generation, drafted: Generation, engines: dict[Role, EmbeddedEngine], question: str
) -> str:
    """How alike two texts are: the same, or apart at a near-tie of the model that wrote there."""
    one, two = plain.ids, drafted.ids
    if one == two:
        return f"{len(one)} tokens the same"
    apart = (n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    at = next(apart, min(len(one), len(two)))  # where one text ends, the other goes on
    longer = max(plain, drafted, key=lambda each: len(each.ids))
    writer = [segment.role for segment in longer.segments for _ in segment.ids][at]
    assert writer != "inserted"
    margin = asyncio.run(least_margin(engines[writer], question, longer.ids[: at + 1]))
    assert margin < NEAR_TIE, f"{question!r} diverges at token {at} with a margin of {margin:.3f}"
    return f"apart at token {at} of {len(one)}, margin {margin:.4f}"


async def least_margin(engine: EmbeddedEngine, question: str, ids: tuple[int | None, ...]) -> float:
    """The smaller of the margins at the last id, its text read as one batch and almost as one.

    The end of a turn is a candidate too, which no stream shows.
    """
    prompt = await engine.render(Relay(engine, engine).task(question).conversation)
    whole = prompt.ids + tuple(id for id in ids if id is not None)
    margins: list[float] = []
    for back in (1, 4):
        session = f"margin{back}"
        async with aclosing(engine.stream(SegmentRequest(whole[:-back], 1, GREEDY, session))) as it:
            _ = [delta async for delta in it]
        async with aclosing(engine.score(whole, len(whole) - 1, session)) as scores:
            margins += [margin async for margin, _ in scores if margin is not None]
        await engine.release(session)
    return min(margins)


def test_a_draft_model_changes_no_text(
    large_engine: EmbeddedEngine, small_engine: EmbeddedEngine, drafting_large: EmbeddedEngine
) -> None:
    engines: dict[Role, EmbeddedEngine] = {"large": large_engine, "small": small_engine}
    for question in (QUESTIONS[0], TWICE):
        plain = generate(large_engine, small_engine, question, LargeOnly(), 48)
        drafted = generate(drafting_large, small_engine, question, LargeOnly(), 48)
        assert (plain.usage.large.drafted, plain.usage.large.accepted) == (None, None)
        usage = drafted.usage.large
        assert usage.drafted is not None
        assert usage.accepted is not None
        assert usage.drafted >= usage.accepted > 0
        assert usage.accepted < usage.tokens  # each step writes a token of its own too
        found = same(plain, drafted, engines, question)
        print(f"draft: {found}; {usage.accepted} of {usage.drafted} accepted")


def test_n_grams_change_no_text(
    small_engine: EmbeddedEngine, drafting_small: EmbeddedEngine
) -> None:
    plain = generate(small_engine, small_engine, TWICE, SmallOnly(), 48)
    drafted = generate(small_engine, drafting_small, TWICE, SmallOnly(), 48)
    usage = drafted.usage.small
    assert usage.drafted is not None
    assert usage.accepted is not None
    assert usage.drafted >= usage.accepted > 0
    found = same(plain, drafted, {"large": small_engine, "small": small_engine}, TWICE)
    print(f"n-gram: {found}; {usage.accepted} of {usage.drafted} accepted")


def test_a_relay_with_bursts_is_the_same_relay(
    large_engine: EmbeddedEngine,
    small_engine: EmbeddedEngine,
    drafting_large: EmbeddedEngine,
    drafting_small: EmbeddedEngine,
) -> None:
    vocabulary = read_header(model_path("small")).vocabulary()
    assert vocabulary is not None
    engines: dict[Role, EmbeddedEngine] = {"large": large_engine, "small": small_engine}
    question = QUESTIONS[0]
    plain = generate(large_engine, small_engine, question, "random:0.5", 64)
    drafted = generate(drafting_large, drafting_small, question, "random:0.5", 64)
    check(drafted, vocabulary)
    usage = drafted.usage
    found = same(plain, drafted, engines, question)
    print(
        f"relay: {found}; {usage.handoffs} hand-offs, {usage.large.discarded} large tokens "
        f"discarded, {usage.large.reevaluated} computed again, "
        f"{usage.large.accepted} of {usage.large.drafted} accepted"
    )
    assert usage.handoffs >= 2
    assert usage.large.drafted is not None  # although hand-offs abort its streams
    assert usage.large.accepted is not None
    # What a hand-off left in the cache behind its point is cut off, and the rest is found again.
    assert usage.large.reevaluated == 0


def test_margins_are_refused(drafting_small: EmbeddedEngine, large_engine: EmbeddedEngine) -> None:
    policy = MarginPolicy.of(["So"], stay=0.9, leave=0.3)
    with pytest.raises(EngineError, match="no log-probabilities") as caught:
        asyncio.run(Relay(large_engine, drafting_small).agenerate("?", policy=policy))
    assert "switch speculative decoding off" in caught.value.hint
