"""Switch once."""

from __future__ import annotations

from typing import Any

import pytest

from relaygen import UsageError
from relaygen.policies import HandOff, OneShotPolicy, Probe, Stay
from relaygen.policies.base import STAY, Decision
from relaygen.policies.one_shot import CUE_GROUPS, DEFAULT_GROUPS, group_cues
from relaygen.text.cues import CueSet

from .support import begun, candidates, feed, play, words

FILLER = [" x"] * 60


def cue_at(index: int, cue: str = " therefore", size: int = 60) -> list[str]:
    """So many tokens, one of which is a cue."""
    return [*FILLER[:index], cue, *FILLER[: size - index - 1]]


def acted(decisions: list[Decision]) -> list[tuple[int, Decision]]:
    """The tokens at which something was decided."""
    return [(index, d) for index, d in enumerate(decisions) if not isinstance(d, Stay)]


def test_by_default_it_switches_at_the_cue_for_good() -> None:
    script = words("We add. Therefore it is 4. Thus, done. Therefore.")
    assert [(s.role, s.kind, s.text, s.why, s.cue) for s in play(OneShotPolicy(), script)] == [
        ("large", "lead", "We add. Therefore", "cue", "therefore"),
        ("small", "lead", " it is 4. Thus, done. Therefore.", "", ""),
    ]


def test_after_the_switch_it_never_acts_again() -> None:
    session = begun(OneShotPolicy())
    assert feed(session, ["Therefore"]) == [HandOff(0, "lead", "cue", "therefore")]
    for role in ("small", "large"):  # the small one may have failed
        session.begin(role, "lead", "reasoning", "handoff")
        assert feed(session, ["Therefore", " in", " conclusion"]) == [STAY] * 3


def test_the_classic_preset() -> None:
    policy = OneShotPolicy.classic()
    assert (policy.check_every, policy.window, policy.switch_threshold) == (10, 100, 0.8)
    assert not policy.repeat
    assert policy.cues.names == OneShotPolicy().cues.names == group_cues().names
    assert policy.margins == {"small"}
    assert OneShotPolicy().margins == frozenset()
    assert OneShotPolicy.classic(CueSet(["so"])).cues.names == ("so",)


@pytest.mark.parametrize(("index", "check"), [(0, 9), (8, 9), (9, 9), (10, 19), (19, 19), (25, 29)])
def test_the_classic_hand_off_is_at_the_check(index: int, check: int) -> None:
    session = begun(OneShotPolicy.classic())
    decisions = feed(session, cue_at(index)[: check + 1])
    assert acted(decisions) == [(check, Probe("small"))]
    assert session.probed(candidates(0.95)) == HandOff(check, "lead", "cue", "therefore")
    session.begin("small", "lead", "reasoning", "handoff")
    assert acted(feed(session, cue_at(0))) == []


@pytest.mark.parametrize(
    ("threshold", "margin", "switches"),
    [
        (0.5, 0.4, False),
        (0.5, 0.5, True),  # exactly; these numbers are
        (0.5, 0.6, True),
        (0.8, 0.79, False),
        (0.8, 0.81, True),
        (0.8, 1.0, True),
        (1.0, 1.0, True),
        (1.0, 0.99, False),
        (0.01, 0.0, False),
        (0.8, None, False),  # unknown is never sure
    ],
)
def test_the_confidence_gate(threshold: float, margin: float | None, switches: bool) -> None:
    session = begun(OneShotPolicy(switch_threshold=threshold))
    assert feed(session, [" a", " therefore"]) == [STAY, Probe("small")]
    piece = candidates(margin)
    if margin == threshold:
        assert piece.margin == threshold
    expected = HandOff(1, "lead", "cue", "therefore") if switches else STAY
    assert session.probed(piece) == expected


def test_after_a_switch_behind_the_gate_nothing_is_asked_again() -> None:
    session = begun(OneShotPolicy(switch_threshold=0.5))
    assert feed(session, [" therefore"]) == [Probe("small")]
    assert isinstance(session.probed(candidates(0.9)), HandOff)
    assert feed(session, [" therefore"], first=1) == [STAY]


def test_a_failed_probe_is_no_permission() -> None:
    session = begun(OneShotPolicy(switch_threshold=0.5))
    assert feed(session, [" therefore"]) == [Probe("small")]
    assert session.probed(None) == STAY
    assert feed(session, [" therefore"], first=1) == [Probe("small")]  # the switch is not spent
    assert session.probed(candidates(0.9)) == HandOff(1, "lead", "cue", "therefore")


def test_an_answer_nobody_asked_for_changes_nothing() -> None:
    session = begun(OneShotPolicy(switch_threshold=0.5))
    assert session.probed(candidates(1.0)) == STAY
    assert feed(session, [" therefore"]) == [Probe("small")]
    assert session.probed(candidates(0.0)) == STAY
    assert session.probed(candidates(1.0)) == STAY  # the question is answered


def test_a_cue_seen_once_does_not_fire_again_in_the_classic_preset() -> None:
    session = begun(OneShotPolicy.classic())
    tokens = [*cue_at(3, size=10), *cue_at(3, size=10), *cue_at(3, " in conclusion", 10)]
    decisions = []
    for index, token in enumerate(tokens):
        decisions += feed(session, [token], first=index)
        if decisions[-1] == Probe("small"):
            assert session.probed(candidates(0.1)) == STAY
    assert acted(decisions) == [(9, Probe("small")), (29, Probe("small"))]


def test_cues_of_one_look_are_spent_together_and_the_last_is_named() -> None:
    session = begun(OneShotPolicy.classic())
    look = [" therefore", *[" x"] * 3, " to summarize", *[" x"] * 5]
    assert acted(feed(session, look)) == [(9, Probe("small"))]
    assert session.probed(candidates(0.1)) == STAY
    assert acted(feed(session, look, first=10)) == []
    other = begun(OneShotPolicy.classic())
    feed(other, look)
    assert other.probed(candidates(0.9)) == HandOff(9, "lead", "cue", "to summarize")


def test_with_repeat_a_new_occurrence_fires_again() -> None:
    session = begun(OneShotPolicy(check_every=10, switch_threshold=0.8))
    for first in (0, 10, 20):
        decisions = feed(session, cue_at(3, size=10), first=first)
        assert acted(decisions) == [(9, Probe("small"))]
        assert session.probed(candidates(0.1)) == STAY
    assert acted(feed(session, FILLER[:20], first=30)) == []  # an old one does not


@pytest.mark.parametrize(("behind", "found"), [(1, True), (9, True), (10, False), (15, False)])
def test_a_look_covers_the_window(behind: int, found: bool) -> None:
    policy = OneShotPolicy(CueSet(["="]), check_every=20, window=10)
    session = begun(policy)
    decisions = feed(session, [*["x"] * (19 - behind), "=", *["x"] * behind])
    assert acted(decisions) == (([(19, HandOff(19, "lead", "cue", "="))]) if found else [])


def test_a_cue_outside_the_window_is_not_spent() -> None:
    policy = OneShotPolicy(CueSet(["="]), check_every=20, window=10, repeat=False)
    session = begun(policy)
    assert acted(feed(session, ["=", *["x"] * 19])) == []
    assert acted(feed(session, [*["x"] * 19, "="])) == [(19, HandOff(19, "lead", "cue", "="))]


def test_looks_are_counted_over_segments() -> None:
    """A failed delegation or an engine's own limit does not start the count again."""
    session = begun(OneShotPolicy(check_every=10))
    assert acted(feed(session, cue_at(2, size=7))) == []
    session.begin("large", "lead", "reasoning", "limit")
    assert acted(feed(session, FILLER[:3])) == [(2, HandOff(2, "lead", "cue", "therefore"))]


def test_the_answer_is_another_text() -> None:
    session = begun(OneShotPolicy())
    feed(session, ["```", "\n"])
    session.begin("large", "lead", "answer", "stage")
    assert feed(session, ["Therefore"], stage="answer") == [HandOff(0, "lead", "cue", "therefore")]

    session = begun(OneShotPolicy(check_every=10))
    feed(session, cue_at(2, size=9))
    session.begin("large", "lead", "answer", "stage")
    assert acted(feed(session, FILLER[:20], stage="answer")) == []


def test_max_switches_zero_never_switches() -> None:
    policy = OneShotPolicy(max_switches=0)
    assert acted(feed(begun(policy), ["Therefore", " in", " conclusion"])) == []
    assert [s.role for s in play(policy, words("Therefore it is. Finally, done."))] == ["large"]


def test_the_role_on_duty_answers() -> None:
    session = begun(OneShotPolicy())
    assert session.answer("large") == "large"
    assert session.answer("small") == "small"


@pytest.mark.parametrize("text", ["Therefore", "THEREFORE", "therefore", " tHeReFoRe"])
def test_groups_match_in_either_case(text: str) -> None:
    assert feed(begun(OneShotPolicy()), [text]) == [HandOff(0, "lead", "cue", "therefore")]


@pytest.mark.parametrize(
    "text",
    ["The answer:", "Result:", "Thus,", "Finally,", "In conclusion", "Simplifying"],
)
def test_the_default_groups(text: str) -> None:
    assert DEFAULT_GROUPS == ("answer", "consolidation")
    assert acted(feed(begun(OneShotPolicy()), words(text)))


@pytest.mark.parametrize("text", ["x = y", "{", "}", "answers: ", "Thus we", "simplifying5"])
def test_not_among_the_default_groups(text: str) -> None:
    assert not acted(feed(begun(OneShotPolicy()), words(text)))


def test_the_calculation_group_fires_in_math() -> None:
    policy = OneShotPolicy(group_cues(("calculation",)))
    assert acted(feed(begun(policy), ["$", "x", " ="])) == [(2, HandOff(2, "lead", "cue", "="))]
    assert acted(feed(begun(policy), [" therefore"])) == []


def test_groups_of_one_s_own() -> None:
    known: Any = {**CUE_GROUPS, "law": ("Held:", "hence")}
    policy = OneShotPolicy(group_cues(("law",), known))
    assert policy.cues.names == ("Held:", "hence")
    assert acted(feed(begun(policy), [" HELD", ":"])) == [(1, HandOff(1, "lead", "cue", "Held:"))]
    with pytest.raises(UsageError, match=r"'law'.*answer, consolidation, calculation"):
        group_cues(("law",))


def test_the_least_values_are_good() -> None:
    policy = OneShotPolicy(CueSet(["="]), check_every=1, window=1, switch_threshold=0.0)
    assert feed(begun(policy), ["x", "="]) == [STAY, HandOff(1, "lead", "cue", "=")]


@pytest.mark.parametrize(
    "values",
    [
        {"check_every": 0},
        {"window": 0},
        {"switch_threshold": -0.1},
        {"switch_threshold": 1.1},
        {"max_switches": 2},
        {"max_switches": -1},
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        OneShotPolicy(**values)
