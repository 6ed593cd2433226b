"""The loop under the margin policy: what engines tell decides, and the promises hold."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import (
    EngineError,
    Generation,
    HandedOff,
    Limits,
    MarginPolicy,
    Relay,
    RelayPolicy,
    Thinking,
)
from relaygen._hints import HintIds
from relaygen._types import Piece
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.relay import Generating

from .support import CUES, PLAIN, THINKING, Run, check_promises, run, task

RELAY = RelayPolicy.of(CUES)
POLICY = MarginPolicy.of(CUES, stay=0.8, leave=0.3)
EXTREME = MarginPolicy.of(CUES, stay=1.5, leave=0.0)
FOREIGN = (
    "<think>\nWir addieren 2 und 2 – é. Thus è 4 😀 oder «4». So 三。 Now “ja”… 😀😀 gut.\n"
    "Therefore ½ fits. So\n</think>\n\nSo die Antwort: 4 €. Thus done 😀. Now end."
)
SCRIPTS = (THINKING, PLAIN, FOREIGN)


class Unsteady(ScriptedEngine):
    """Every token drawn has a margin of its own; None: it comes without candidates."""

    def __init__(self, script: str, margins: Sequence[float | None], **options: Any) -> None:
        super().__init__(script, **options)
        self._margins, self._drawn = margins, count()

    def _piece(self, id: int, top: int) -> Piece:
        margin = self._margins[next(self._drawn) % len(self._margins)]
        if margin is None:
            return replace(super()._piece(id, top), top=())
        worst = (1 - margin) / 2
        best = ((id, math.log((1 + margin) / 2)), (0, math.log(worst) if worst else -math.inf))
        return replace(super()._piece(id, top), top=best[:top])


def asked(engine: ScriptedEngine) -> set[int]:
    return {request.top for request in engine.requests}


def share(made: Run) -> float:
    usage = made.generation.usage
    return usage.small_tokens / usage.completion_tokens


# Thresholds in the loop.


def test_it_asks_the_small_engine_for_candidates_while_it_is_a_delegate() -> None:
    made = run(POLICY)
    *delegated, answer = made.small.requests
    assert made.generation.segments[-1].stage == "answer"
    assert (asked(made.large), {each.top for each in delegated}, answer.top) == ({0}, {2}, 0)
    for policy in (RELAY, EXTREME):
        made = run(policy)
        assert asked(made.large) == asked(made.small) == {0}


def test_a_sure_small_model_goes_on_past_the_sentence() -> None:
    made = run(POLICY, PLAIN, small=ScriptedEngine(PLAIN, margin=0.9))
    assert made.roles() == [
        ("large", "We add 2 and 2. Thus"),
        ("small", PLAIN.removeprefix("We add 2 and 2. Thus")),
    ]


def test_it_hands_back_before_the_token_of_which_it_is_unsure() -> None:
    def margin(text: str) -> float:
        return {" 4": 0.2, " Therefore": 0.5}.get(text, 0.9)

    made = run(POLICY, PLAIN, small=ScriptedEngine(PLAIN, margin=margin))
    assert made.roles() == [
        ("large", "We add 2 and 2. Thus"),
        ("small", " the sum is"),
        ("large", " 4. We check. Therefore"),
        ("small", " it holds, e.g. here. Done."),
    ]
    made = run(POLICY, PLAIN, small=ScriptedEngine(PLAIN, margin=lambda text: 0.5))
    assert made.roles() == run(RELAY, PLAIN).roles()  # never sure enough, never too unsure
    back = [event for event in made.of(HandedOff) if event.target == "large"]
    assert {event.why for event in back} == {"sentence"}


def test_no_character_is_cut() -> None:
    script = "We add. Thus 😀 😀 x. Done."
    for low in range(1, 12):
        margins: list[float | None] = [0.9] * 40
        margins[low] = 0.1
        small = Unsteady(script, margins)
        made = run(POLICY, script, small=small)
        assert made.generation.text == script
        for segment in made.generation.segments:
            assert "\ufffd" not in segment.text


def test_a_small_model_that_is_never_sure_is_asked_once_a_sentence() -> None:
    script = "So So Thus it is. " * 12
    made = run(POLICY, script, small=ScriptedEngine(script, margin=0.1))
    assert made.generation.text == script
    assert made.generation.usage.small_tokens == 0
    assert 8 <= len(made.small.requests) <= 12


def test_more_certainty_gives_the_small_model_more() -> None:
    shares = [
        share(
            run(
                POLICY, THINKING, small=ScriptedEngine(THINKING, margin=margin), answer_role="relay"
            )
        )
        for margin in (0.1, 0.5, 0.9)
    ]
    assert shares[0] == 0 < shares[1] < shares[2]


def test_it_stops_at_the_limit_of_a_segment() -> None:
    script = "".join(f"Thus it is {number} and so on. Well. " for number in range(30))
    small = ScriptedEngine(script, margin=1.0)
    made = run(POLICY, script, small=small, limits=Limits(max_segment_tokens=20))
    assert {s.tokens for s in made.generation.segments if s.role == "small"} == {20}
    assert made.generation.text == script


def test_an_end_of_turn_at_a_sentence_end_owes_no_sentence() -> None:
    script = "Thus it is.\nThus we end. Done."
    small = ScriptedEngine(script, margin=0.9, ends_at=[5])
    made = run(POLICY, script, small=small)
    assert made.roles()[:3] == [("large", "Thus"), ("small", " it is.\n"), ("large", "Thus")]


# Where margins cannot be had.


def test_engines_without_trustworthy_margins_are_refused_with_the_flag_to_set() -> None:
    class Hiding(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Piece:
            return replace(super()._piece(id, top), top=())

    class Scaling(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Piece:
            scale = self.requests[-1].sampling.temperature or 1.0
            piece = super()._piece(id, top)
            return replace(piece, top=tuple((i, p / scale) for i, p in piece.top))

    for engine, hint in (
        (Scaling(PLAIN), "--logprobs-mode raw_logprobs"),
        (Hiding(PLAIN), "switch"),
    ):
        with Relay(ScriptedEngine(PLAIN), engine, policy=POLICY) as pair:
            with pytest.raises(EngineError) as caught:
                pair.generate("?")
            assert hint in caught.value.hint
            assert caught.value.role == "small"
            # Where no threshold can act there is nothing to refuse.
            assert pair.generate("?", policy=EXTREME).answer == PLAIN


def test_a_failing_small_engine_is_no_reason_to_stop() -> None:
    small = ScriptedEngine(
        PLAIN, margin=0.9, failures=[Failure(EngineError("broken", retryable=True), 0, 3)]
    )
    made = run(POLICY, PLAIN, small=small)
    assert made.generation.text == PLAIN
    assert made.generation.usage.fallbacks == 1


# Properties.

MARGINS = st.lists(
    st.one_of(st.none(), st.sampled_from([0.0, 0.29, 0.5, 0.81, 1.0])), min_size=1, max_size=23
)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SCRIPTS),
    MARGINS,
    st.sampled_from([POLICY, replace(POLICY, stay=0.0, leave=-1.0), replace(POLICY, stay=1.5)]),
    st.sampled_from(["large", "small", "relay"]),
    st.integers(1, 7),
)
def test_whatever_the_margins_the_promises_hold(
    script: str, margins: list[float | None], policy: MarginPolicy, answer: Any, burst: int
) -> None:
    small = Unsteady(script, margins, burst=burst)
    made = run(policy, script, small=small, answer_role=answer)
    assert made.generation.text == script
    assert made.generation.finish == "stop"


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(SCRIPTS), st.integers(0, 9), st.sampled_from(["small", "relay"]))
def test_margins_that_depend_on_the_text_alone_give_the_same_text_by_the_same_hands(
    script: str, salt: int, answer: Any
) -> None:
    def margin(text: str) -> float:
        return crc32(f"{salt}{text}".encode()) % 101 / 100

    def made(burst: int) -> Generation:
        small = ScriptedEngine(script, margin=margin, burst=burst)
        return run(POLICY, script, small=small, answer_role=answer).generation

    one, many = made(1), made(5)
    assert [(s.role, s.text) for s in one.segments] == [(s.role, s.text) for s in many.segments]


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(SCRIPTS), MARGINS, st.sampled_from(["large", "small", "relay"]))
def test_extreme_thresholds_are_the_relay_policy(
    script: str, margins: list[float | None], answer: Any
) -> None:
    expected = run(RELAY, script, answer_role=answer)
    made = run(EXTREME, script, small=Unsteady(script, margins), answer_role=answer)
    assert made.roles() == expected.roles()
    assert made.generation.usage.discarded_tokens == expected.generation.usage.discarded_tokens
    assert [e.why for e in made.of(HandedOff)] == [e.why for e in expected.of(HandedOff)]


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([THINKING, PLAIN]), st.integers(0, 9))
def test_hints_change_nothing(script: str, salt: int) -> None:
    def margin(text: str) -> float:
        return crc32(f"{salt}{text}".encode()) % 101 / 100

    def made(hints: bool) -> Generation:
        engines: Any = {
            role: ScriptedEngine(script, margin=margin, burst=3) for role in ("large", "small")
        }
        tables = {role: HintIds(engine) for role, engine in engines.items()} if hints else None
        thinking = Thinking() if "think>" in script else None
        described = task(POLICY, thinking=thinking, answer_role="relay")
        generating = Generating(engines, described, hints=tables)

        async def play() -> Generation:
            async for _ in generating.events():
                pass
            return generating.snapshot()

        return asyncio.run(play())

    with_hints, without = made(True), made(False)
    check_promises(with_hints)
    assert [(s.role, s.text) for s in with_hints.segments] == [
        (s.role, s.text) for s in without.segments
    ]
    assert with_hints.usage.discarded_tokens <= without.usage.discarded_tokens
