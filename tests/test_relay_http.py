"""The relay over HTTP engines that play a trace: whatever is on the way, the text is the trace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from relaygen import EngineError, Generation, Policy, Relay
from relaygen._types import ROLES, Kind, Piece, Role, Stage
from relaygen.engines.base import Engine
from relaygen.engines.vllm import VllmEngine
from relaygen.mock import MockConfig, load_trace, serving
from relaygen.policies.base import STAY, After, Decision, HandOff, Start, Token

TRACE = load_trace("short")
PROFILE = "qwen3-32b+1.7b"
FAST = {"token_ms": 0.2, "prefill_ms": 0.0}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def mock(stack: ExitStack, **shape: Any) -> str:
    return stack.enter_context(serving(MockConfig(trace=TRACE, **{**FAST, **shape})))


def generate(
    large: Engine, small: Engine, policy: str | Policy = "relay", **options: Any
) -> Generation:
    async def all() -> Generation:
        async with Relay(large=large, small=small, profile=PROFILE, policy=policy) as relay:
            return await relay.agenerate("How many?", seed=3, **options)

    return asyncio.run(all())


def shape(generation: Generation) -> list[tuple[str, str, str]]:
    return [(s.role, s.stage, s.text) for s in generation.segments]


def test_deltas_hints_and_bursts_change_nothing(stack: ExitStack) -> None:
    shapes = {}
    for regroup, burst in ((1, 1), (7, 1), (3, 4), (1, 8)):
        large = mock(stack, regroup=regroup, burst=burst, seed=regroup)
        small = mock(stack, regroup=burst, burst=regroup, seed=burst)
        for hints in (True, False):
            made = generate(VllmEngine(large), VllmEngine(small), hints=hints)
            assert made.text == TRACE.text
            shapes[regroup, burst, hints] = shape(made)
    assert len({str(each) for each in shapes.values()}) == 1
    assert len(shapes[1, 1, True]) > 8


def test_hints_stop_the_engine_where_the_hand_off_is(stack: ExitStack) -> None:
    large, small = mock(stack, burst=8, token_ms=2), mock(stack, burst=8, token_ms=2)
    hinted = generate(VllmEngine(large), VllmEngine(small))
    plain = generate(VllmEngine(large), VllmEngine(small), hints=False)
    assert shape(hinted) == shape(plain)
    assert hinted.usage.discarded_tokens < plain.usage.discarded_tokens


@pytest.mark.parametrize("split", ["large", "small"])
def test_only_text_crosses_between_different_vocabularies(stack: ExitStack, split: str) -> None:
    urls = {role: mock(stack, split=role == split, match="text") for role in ("large", "small")}
    made = generate(VllmEngine(urls["large"]), VllmEngine(urls["small"]))
    alike = generate(VllmEngine(mock(stack, match="text")), VllmEngine(mock(stack, match="text")))
    assert made.text == alike.text == TRACE.text
    assert [(s.role, s.stage) for s in made.segments] == [(s.role, s.stage) for s in alike.segments]
    assert made.usage.small_tokens > 0


@pytest.mark.parametrize(
    "policy",
    [
        *("large", "small", "one-shot", "random:0.4", "no-wait"),
        *("speculative-thinking", "entropy:step:0.5", "entropy:token:0.5"),
    ],
)
def test_every_policy_writes_the_trace(stack: ExitStack, policy: str) -> None:
    large, small = mock(stack), mock(stack)
    assert generate(VllmEngine(large), VllmEngine(small), policy).text == TRACE.text


def test_twenty_candidates_come_with_the_stream(stack: ExitStack) -> None:
    """At this margin two candidates have 0.33 nats, and the rest of the twenty nearly none."""
    for policy in ("entropy:step", "entropy:token"):
        shares = []
        for threshold in (0.4, 0.3):
            large, small = (VllmEngine(mock(stack, margin=0.8)) for _ in range(2))
            made = generate(large, small, f"{policy}:{threshold}")
            assert made.text == TRACE.text
            shares.append(sum(s.role == "large" for s in made.segments if s.stage == "reasoning"))
        assert shares[0] == 0 < shares[1]


def test_cached_prefixes_are_counted_or_unknown(stack: ExitStack) -> None:
    shown = generate(VllmEngine(mock(stack)), VllmEngine(mock(stack)))
    assert shown.usage.large.cached is not None
    hidden = [mock(stack, show_cached=False) for _ in range(2)]
    made = generate(VllmEngine(hidden[0]), VllmEngine(hidden[1]))
    assert made.usage.large.cached is None
    assert made.usage.small.cached is None


def test_margins_come_with_the_stream(stack: ExitStack) -> None:
    """The mock has one margin for all tokens: above `stay`, between the two, below `leave`."""
    small, relayed = {}, generate(VllmEngine(mock(stack)), VllmEngine(mock(stack)))
    for margin in (0.9, 0.5, 0.1):
        for burst in (1, 5):
            engine = VllmEngine(mock(stack, margin=margin, burst=burst))
            made = generate(VllmEngine(mock(stack)), engine, "margin:0.8:0.3", hints=burst == 1)
            assert made.text == TRACE.text
            small[margin, burst] = shape(made)
    assert all(small[margin, 1] == small[margin, 5] for margin in (0.9, 0.5, 0.1))
    assert small[0.5, 1] == shape(relayed)

    def thought(margin: float) -> int:
        return sum(
            len(text)
            for role, stage, text in small[margin, 1]
            if (role, stage) == ("small", "reasoning")
        )

    assert thought(0.1) == 0 < thought(0.5) < thought(0.9)


def test_margins_that_follow_the_temperature_are_refused(stack: ExitStack) -> None:
    engine = VllmEngine(mock(stack, processed_logprobs=True))
    with pytest.raises(EngineError) as caught:
        generate(VllmEngine(mock(stack)), engine, "margin:0.8:0.3")
    assert "--logprobs-mode raw_logprobs" in caught.value.hint


class Every:
    """A policy and its session: hands over after every `size` tokens."""

    name = "every"
    first: Role = "large"
    roles: frozenset[Role] = frozenset(ROLES)
    margins: frozenset[Role] = frozenset()

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0

    def start(self, start: Start) -> Every:
        return self

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        self._count = 0

    def feed(self, token: Token) -> Decision:
        self._count += 1
        return HandOff(token.index, "lead", "every") if self._count >= self._size else STAY

    def probed(self, piece: Piece | None) -> Decision:
        return STAY

    def answer(self, on_duty: Role) -> Role:
        return on_duty


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_hand_offs_anywhere_leave_characters_whole(stack: ExitStack, size: int) -> None:
    """The trace has tokens of a space and half a character, which servers show only when whole."""
    assert any(token[:1] == b" " and not _whole(token) for token in TRACE.tokens)
    large, small = VllmEngine(mock(stack)), VllmEngine(mock(stack))
    assert generate(large, small, Every(size)).text == TRACE.text


def _whole(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True
