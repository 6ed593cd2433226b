"""The paper's policy, without the loop."""

from __future__ import annotations

from typing import Any

import pytest

from relaygen.policies import HandOff, RelayPolicy, Session, Stay
from relaygen.policies.base import STAY, After
from relaygen.text.cues import CueSet

from .support import begun, candidates, feed, plan, play, words, written

POLICY = RelayPolicy.of(["Thus", "So", "Now", "Now,"], ["Final answer", "\\boxed{", "####"])
HALVES = "😀".encode()


def delegated() -> Session:
    """A session whose small model writes a delegated segment."""
    session = begun(POLICY)
    feed(session, ["Thus"])
    session.begin("small", "delegate", "reasoning", "handoff")
    return session


# Large to small.


@pytest.mark.parametrize(
    ("tokens", "k", "cue"),
    [
        (["First", " we", " add", ".", " Thus"], 4, "Thus"),
        (["Thus", " it"], 0, "Thus"),  # at the very beginning too
        (["It", " is", " So"], 2, "So"),
        (["S", "o"], 1, "So"),
        (["It", ". Now,"], 1, "Now,"),
    ],
)
def test_a_cue_delegates_at_the_token_that_completes_it(
    tokens: list[str], k: int, cue: str
) -> None:
    decisions = feed(begun(POLICY), tokens[: k + 1])
    assert decisions == [STAY] * k + [HandOff(k, "delegate", "cue", cue)]


@pytest.mark.parametrize("tokens", [["know", " snow"], ["thus"], ["Sofia"], ["`", "Thus", "`"]])
def test_without_a_cue_the_large_model_goes_on(tokens: list[str]) -> None:
    assert feed(begun(POLICY), tokens) == [STAY] * len(tokens)


def test_a_cue_in_a_boxed_result_is_none() -> None:
    policy = RelayPolicy.of(["="])
    assert feed(begun(policy), ["\\boxed{", "x", "=", "1", "}"]) == [STAY] * 5
    assert feed(begun(policy), ["#### ", "x", "=", "1"]) == [STAY] * 4
    assert feed(begun(policy), ["$", "x", "="])[2] == HandOff(2, "delegate", "cue", "=")


# Small to large.


@pytest.mark.parametrize(
    ("tokens", "k", "held"),
    [
        ([" it", " is", " 4", ".", " Next"], 3, [0, 0, 0, 0]),  # the next word is discarded
        ([" it", " is", " 4", ".", "\n"], 4, [0, 0, 0, 0]),  # white space is kept
        ([" it", " is", " 4", ".\n"], 3, [0, 0, 0]),
        ([" it", " is", " 4", ".\n\n"], 3, [0, 0, 0]),
        ([" it", "\n\n"], 1, [0]),
        (["。"], 0, []),
        ([" 3", ".", "14", ".", '"', " Next"], 4, [0, 0, 0, 0, 0]),
        ([" it", ".", b" " + HALVES[:1]], 1, [0, 0]),
        ([" it", ".", b"", b"", " Next"], 1, [0, 0, 1, 2]),
        ([" a.b", "?", " Next"], 1, [0, 0]),
    ],
)
def test_the_sentence_s_end_leads(tokens: list[str | bytes], k: int, held: list[int]) -> None:
    decisions = feed(delegated(), tokens)
    assert decisions[:-1] == [Stay(h) for h in held]
    assert decisions[-1] == HandOff(k, "lead", "sentence")


def test_half_a_character_is_held_until_it_is_no_white_space() -> None:
    decisions = feed(delegated(), [" it", ".", HALVES[:1], HALVES[1:], "."])
    assert decisions == [STAY, STAY, Stay(1), STAY, STAY]


def test_cues_of_the_small_model_mean_nothing() -> None:
    assert feed(delegated(), [" it", " So", ",", " Thus"]) == [STAY] * 4


def test_a_terminator_of_the_segment_before_is_over() -> None:
    """The dot of the cue decides nothing in the next segment."""
    session = begun(RelayPolicy.of(["Wait."]))
    assert feed(session, ["Wait."]) == [HandOff(0, "delegate", "cue", "Wait.")]
    session.begin("small", "delegate", "reasoning", "handoff")
    assert feed(session, [" Next", ".", " Y"]) == [STAY, STAY, HandOff(1, "lead", "sentence")]


def test_a_discarded_word_is_read_again() -> None:
    """The cue that the small model wrote ahead fires when the large model writes it."""
    session = delegated()
    assert feed(session, [" it", ".", " `Thus"])[2] == HandOff(1, "lead", "sentence")
    session.begin("large", "lead", "reasoning", "handoff")
    assert feed(session, [" So"]) == [HandOff(0, "delegate", "cue", "So")]


def test_two_round_trips() -> None:
    script = words("We add. Thus 2 + 2 = 4. It is 3.14, so know it. So we end.\n\nDone.")
    assert [(s.role, s.kind, s.text, s.why, s.cue) for s in play(POLICY, script)] == [
        ("large", "lead", "We add. Thus", "cue", "Thus"),
        ("small", "delegate", " 2 + 2 = 4.", "sentence", ""),
        ("large", "lead", " It is 3.14, so know it. So", "cue", "So"),
        ("small", "delegate", " we end.\n", "sentence", ""),
        ("large", "lead", "\nDone.", "", ""),
    ]


# The guard against the So-loop.


@pytest.mark.parametrize("most", [1, 2, 3, 5])
@pytest.mark.parametrize("opening", ["So", " So", "So,", "\n\nSo", "- So", "**So"])
def test_after_so_many_bare_segments_the_large_model_writes_a_sentence(
    most: int, opening: str
) -> None:
    policy = RelayPolicy(CueSet(["So", "So,"]), max_consecutive_delegations=most)
    session = begun(policy)
    for _ in range(most):
        last = feed(session, [opening])[-1]
        assert isinstance(last, HandOff)
        session.begin("small", "delegate", "reasoning", "handoff")
        feed(session, [" it is.\n"])
        session.begin("large", "lead", "reasoning", "handoff")
    assert feed(session, [opening, " it", " is", " So", "."]) == [STAY] * 5
    assert feed(session, [" So"], first=5) == [HandOff(5, "delegate", "cue", "So")]


def bare(session: Session, tokens: list[str], times: int) -> list[bool]:
    """Whether each of so many large segments delegates."""
    results = []
    for _ in range(times):
        decisions = feed(session, tokens)
        results.append(isinstance(decisions[-1], HandOff))
        session.begin("small", "delegate", "reasoning", "handoff")
        feed(session, [" it is.\n"])
        session.begin("large", "lead", "reasoning", "handoff")
    return results


def test_a_segment_with_more_than_the_cue_starts_the_count_again() -> None:
    session = begun(POLICY)
    assert bare(session, ["So"], 2) == [True, True]
    assert bare(session, ["We see. So"], 1) == [True]
    assert bare(session, ["So"], 4) == [True, True, True, False]


def test_punctuation_before_the_cue_is_nothing_but_a_ruled_line_is_something() -> None:
    assert bare(begun(POLICY), ["- ", "So"], 4) == [True, True, True, False]
    assert bare(begun(POLICY), ["-" * 50, "-" * 50, " So"], 5) == [True] * 5


def test_the_rest_of_a_cue_is_bare_too() -> None:
    policy = RelayPolicy.of(["in short"])
    session = begun(policy)
    results = []
    for _ in range(4):
        results.append(isinstance(feed(session, [" short"])[-1], HandOff))
        session.begin("small", "delegate", "reasoning", "handoff")
        feed(session, [" it in"])  # cut off in mid-sentence
        session.begin("large", "lead", "reasoning", "limit")
    assert results == [False, True, True, True]
    assert feed(session, [" short"]) == [STAY]


@pytest.mark.parametrize(
    ("cue", "opening"), [("so", "SO"), ("let's see", "Let’s see"), ("-", "-"), ("=", "=")]
)
def test_the_guard_compares_as_the_cues_do(cue: str, opening: str) -> None:
    policy = RelayPolicy(CueSet([cue], ignore_case=True))
    assert bare(begun(policy), [opening], 4) == [True, True, True, False]


# A delegate that ends its turn, and other ends.


@pytest.mark.parametrize("after", ["turn", "loop"])
def test_the_large_model_owes_a_sentence_after_a_delegate_s_end_of_turn(after: After) -> None:
    session = delegated()
    feed(session, [" it", " is"])
    session.begin("large", "lead", "reasoning", after)
    assert feed(session, [" So", " 4", "."]) == [STAY] * 3
    assert feed(session, [" So"], first=3) == [HandOff(3, "delegate", "cue", "So")]


@pytest.mark.parametrize("after", ["handoff", "limit", "failure", "marker"])
def test_it_owes_none_after_other_ends(after: After) -> None:
    session = delegated()
    feed(session, [" it", " is"])
    session.begin("large", "lead", "reasoning", after)
    assert feed(session, [" So"]) == [HandOff(0, "delegate", "cue", "So")]


def test_a_blank_line_pays_the_debt_too() -> None:
    session = delegated()
    session.begin("large", "lead", "reasoning", "turn")
    assert feed(session, ["a", "\n\n", "So"])[2] == HandOff(2, "delegate", "cue", "So")
    session = delegated()
    session.begin("large", "lead", "reasoning", "turn")
    assert feed(session, [" a", "\n", "So"])[2] == STAY  # a line is no sentence


# The answer.


def test_the_answer_is_another_text() -> None:
    """A fence that the thinking left open does not reach into it, nor does a debt."""
    session = begun(POLICY, start=plan(True, "relay"))
    assert feed(session, ["```", "\n", "Thus"])[2] == STAY
    session.begin("large", "lead", "reasoning", "turn")
    session.begin("large", "lead", "answer", "stage")
    assert feed(session, ["Thus"], stage="answer") == [HandOff(0, "delegate", "cue", "Thus")]


def test_a_cue_does_not_join_thinking_and_answer() -> None:
    session = begun(RelayPolicy.of(["in short"]), start=plan(True, "relay"))
    feed(session, [" in"])
    session.begin("large", "lead", "answer", "stage")
    assert feed(session, [" short"], stage="answer") == [STAY]


@pytest.mark.parametrize(
    ("answer_role", "leads", "relays"),
    [("small", "small", False), ("large", "large", False), ("relay", "large", True)],
)
def test_roles_in_the_answer(answer_role: Any, leads: str, relays: bool) -> None:
    session = begun(POLICY, start=plan(True, answer_role))
    assert session.answer("large") == leads
    assert session.answer("small") == leads
    session.begin("large", "lead", "answer", "stage")
    expected = HandOff(0, "delegate", "cue", "Thus") if relays else STAY
    assert feed(session, ["Thus"], stage="answer") == [expected]


def test_a_small_lead_is_left_alone() -> None:
    session = begun(POLICY, "small", start=plan(True, "small"), stage="answer", after="stage")
    text = ["Thus", " it", ".", " So", " on", ".\n"]
    assert feed(session, text, stage="answer") == [STAY] * 6


@pytest.mark.parametrize("answer_role", ["small", "large", "relay"])
def test_without_thinking_the_answer_is_relayed(answer_role: Any) -> None:
    session = begun(POLICY, start=plan(False, answer_role), stage="answer")
    assert feed(session, ["It", " is", " `", "x", "`", " Thus"], stage="answer")[-1] == HandOff(
        5, "delegate", "cue", "Thus"
    )


# The small model takes the answer over where there is no thinking.


def takeover(text: str, answer_role: Any = "small") -> list[tuple[str, str]]:
    return list(written(play(POLICY, words(text), start=plan(False, answer_role))))


@pytest.mark.parametrize(
    ("large", "small"),
    [
        ("We add. Final answer: 4.", " That is all. Thus done."),
        ("We add. Final answer: 4.\n", "That is all."),
        ("Final answer\n\n", "It is 4. Thus done."),
        ("It is $\\boxed{4}$.", " That is all. Thus done."),
        ("It is \\boxed{4}.", " That is all."),
        ("It is\n\\[\\boxed{4}\\]\n\n", "That is all."),
        ("It is \\boxed{\\text{yes. So. No}}.", " That is all."),  # not inside of the box
        ("Sum:\n#### 4. Now. See\n\n", "That is all."),  # not on that line
        ("Sum:\n#### 4.\n", "That is all."),
        ("We add. Final answer is 3.14, Thus 3.", " That is all."),  # no cue in between
    ],
)
def test_it_takes_over_at_the_next_sentence(large: str, small: str) -> None:
    assert takeover(large + small) == [("large", large), ("small", small)]
    segments = play(POLICY, words(large + small), start=plan(False, "small"))
    assert [(s.kind, s.why) for s in segments] == [("lead", "answer"), ("lead", "")]


def test_no_marker_no_takeover() -> None:
    assert takeover("We add. It is 4. Done.") == [("large", "We add. It is 4. Done.")]


@pytest.mark.parametrize("answer_role", ["large", "relay"])
def test_markers_are_nothing_to_other_answer_roles(answer_role: Any) -> None:
    text = "We add. Final answer: 4. That is all."
    assert takeover(text, answer_role) == [("large", text)]


def test_markers_are_nothing_where_there_is_thinking() -> None:
    text = "We add. Final answer: 4. That is all."
    assert written(play(POLICY, words(text), start=plan(True, "small"))) == [("large", text)]


def test_relaying_goes_on_until_the_marker() -> None:
    text = "We add. Thus it is 4. Final answer: 4. So done. On."
    assert takeover(text) == [
        ("large", "We add. Thus"),
        ("small", " it is 4."),
        ("large", " Final answer: 4."),
        ("small", " So done. On."),
    ]


def test_a_delegate_s_marker_is_not_trusted() -> None:
    text = "Thus the Final answer: 4. It is. Done."
    assert takeover(text) == [
        ("large", "Thus"),
        ("small", " the Final answer: 4."),
        ("large", " It is. Done."),
    ]


def test_what_was_read_ahead_is_held_before_the_takeover() -> None:
    session = begun(POLICY, start=plan(False, "small"), stage="answer")
    tokens: list[str | bytes] = ["Final", " answer", ".", HALVES[:1], HALVES[1:], ".", b"", " So"]
    assert feed(session, tokens, stage="answer") == [
        *(STAY, STAY, STAY, Stay(1), STAY, STAY, Stay(1)),
        HandOff(5, "lead", "answer"),
    ]


def test_what_was_read_ahead_of_the_takeover_is_forgotten() -> None:
    session = begun(POLICY, start=plan(False, "small"), stage="answer")
    decisions = feed(session, ["Final answer", ".", " ```"], stage="answer")
    assert decisions[-1] == HandOff(1, "lead", "answer")
    session.begin("small", "lead", "answer", "handoff")
    feed(session, [" It", " is"], stage="answer")
    session.begin("large", "lead", "answer", "failure")
    assert feed(session, [" so", ".\n"], stage="answer")[-1] == HandOff(1, "lead", "answer")


def test_a_marker_in_the_look_ahead_waits_for_its_own_sentence() -> None:
    policy = RelayPolicy.of([], ["Final"])
    session = begun(policy, start=plan(False, "small"), stage="answer")
    assert feed(session, ["It", ".", " Final", " 4", ".", " On"], stage="answer") == [
        *(STAY, STAY, STAY, STAY, STAY),
        HandOff(4, "lead", "answer"),
    ]


def test_a_cue_in_the_marker_s_token_does_not_delegate() -> None:
    policy = RelayPolicy.of(["So"], ["So Final"])
    session = begun(policy, start=plan(False, "small"), stage="answer")
    assert feed(session, ["So Final", " x", ".\n"], stage="answer") == [
        STAY,
        STAY,
        HandOff(2, "lead", "answer"),
    ]


def test_it_takes_over_again_after_a_failure() -> None:
    session = begun(POLICY, start=plan(False, "small"), stage="answer")
    feed(session, ["Final answer", ".\n"], stage="answer")
    session.begin("small", "lead", "answer", "handoff")
    assert feed(session, ["It", ".\n"], stage="answer") == [STAY, STAY]
    session.begin("large", "lead", "answer", "failure")
    assert feed(session, ["So", " on", ".\n"], stage="answer")[-1] == HandOff(2, "lead", "answer")


@pytest.mark.parametrize(
    "policy",
    [
        RelayPolicy.of(["Final answer"], ["Final answer ", "####"]),
        RelayPolicy(CueSet(["Final answer"]), CueSet(["Final answer", "####"])),
    ],
)
def test_a_cue_is_never_a_marker(policy: RelayPolicy) -> None:
    assert policy.markers.names == ("####",)
    session = begun(policy, start=plan(False, "small"), stage="answer")
    decisions = feed(session, ["Final answer"], stage="answer")
    assert decisions == [HandOff(0, "delegate", "cue", "Final answer")]


def test_it_asks_for_no_probe() -> None:
    session = begun(POLICY)
    assert session.probed(candidates(1.0)) == STAY
    assert POLICY.margins == frozenset()
