"""The margin policy, without the loop."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen.policies import HandOff, MarginPolicy, RelayPolicy, Session, Stay
from relaygen.policies.base import STAY, Streaming, streamed_candidates
from relaygen.text.cues import CueSet
from tests.text.support import texts

from .support import Segment, begun, feed, plan, play, words, written

CUES = ("Thus", "So", "Now")
POLICY = MarginPolicy.of(CUES, stay=0.8, leave=0.3)
HALVES = "😀".encode()
SENTENCE, LEFT = "sentence", "margin"


def delegated(policy: MarginPolicy = POLICY) -> Session:
    """A session whose small model writes a delegated segment."""
    session = begun(policy)
    assert feed(session, ["Thus"], margins=[0.0]) == [HandOff(0, "delegate", "cue", "Thus")]
    session.begin("small", "delegate", "reasoning", "handoff")
    return session


# The thresholds.


@pytest.mark.parametrize(
    ("tokens", "margins", "k", "why"),
    [
        # Past a sentence end, or not.
        ([" 4", ".", " Next"], [0.9, 0.9, 0.79], 1, SENTENCE),
        ([" 4", ".", " Next"], [0.9, 0.9, None], 1, SENTENCE),
        ([" 4", ".\n", "Next"], [0.9, 0.9, 0.7], 1, SENTENCE),
        ([" 4", ".", "\n", "Next"], [0.9, 0.9, 0.9, 0.7], 2, SENTENCE),
        ([" 4", ".", "", " Next", " is"], [0.9, 0.9, 0.7, 0.9, 0.9], 1, SENTENCE),  # its first
        ([" 4", ".", " Next", " 5", ".", " On"], [0.9, 0.9, 0.81, 0.5, 0.5, 0.5], 4, SENTENCE),
        ([" 4", ".\n", "Next", ".\n", "On"], [0.9, 0.9, 0.81, 0.5, 0.7], 3, SENTENCE),
        ([" 4", ".\n", HALVES[:1], HALVES[1:]], [0.9, 0.9, 0.7, 0.9], 1, SENTENCE),
        ([" 4", ".\n" + "\n", "Next"], [0.9, 0.9, 0.2], 1, SENTENCE),
        ([" 4", ".", " x.\n", "Next"], [0.9, 0.9, 0.9, 0.7], 2, SENTENCE),  # two ends in a row
        # Early.
        ([" is", " 4"], [0.9, 0.29], 0, LEFT),
        ([" 3", ".", "14"], [0.9, 0.9, 0.1], 1, LEFT),
        ([" 4"], [0.1], -1, LEFT),
        ([" x", HALVES[:1], HALVES[1:]], [0.9, 0.9, 0.1], 0, LEFT),  # all of the character
        ([HALVES[:1], HALVES[1:3], HALVES[3:]], [0.9, 0.9, 0.1], -1, LEFT),
        ([" x", HALVES, " y"], [0.9, 0.9, 0.1], 1, LEFT),
        ([" 4", ".", " Next", " 5"], [0.9, 0.9, 0.9, 0.1], 2, LEFT),
    ],
)
def test_where_it_hands_back(
    tokens: list[str | bytes], margins: list[float | None], k: int, why: str
) -> None:
    decisions = feed(delegated(), tokens, margins=margins)
    first = next(each for each in decisions if not isinstance(each, Stay))
    assert first == HandOff(k, "lead", why)


@pytest.mark.parametrize(
    ("tokens", "margins"),
    [
        ([" 4", ".", " Next", " is"], [0.9, 0.9, 0.81, 0.31]),
        ([" 4", ".\n", "Next", " is"], [0.9, 0.9, 0.81, 0.31]),
        ([" 4", ".\n", HALVES[:1], HALVES[1:], " is"], [0.9, 0.9, 0.9, 0.5, 0.5]),
        ([" 4", b".\n" + HALVES[:1], HALVES[1:], " is"], [0.9, 0.9, 0.5, 0.9]),
        ([" 4", ".", b" " + HALVES[:1], HALVES[1:], " is"], [0.9, 0.9, 0.81, 0.5, 0.5]),
        ([" is", " 4", " x"], [None, None, None]),  # unknown is not low
        ([" 3", ".", "14"], [0.5, 0.5, 0.5]),  # no sentence
        ([" So", " Thus"], [0.5, 0.5]),  # its cues mean nothing
    ],
)
def test_where_it_goes_on(tokens: list[str | bytes], margins: list[float | None]) -> None:
    assert all(isinstance(each, Stay) for each in feed(delegated(), tokens, margins=margins))


def test_margins_as_high_as_the_thresholds_are_high_enough() -> None:
    policy = MarginPolicy.of(CUES, stay=0.5, leave=0.5)
    tokens = [" 4", ".", " Next", " is"]
    assert feed(delegated(policy), tokens, margins=[0.5] * 4) == [STAY] * 4


def test_the_large_models_margins_are_not_looked_at() -> None:
    session = begun(POLICY)
    assert feed(session, ["We", " add", ".", " It"], margins=[0.0, None, 0.0, 1.0]) == [STAY] * 4


def test_a_small_lead_is_left_alone() -> None:
    session = begun(POLICY, "small", start=plan(True, "small"), stage="answer", after="stage")
    tokens = ["It", " is", ".", " So", " on", ".\n"]
    assert feed(session, tokens, stage="answer", margins=[0.0] * 6) == [STAY] * 6


# What a hand-back leaves behind.


def test_a_discarded_token_was_never_read() -> None:
    """The large model writes the backquote again, and the cue is not in code."""
    session = delegated()
    assert feed(session, [" x", " `"], margins=[0.9, 0.1])[-1] == HandOff(0, "lead", LEFT)
    session.begin("large", "lead", "reasoning", "handoff")
    assert feed(session, [" `", "x", "`", " So"])[-1] == HandOff(3, "delegate", "cue", "So")


def test_unsure_at_once_the_large_model_owes_a_sentence() -> None:
    session = delegated()
    feed(session, [" it"], margins=[0.1])
    session.begin("large", "lead", "reasoning", "handoff")
    assert feed(session, [" So", " 4", "."]) == [STAY] * 3
    assert feed(session, [" So"], first=3) == [HandOff(3, "delegate", "cue", "So")]


def test_unsure_later_it_owes_none() -> None:
    session = delegated()
    feed(session, [" it", " is"], margins=[0.9, 0.1])
    session.begin("large", "lead", "reasoning", "handoff")
    assert feed(session, [" So"]) == [HandOff(0, "delegate", "cue", "So")]


def test_a_turn_that_ends_with_a_sentence_is_as_good_as_a_sentence_end() -> None:
    session = delegated()
    assert feed(session, [" it", ".\n"], margins=[0.9, 0.9]) == [STAY, STAY]
    session.begin("large", "lead", "reasoning", "turn")
    assert feed(session, [" So"]) == [HandOff(0, "delegate", "cue", "So")]
    session = delegated()
    feed(session, [" it", ".\n", " is"], margins=[0.9, 0.9, 0.9])
    session.begin("large", "lead", "reasoning", "turn")  # in mid-sentence it is not
    assert feed(session, [" So"]) == [STAY]


def test_a_new_segment_starts_afresh() -> None:
    session = delegated()
    feed(session, [" it", ".\n"], margins=[0.9, 0.9])
    session.begin("large", "lead", "reasoning", "limit")
    feed(session, [" Thus"])
    session.begin("small", "delegate", "reasoning", "handoff")
    assert feed(session, [" x"], margins=[0.5]) == [STAY]
    session.begin("small", "delegate", "reasoning", "handoff")
    assert feed(session, [" x"], margins=[0.1]) == [HandOff(-1, "lead", LEFT)]


def test_everything_else_is_the_relay_policys() -> None:
    policy = MarginPolicy.of(["So"], stay=2, leave=0, markers=["Final", "So"])
    assert policy.markers.names == ("Final",)
    relay = policy.relay
    assert (relay.cues.names, relay.markers.names) == (("So",), ("Final",))
    assert MarginPolicy(CueSet(["So"]), 1, 0, CueSet([]), 7).relay.max_consecutive_delegations == 7
    assert policy.first == "large"
    assert policy.roles == {"large", "small"}


# Hints and engines.


def test_a_delegate_that_may_go_on_is_not_stopped_at_sentence_ends() -> None:
    stopped = MarginPolicy.of(CUES, stay=1.01, leave=0.3)
    for policy, hinted in ((POLICY, False), (stopped, True)):
        session: Any = begun(policy)
        assert "Thus" in session.hints()
        session.begin("small", "delegate", "reasoning", "handoff")
        assert (".\n" in session.hints()) == hinted


@pytest.mark.parametrize(
    ("stay", "leave", "reads"),
    [(0.8, 0.3, True), (1.0, 0, True), (1.1, 0.1, True), (1.1, 0, False)],
)
def test_it_needs_margins_only_where_a_threshold_can_act(
    stay: float, leave: float, reads: bool
) -> None:
    policy = MarginPolicy.of(CUES, stay=stay, leave=leave)
    assert policy.margins == ({"small"} if reads else set())
    assert streamed_candidates(policy, "small", "delegate") == (2 if reads else 0)
    assert streamed_candidates(policy, "small", "lead") == 0
    assert streamed_candidates(policy, "large", "delegate") == 0


def test_other_policies_read_no_streamed_candidates() -> None:
    assert isinstance(POLICY, Streaming)
    assert streamed_candidates(RelayPolicy.of(CUES), "small", "delegate") == 0


@pytest.mark.parametrize(
    ("stay", "leave"), [(0.3, 0.8), (math.nan, 0.1), (0.9, math.nan), (math.inf, 0), (0, -math.inf)]
)
def test_thresholds_that_make_no_sense(stay: float, leave: float) -> None:
    with pytest.raises(UsageError):
        MarginPolicy.of(CUES, stay=stay, leave=leave)


# Properties.

MARGINS = st.lists(
    st.one_of(st.none(), st.sampled_from([0.0, 0.29, 0.31, 0.79, 0.81, 1.0])),
    min_size=1,
    max_size=30,
)
SCRIPTS = texts(40).map(words)
STARTS = st.builds(plan, st.booleans(), st.sampled_from(["large", "small", "relay"]))


def shown(segments: list[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.text]


@settings(deadline=None)
@given(SCRIPTS, MARGINS, STARTS)
def test_with_extreme_thresholds_it_is_the_relay_policy(
    script: list[str], margins: list[float | None], start: Any
) -> None:
    relay = RelayPolicy.of(CUES, ["####"])
    extreme = MarginPolicy.of(CUES, stay=1.01, leave=0.0, markers=["####"])

    def margin(place: int) -> float | None:
        return margins[place % len(margins)]

    expected = play(relay, script, start=start)
    assert play(extreme, script, start=start, margin=margin, streamed=True) == expected


@settings(deadline=None)
@given(SCRIPTS, STARTS)
def test_without_margins_it_is_the_relay_policy(script: list[str], start: Any) -> None:
    policy = MarginPolicy.of(CUES, stay=0.8, leave=0.3)
    expected = shown(play(RelayPolicy.of(CUES), script, start=start))
    assert written(shown(play(policy, script, start=start))) == written(expected)


@settings(deadline=None)
@given(SCRIPTS)
def test_always_sure_it_never_hands_back(script: list[str]) -> None:
    segments = play(POLICY, script, margin=lambda place: 0.9, streamed=True)
    assert len(segments) <= 2
    assert segments[0].text == play(RelayPolicy.of(CUES), script)[0].text


@settings(deadline=None)
@given(SCRIPTS, MARGINS, st.sampled_from([(0.8, 0.3), (0.8, 0.0), (1.1, 0.3), (0.3, 0.3)]))
def test_every_hand_back_has_its_reason(
    script: list[str], margins: list[float | None], thresholds: tuple[float, float]
) -> None:
    stay, leave = thresholds
    policy = MarginPolicy.of(CUES, stay=stay, leave=leave)

    def margin(place: int) -> float | None:
        return margins[place % len(margins)]

    segments = play(policy, script, margin=margin, streamed=True)
    assert "".join(segment.text for segment in segments) == "".join(script)
    place = 0
    owes = False
    for segment in segments:
        behind = place + segment.size
        following = margin(behind) if behind < len(script) else None
        if segment.kind == "delegate":
            kept = [margin(each) for each in range(place, behind)]
            assert all(each is None or each >= leave for each in kept)
            if segment.why == LEFT:
                assert following is not None
                assert following < leave
            if segment.why == SENTENCE and stay <= 1:
                assert following is None or following < stay
            owes = not segment.size
        elif segment.why == "cue":
            assert segment.size
            assert not owes or any(mark in segment.text for mark in ".!?。！？\n")
        place = behind


@pytest.mark.parametrize("stay", [0.4, 0.5, 1.1])
def test_a_small_model_that_is_never_sure_writes_nothing_and_is_asked_once_a_sentence(
    stay: float,
) -> None:
    script = words("So So So it is. " * 20)
    policy = MarginPolicy.of(CUES, stay=stay, leave=0.4)
    segments = play(policy, script, margin=lambda place: 0.1, streamed=True)
    assert {segment.text for segment in segments if segment.role == "small"} == {""}
    assert 15 <= sum(segment.role == "small" for segment in segments) <= 20
