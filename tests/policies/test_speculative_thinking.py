"""Speculative Thinking, without the loop and in it."""

from __future__ import annotations

from itertools import cycle
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import HandedOff, SpeculativeThinkingPolicy, UsageError
from relaygen._errors import EngineError
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.policies import HandOff, Session, Stay
from relaygen.policies.base import STAY, Decision
from tests.support import Run, run
from tests.text.support import texts

from .support import begun, candidates, feed, play, words, written

POLICY = SpeculativeThinkingPolicy(takeover=4, verification_tokens=6, patience=2)


def small(policy: SpeculativeThinkingPolicy = POLICY) -> Session:
    return begun(policy, "small")


def handed(session: Session, *, first: int = 0, passage: str = " a b c d") -> HandOff:
    """The large model writes a passage, and the small one is back."""
    session.begin("large", "lead", "reasoning", "handoff")
    *before, last = feed(session, words(passage), first=first)
    assert before == [STAY] * len(before)
    assert isinstance(last, HandOff)
    session.begin("small", "lead", "reasoning", "handoff")
    return last


# Who takes over where.


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["We", ".\n\n", "Wait", ","], [STAY, STAY, HandOff(1, "lead", "reflection")]),
        (["We", ".\n\n", "So", " wait"], [STAY, STAY, Stay(1), HandOff(1, "lead", "reflection")]),
        (["We", ".\n\n", "Yes", ","], [STAY, STAY, HandOff(1, "lead", "affirmation")]),
        (["We", ".\n\n", "Yes, wait"], [STAY, STAY, HandOff(1, "lead", "reflection")]),  # a tie
        (["We", ".\n\n", "Let", " us", " re", "check"], [STAY, STAY, Stay(1), Stay(2), Stay(3)]),
        (["We", ".\n\n", "hold", " on"], [STAY, STAY, Stay(1), HandOff(1, "lead", "reflection")]),
        (["We", ".\n\n", "", "Wait"], [STAY, STAY, Stay(1), HandOff(1, "lead", "reflection")]),
        (["We", "\n", "Wait", ","], [STAY] * 4),  # no blank line
        (["Wait", ",", " yes"], [STAY] * 3),  # nor at the start, as in the original
    ],
)
def test_words_behind_a_blank_line(tokens: list[str], expected: list[Decision]) -> None:
    assert feed(small(), tokens)[: len(expected)] == expected


def test_only_so_many_tokens_are_looked_at() -> None:
    tokens = ["We", ".\n\n", "a", "b", "c", "d", "wait"]
    assert feed(small(), tokens) == [STAY, STAY, Stay(1), Stay(2), Stay(3), STAY, STAY]
    tokens[5] = "wait"
    assert feed(small(), tokens)[5] == HandOff(1, "lead", "reflection")


def test_a_second_blank_line_starts_a_new_look() -> None:
    tokens = ["We", ".\n\n", "a", ".\n\n", "b", " c", " wait"]
    decisions = feed(small(), tokens)
    assert decisions[2:] == [Stay(1), STAY, Stay(1), Stay(2), HandOff(3, "lead", "reflection")]


def test_the_large_model_writes_so_many_tokens() -> None:
    session = small()
    feed(session, ["We", ".\n\n", "Wait"])
    assert handed(session) == HandOff(3, "lead", "written")
    # What it wrote is looked at by nobody, and a blank line of its own is none of the small one's.
    assert feed(session, [" wait", ".\n\n", "x"])[-1] == Stay(1)


def test_a_passage_that_verifies_is_longer_once() -> None:
    session = small()
    feed(session, ["We", ".\n\n", "Wait"])
    assert handed(session, passage=" a check c d e f g check i j").k == 9
    feed(session, [".\n\n", "Wait"], first=3)
    assert handed(session, passage=" a b c d").k == 3


def test_what_the_small_model_wrote_is_forgotten() -> None:
    """Nothing but white space follows the blank line yet, so another one is no end of a step."""
    session = small(SpeculativeThinkingPolicy(takeover=2))
    feed(session, ["We", ".\n\n", "Wait"])
    assert handed(session, passage="  ").k == 1
    assert feed(session, ["\n\n", "x"]) == [STAY, STAY]


def test_after_many_reflections_comes_a_recap_and_then_rarer_and_longer_ones() -> None:
    session = small()
    for _ in range(2):
        assert feed(session, [" x", ".\n\n", "Wait"])[-1] == HandOff(1, "lead", "reflection")
        handed(session, passage=" wait b c d")
    assert feed(session, [" x", ".\n\n"]) == [STAY, HandOff(1, "lead", "recap")]
    assert handed(session, passage=" a b c d e f").k == 5  # verification_tokens, and no more
    for _ in range(7):
        assert feed(session, [" x", ".\n\n", "Wait"])[-1] == HandOff(1, "lead", "reflection")
        handed(session, passage=" wait b c d")
    assert feed(session, [" x", ".\n\n"]) == [STAY, HandOff(1, "lead", "recap")]
    assert handed(session, passage=" a" * 31).k == 30


def test_passages_that_affirm_bring_no_recap() -> None:
    session = small()
    for _ in range(5):
        assert feed(session, [" x", ".\n\n", "Wait"])[-1] == HandOff(1, "lead", "reflection")
        handed(session, passage=" yes b c d")


def test_a_hand_back_that_is_refused_is_asked_for_again() -> None:
    session = small()
    feed(session, ["We", ".\n\n", "Wait"])
    session.begin("large", "lead", "reasoning", "handoff")
    assert feed(session, words(" a b c d e"))[3:] == [
        HandOff(3, "lead", "written"),
        HandOff(4, "lead", "written"),
    ]


def test_the_small_model_answers_by_the_same_rules() -> None:
    session = small()
    feed(session, ["We", ".\n\n"])
    assert session.answer("large") == session.answer("small") == "small"
    session.begin("small", "lead", "answer", "stage")
    assert feed(session, ["Wait", ".\n\n", "Yes"], stage="answer") == [
        STAY,
        STAY,
        HandOff(1, "lead", "affirmation"),
    ]
    assert session.probed(candidates(1.0)) == STAY


def test_the_published_numbers() -> None:
    policy = SpeculativeThinkingPolicy()
    assert (policy.takeover, policy.verification_tokens, policy.patience) == (20, 125, 15)
    assert policy.first == "small"
    assert policy.margins == frozenset()


@pytest.mark.parametrize("name", ["takeover", "verification_tokens", "patience"])
def test_numbers_that_make_no_sense(name: str) -> None:
    values: dict[str, Any] = {name: 0}
    with pytest.raises(UsageError):
        SpeculativeThinkingPolicy(**values)


# Properties.

SCRIPTS = st.lists(
    st.one_of(
        st.sampled_from(["\n\n", "\n", "Wait", " yes", " check", " it", "é", "."]),
        texts(6),
    ),
    max_size=40,
).map(lambda parts: words("".join(parts)))


@settings(deadline=None)
@given(SCRIPTS, st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_how_the_engines_group_tokens_changes_nothing(script: list[str], sizes: list[int]) -> None:
    one = play(POLICY, script)
    assert play(POLICY, script, groups=cycle(sizes)) == one
    assert "".join(segment.text for segment in one) == "".join(script)
    for before, segment in zip([None, *one], one, strict=False):
        if segment.role == "large" and segment.why:
            assert segment.size >= POLICY.takeover
        if segment.role == "small" and segment.why:
            assert segment.text.endswith("\n")
        assert before is None or before.role != segment.role


# In the loop.

ESSAY = (
    "<think>\nWe add two and two and get four.\n\nWait, is that so? We count again: one, two, "
    "three, four and nothing else is left to count at all.\n\nYes, I verify: one more two makes "
    "four, as we said, and nothing changes however often we do it here.\n\nDone now.\n</think>\n\n"
    "The sum is four."
)


def test_a_whole_generation() -> None:
    made = run(SpeculativeThinkingPolicy(verification_tokens=8), ESSAY)
    assert [(s.role, s.stage) for s in made.generation.segments] == [
        ("small", "reasoning"),
        ("large", "reasoning"),
        ("small", "reasoning"),
        ("large", "reasoning"),
        ("small", "reasoning"),
        ("small", "answer"),
    ]
    first, reflecting, _, affirming, *_ = made.generation.segments
    assert first.text.endswith("four.\n\n")
    assert reflecting.text.startswith("Wait")
    assert (reflecting.tokens, affirming.tokens) == (20, 28)
    assert [event.why for event in made.of(HandedOff)] == [
        *("reflection", "written", "affirmation", "written"),
    ]
    assert made.generation.usage.large_tokens == 48
    assert made.generation.text == ESSAY


def test_the_large_model_disagrees_and_its_words_stand() -> None:
    """Discarded words of the small model's are never shown."""

    def large(text: str) -> str:
        return " So it is fine indeed" if text.endswith("\n\n") else " fine"

    def follow(text: str) -> str:
        return "We add.\n\nWait no"[len(text) :] if "So" not in text else ""

    made = run(
        SpeculativeThinkingPolicy(takeover=5),
        "",
        large=ScriptedEngine(free=large),
        small=ScriptedEngine(free=follow),
    )
    assert made.generation.text == "We add.\n\n So fine fine fine fine"
    assert "Wait" not in made.shown("answer")
    assert made.generation.usage.small.discarded == 1


@pytest.mark.parametrize("ends", [0, 3, 13])
def test_a_small_engine_that_fails(ends: int) -> None:
    failing = ScriptedEngine(
        ESSAY, failures=[Failure(EngineError("broken", retryable=True), 0, ends)]
    )
    made = run(SpeculativeThinkingPolicy(), ESSAY, small=failing)
    assert made.generation.text == ESSAY
    assert made.generation.usage.fallbacks == 1
    assert made.roles()[-1][0] == "small"  # it was asked again


def essay(salt: int) -> str:
    openings = ("Wait, no", "Yes", "We check", "So it is", "Alternatively é")
    parts = []
    for number in range(12):
        mixed = crc32(f"{salt} {number}".encode())
        parts.append(f"{openings[mixed % 5]} {'and so on ' * (mixed % 7)}.")
    return "<think>\n" + "\n\n".join(parts) + "\n</think>\n\nWait, 😀.\n\nYes, four. " + "on " * 9


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.integers(1, 9), st.integers(1, 9))
def test_bursts_change_nothing_in_the_loop(salt: int, one: int, other: int) -> None:
    def made(large: int, small: int) -> Run:
        script = essay(salt)
        engines: Any = {
            "large": ScriptedEngine(script, burst=large),
            "small": ScriptedEngine(script, burst=small),
        }
        return run(POLICY, script, **engines)

    single, many = made(1, 1), made(one, other)
    assert single.generation.text == essay(salt)
    assert single.roles() == many.roles()
    assert len({role for role, _ in written(play(POLICY, words(essay(salt))))}) == 2
