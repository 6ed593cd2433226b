"""End-to-end truth: real generations over real engines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from relaygen import (
    Generation,
    HandedOff,
    LargeOnly,
    Limits,
    RandomPolicy,
    Relay,
    Text,
)
from relaygen._types import Kind, Role, Sampling, SegmentRequest, Stage
from relaygen.engines._gguf import read_header
from relaygen.engines._vocabulary import Vocabulary
from relaygen.engines.embedded import EmbeddedEngine
from relaygen.policies import Policy, Start
from relaygen.policies.base import STAY, Decision, HandOff, Token

from .conftest import model_path

pytestmark = pytest.mark.models
GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0)
QUESTIONS = (
    "Natalia sold 48 clips in April and half as many in May. How many in all? Explain briefly.",
    "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total?",
    "Explain in four sentences why the sky is blue.",
    "List three prime numbers above 50 and say why each is prime.",
    "Ann is 3 years older than Ben, who is twice as old as Cid, who is 6. How old is Ann?",
)
NEAR_TIE = 0.02


@pytest.fixture(scope="module")
def twin_engine() -> Iterator[EmbeddedEngine]:
    """The small model once more, to play the other role."""
    engine = EmbeddedEngine(model_path("small"), ctx=2048, parallel=2)
    yield engine
    asyncio.run(engine.aclose())


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    found = read_header(model_path("small")).vocabulary()
    assert found is not None
    return found


def generate(
    large: EmbeddedEngine, small: EmbeddedEngine, question: str, policy: Policy | str, most: int
) -> Generation:
    relay = Relay(large, small)
    return asyncio.run(
        relay.agenerate(
            question, policy=policy, sampling=GREEDY, limits=Limits(max_tokens=most), seed=1
        )
    )


def check(generation: Generation, vocabulary: Vocabulary) -> None:
    """The kept ids are the text, byte for byte; the counts add up."""
    data = b"".join(vocabulary.data(id) for id in generation.ids if id is not None)
    assert data == generation.text.encode()
    usage = generation.usage
    assert usage.large_tokens + usage.small_tokens + usage.inserted_tokens == len(generation.ids)
    assert "".join(segment.text for segment in generation.segments) == generation.text


async def margin_at(
    engine: EmbeddedEngine, prompt: tuple[int, ...], kept: tuple[int, ...]
) -> float:
    """The smaller of the margins behind `kept`, decoded token by token and read as one batch.

    llama.cpp rounds the two differently, which is what lets a relay diverge at all.
    """
    margins = []
    for ids, tokens in ((prompt, len(kept) + 1), (prompt + kept, 1)):
        request = SegmentRequest(ids, tokens, GREEDY, f"margin{tokens}", top=2)
        async with aclosing(engine.stream(request)) as deltas:
            pieces = [piece async for delta in deltas for piece in delta.pieces]
        await engine.release(f"margin{tokens}")
        margins += [piece.margin for piece in pieces[-1:] if piece.margin is not None]
    return min(margins)


def compare(
    alone: Generation, relayed: Generation, engine: EmbeddedEngine, question: str
) -> list[str]:
    """Nothing, or the first divergence, which must be a near-tie of the model's best two."""
    one, two = alone.ids, relayed.ids
    if one == two:
        return []
    at = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
    assert at is not None, "one text is a beginning of the other"
    prompt = asyncio.run(engine.render(Relay(engine, engine).task(question).conversation))
    kept = tuple(id for id in one[:at] if id is not None)
    margin = asyncio.run(margin_at(engine, prompt.ids, kept))
    assert margin < NEAR_TIE, f"{question!r} diverges at token {at} with a margin of {margin:.3f}"
    return [f"{question[:40]!r}: token {at}, margin {margin:.4f}"]


def test_large_only_is_the_engines_own_greedy_output(large_engine: EmbeddedEngine) -> None:
    from .test_engines import whole

    for question in QUESTIONS[:2]:
        generation = generate(large_engine, large_engine, question, LargeOnly(), 60)
        prompt = asyncio.run(
            large_engine.render(Relay(large_engine, large_engine).task(question).conversation)
        )
        assert list(generation.ids) == asyncio.run(whole(large_engine, prompt.ids, 60))


def test_self_relay_identity(
    small_engine: EmbeddedEngine, twin_engine: EmbeddedEngine, vocabulary: Vocabulary
) -> None:
    handoffs, diverged = 0, []
    for number, question in enumerate(QUESTIONS):
        alone = generate(small_engine, twin_engine, question, LargeOnly(), 90)
        policy = RandomPolicy(0.5) if number % 2 else "relay"
        relayed = generate(small_engine, twin_engine, question, policy, 90)
        check(relayed, vocabulary)
        handoffs += relayed.usage.handoffs
        relayed_often = generate(small_engine, twin_engine, question, Alternating(7), 90)
        check(relayed_often, vocabulary)
        handoffs += relayed_often.usage.handoffs
        for other in (relayed, relayed_often):
            diverged += compare(alone, other, small_engine, question)
    print(f"{handoffs} hand-offs; near-ties: {diverged or 'none'}")
    assert handoffs >= 20


class Alternating:
    """Hands over after every n-th token, wherever that is."""

    name = "alternating"
    first: Role = "large"
    roles: frozenset[Role] = frozenset(("large", "small"))
    margins: frozenset[Role] = frozenset()

    def __init__(self, every: int) -> None:
        self._every = every

    def start(self, start: Start) -> Alternating:
        return self

    def begin(self, role: Role, kind: Kind, stage: Stage, after: Any) -> None:
        pass

    def feed(self, token: Token) -> Decision:
        last = token.index + 1 >= self._every
        return HandOff(token.index, "lead", "alternate") if last else STAY

    def probed(self, piece: Any) -> Decision:
        return STAY

    def answer(self, on_duty: Role) -> Role:
        return on_duty


def test_rare_characters_survive_hand_offs_around_them(
    small_engine: EmbeddedEngine, twin_engine: EmbeddedEngine, vocabulary: Vocabulary
) -> None:
    rare = "a🦄b龘🐉𠮷é🫠!"
    question = f"Repeat this line three times and write nothing else: {rare}"
    alone = generate(small_engine, twin_engine, question, LargeOnly(), 70)
    relayed = generate(small_engine, twin_engine, question, Alternating(1), 70)
    check(relayed, vocabulary)
    assert "�" not in relayed.text.rstrip("�")
    around = [
        (before.text, after.text)
        for before, after in zip(relayed.segments, relayed.segments[1:], strict=False)
        if any(ord(char) > 0x2E80 for char in before.text + after.text)
    ]
    assert len(around) >= 4
    compare(alone, relayed, small_engine, question)


def test_the_pair_relays_a_school_question(
    large_engine: EmbeddedEngine, small_engine: EmbeddedEngine, vocabulary: Vocabulary
) -> None:
    question = "Natalia sold 48 clips in April and half as many in May. How many in all? Think step by step."
    generation = generate(large_engine, small_engine, question, "relay", 400)
    check(generation, vocabulary)
    assert "72" in generation.answer.split(".")[-2] + generation.answer.split(".")[-1]
    assert generation.finish == "stop"
    before = len(generation.text.split("\\boxed{")[0])
    written = {"large": 0, "small": 0}
    position = 0
    for segment in generation.segments:
        for id in segment.ids:
            assert id is not None
            position += len(vocabulary.data(id).decode(errors="replace"))
            if position <= before:
                written[segment.role] += 1
    assert written["small"] / sum(written.values()) >= 0.15
    assert generation.usage.handoffs >= 4


def test_the_thinking_path(
    large_engine: EmbeddedEngine, small_engine: EmbeddedEngine, vocabulary: Vocabulary
) -> None:
    relay = Relay(large_engine, small_engine, profile="embedded-thinking")
    generation = asyncio.run(
        relay.agenerate(
            QUESTIONS[1],
            seed=1,
            limits=Limits(max_tokens=220, max_reasoning_tokens=80),
        )
    )
    check(generation, vocabulary)
    assert generation.reasoning
    assert generation.answer
    assert "</think>" not in generation.reasoning + generation.answer
    answering = [s.role for s in generation.segments if s.stage == "answer" and s.text.strip()]
    assert answering[0] == "small"


def test_a_killed_small_model_ends_in_a_whole_answer(large_engine: EmbeddedEngine) -> None:
    small = EmbeddedEngine(model_path("small"), role="small", ctx=2048)
    relay = Relay(large_engine, small)

    async def go() -> tuple[Generation, list[Any]]:
        events = []
        task = relay.task(QUESTIONS[0], limits=Limits(max_tokens=400), policy=RandomPolicy(0.5))
        generating = relay.generating(task)
        killed = False
        async for event in generating.events():
            events.append(event)
            if isinstance(event, Text) and event.role == "small" and not killed:
                assert small.pid is not None
                os.kill(small.pid, signal.SIGKILL)
                killed = True
        await small.aclose()
        assert killed
        return generating.snapshot(), events

    generation, events = asyncio.run(go())
    assert generation.finish == "stop"
    assert generation.usage.fallbacks == 1
    assert any(isinstance(e, HandedOff) and e.why == "failure" for e in events)
    assert "72" in generation.answer
    assert [s.role for s in generation.segments][-1] == "large"
