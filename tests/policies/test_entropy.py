"""The entropy policies, without the loop and in it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import cycle
from typing import Any, Literal
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import EngineError, EntropyPolicy, HandedOff, Probed, Relay, UsageError
from relaygen._types import Piece
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.policies import HandOff, Probe, Session
from relaygen.policies.base import STAY, streamed_candidates
from tests.support import Run, run
from tests.text.support import texts

from .support import begun, candidates, feed, plan, play, words

# Two candidates have an entropy of ln 2 at margin 0 and of 0.33 nats at margin 0.8.
TOKEN = EntropyPolicy(0.5, "token")
STEP = EntropyPolicy(0.5, "step")
PROBE = Probe("small", 20)
HALVES = "😀".encode()
LOW, HIGH = 0.8, 0.0  # margins of a certain and of an uncertain token


# The measure.


@pytest.mark.parametrize(
    ("shares", "entropy"),
    [
        ([1.0, 0.0], 0.0),
        ([0.5, 0.5], math.log(2)),
        ([0.25] * 4, math.log(4)),
        ([0.1, 0.1], math.log(2)),  # scaled to sum 1
        ([0.5, 0.25, 0.25, 0.0], 1.5 * math.log(2)),
        ([1.0], None),
        ([], None),
    ],
)
def test_entropy_of_candidates(shares: list[float], entropy: float | None) -> None:
    top = tuple((n, math.log(each) if each else -math.inf) for n, each in enumerate(shares))
    found = Piece(0, b"a", top).entropy
    assert found == entropy if entropy is None else found == pytest.approx(entropy)


@pytest.mark.parametrize(
    ("policy", "role", "count"),
    [(TOKEN, "small", 20), (TOKEN, "large", 20), (STEP, "small", 20), (STEP, "large", 0)],
)
def test_whose_candidates_it_reads(policy: EntropyPolicy, role: Any, count: int) -> None:
    assert streamed_candidates(policy, role, "lead") == count
    assert (role in policy.margins) == bool(count)
    assert policy.first == "small"


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, math.inf])
def test_thresholds_that_make_no_sense(threshold: float) -> None:
    with pytest.raises(UsageError):
        EntropyPolicy(threshold)


def test_units_that_do_not_exist() -> None:
    unit: Any = "word"
    with pytest.raises(UsageError):
        EntropyPolicy(1.0, unit)


def test_as_high_as_the_threshold_is_uncertain() -> None:
    even = candidates(0.0)
    assert even.entropy is not None
    assert EntropyPolicy(even.entropy).uncertain(even)
    assert not EntropyPolicy(even.entropy + 1e-9).uncertain(even)


# By the token.


@pytest.mark.parametrize(
    ("tokens", "margins", "k"),
    [
        (["We", " add"], [LOW, HIGH], 0),
        (["We"], [HIGH], -1),
        ([" x", HALVES[:1], HALVES[1:]], [LOW, LOW, HIGH], 0),  # all of the character goes
        ([" x", HALVES[:1], HALVES[1:]], [LOW, HIGH, LOW], 0),
        ([" x", HALVES, " y"], [LOW, LOW, HIGH], 1),
    ],
)
def test_an_uncertain_token_of_the_small_model_is_discarded(
    tokens: list[str | bytes], margins: list[float | None], k: int
) -> None:
    decisions = feed(begun(TOKEN, "small"), tokens, margins=margins)
    assert next(each for each in decisions if each != STAY) == HandOff(k, "lead", "entropy")


def test_the_large_model_writes_until_it_is_certain_itself() -> None:
    session = begun(TOKEN, "large", after="handoff")
    tokens = [" a", " b", " c", " d"]
    assert feed(session, tokens, margins=[HIGH, None, LOW, LOW]) == [
        STAY,
        STAY,
        HandOff(2, "lead", "certain"),
        HandOff(3, "lead", "certain"),  # the first one was refused
    ]


def test_unknown_is_neither() -> None:
    assert feed(begun(TOKEN, "small"), ["a", "b"], margins=[None, None]) == [STAY, STAY]


def test_a_new_segment_counts_anew() -> None:
    session = begun(TOKEN, "small")
    feed(session, ["We", " add"], margins=[LOW, LOW])
    session.begin("small", "lead", "answer", "stage")
    assert feed(session, ["a"], stage="answer", margins=[HIGH]) == [HandOff(-1, "lead", "entropy")]


def test_by_the_token_whoever_is_on_duty_answers() -> None:
    session = begun(TOKEN, "small")
    assert (session.answer("small"), session.answer("large")) == ("small", "large")
    assert session.probed(candidates(1.0)) == STAY


# By the step.


def asked(*, margin: float | None) -> Any:
    """The large model ends a step, and the small one glimpses at the next."""
    session = begun(STEP, "large", after="handoff")
    assert feed(session, ["We", " add", ".\n\n"]) == [STAY, STAY, PROBE]
    return session.probed(candidates(margin))


@pytest.mark.parametrize(
    ("tokens", "margins", "k"),
    [
        (["We", " add"], [HIGH, LOW], -1),
        (["We", ".\n\n", "So"], [LOW, HIGH, HIGH], 1),
        (["We", "\n", "\n", "So"], [LOW, HIGH, HIGH, HIGH], 2),
        (["We", ".\n\n", " \n", "So"], [LOW, HIGH, HIGH, HIGH], 2),  # white space is no word
        (["We", ".\n\n", HALVES[:1], HALVES[1:]], [LOW, LOW, HIGH, LOW], 1),
        (["We", ".\n\n", "So", ".\n\n", "On"], [LOW, HIGH, LOW, HIGH, HIGH], 3),
    ],
)
def test_an_uncertain_beginning_is_the_large_models(
    tokens: list[str | bytes], margins: list[float | None], k: int
) -> None:
    decisions = feed(begun(STEP, "small"), tokens, margins=margins)
    assert decisions[: k + 2] == [*([STAY] * (k + 1)), HandOff(k, "lead", "entropy")]


@pytest.mark.parametrize(
    ("tokens", "margins"),
    [
        (["We", " add", "\n", "So"], [LOW, HIGH, HIGH, HIGH]),
        (["We", ".\n\n", HALVES[:1], HALVES[1:]], [LOW, LOW, LOW, HIGH]),
        (["We", ".\n\n", "So"], [None, HIGH, None]),
        (["We", ".\n\nSo", " on"], [LOW, HIGH, HIGH]),
    ],
)
def test_within_a_step_nothing_is_decided(
    tokens: list[str | bytes], margins: list[float | None]
) -> None:
    assert set(feed(begun(STEP, "small"), tokens, margins=margins)) == {STAY}


def test_behind_a_step_of_the_large_model_the_small_one_glimpses() -> None:
    assert asked(margin=LOW) == HandOff(2, "lead", "certain")
    assert asked(margin=HIGH) == STAY
    assert asked(margin=None) == STAY
    session = begun(STEP, "large", after="handoff")
    feed(session, ["We", ".\n\n"])
    assert session.probed(None) == STAY
    assert feed(session, ["So", ".\n\n"], first=2) == [STAY, PROBE]


def test_a_discarded_beginning_was_never_read() -> None:
    session = begun(STEP, "small")
    feed(session, ["We", ".\n\n", "Wait"], margins=[LOW, LOW, HIGH])
    session.begin("large", "lead", "reasoning", "handoff")
    assert feed(session, ["\n\n", "So", ".\n\n"]) == [STAY, STAY, PROBE]


def test_who_was_glimpsed_is_not_looked_at_twice() -> None:
    session = begun(STEP, "large", after="handoff")
    feed(session, ["We", ".\n\n"])
    session.probed(candidates(LOW))
    session.begin("small", "lead", "reasoning", "handoff")
    assert feed(session, ["So", ".\n\n", "On"], margins=[HIGH, LOW, HIGH]) == [
        STAY,
        STAY,
        HandOff(1, "lead", "entropy"),
    ]


def test_the_large_model_answers_alone() -> None:
    session = begun(STEP, "small")
    assert session.answer("small") == "large"
    session.begin("large", "lead", "answer", "stage")
    assert set(feed(session, ["We", ".\n\n", "So"], stage="answer")) == {STAY}


def test_without_thinking_the_answer_is_written_by_steps() -> None:
    session = begun(STEP, "large", start=plan(thinking=False), stage="answer", after="handoff")
    assert feed(session, ["We", ".\n\n"], stage="answer") == [STAY, PROBE]


# Properties.

SCRIPTS = st.lists(
    st.one_of(st.sampled_from(["\n\n", "\n", " it", "é", "."]), texts(6)), max_size=40
).map(lambda parts: words("".join(parts)))
MARGINS = st.lists(st.sampled_from([None, LOW, HIGH]), min_size=1, max_size=30)
POLICIES = st.sampled_from([TOKEN, STEP])


@settings(deadline=None)
@given(SCRIPTS, MARGINS, POLICIES, st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_how_the_engines_group_tokens_changes_nothing(
    script: list[str], margins: list[float | None], policy: EntropyPolicy, sizes: list[int]
) -> None:
    def margin(place: int) -> float | None:
        return margins[place % len(margins)]

    options: Any = {"margin": margin, "streamed": True}
    one = play(policy, script, **options)
    assert play(policy, script, groups=cycle(sizes), **options) == one
    assert "".join(segment.text for segment in one) == "".join(script)


@settings(deadline=None)
@given(SCRIPTS, MARGINS)
def test_every_token_has_the_writer_that_the_rule_names(
    script: list[str], margins: list[float | None]
) -> None:
    def margin(place: int) -> float | None:
        return margins[place % len(margins)]

    place = 0
    for segment in play(TOKEN, script, margin=margin, streamed=True):
        own = [margin(each) for each in range(place, place + segment.size)]
        if segment.role == "small":
            assert HIGH not in own
        else:
            assert LOW not in own[:-1]
            assert segment.size
        place += segment.size


@settings(deadline=None)
@given(SCRIPTS, POLICIES)
def test_always_certain_the_small_model_writes_everything(
    script: list[str], policy: EntropyPolicy
) -> None:
    (segment,) = play(policy, script, margin=lambda place: LOW, streamed=True)
    assert segment.role == "small"


# In the loop.

ESSAY = (
    "<think>\nWe add two.\n\nWait, is that so? We count.\n\nSo it is.\n\nYes, 😀 four.\n\nDone.\n"
    "</think>\n\nThe sum is four.\n\nIndeed."
)


def by(**low: float) -> Any:
    """The margin of each word; certain where it is not named."""
    return lambda text: low.get(text.strip(), LOW)


def test_a_whole_generation_by_the_step() -> None:
    small = ScriptedEngine(ESSAY, margin=by(Wait=HIGH, Yes=HIGH, count=HIGH))
    made = run(STEP, ESSAY, small=small)
    assert made.roles() == [
        ("small", "<think>\nWe add two.\n\n"),
        ("large", "Wait, is that so? We count.\n\n"),
        ("small", "So it is.\n\n"),
        ("large", "Yes, 😀 four.\n\n"),
        ("small", "Done.\n</think>"),
        ("large", "\n\nThe sum is four.\n\nIndeed."),
    ]
    usage = made.generation.usage
    assert usage.small.probes == 2
    assert usage.small.discarded == 2 + 2  # a beginning and a glimpse of each large step
    assert [event.margin for event in made.of(Probed)] == [pytest.approx(LOW)] * 2
    assert {request.top for request in small.requests} == {20}
    assert {request.top for request in made.large.requests} == {0}
    assert usage.utilization == usage.large_tokens / (usage.large_tokens + usage.small_tokens)


def test_a_whole_generation_by_the_token() -> None:
    small = ScriptedEngine(ESSAY, margin=by(Wait=HIGH, four=HIGH))
    large = ScriptedEngine(ESSAY, margin=by(Wait=HIGH, is_=HIGH))
    made = run(TOKEN, ESSAY, small=small, large=large)
    assert made.roles() == [
        ("small", "<think>\nWe add two.\n\n"),
        ("large", "Wait,"),
        ("small", " is that so? We count.\n\nSo it is.\n\nYes, 😀"),
        ("large", " four"),
        ("small", ".\n\nDone.\n</think>"),
        ("small", "\n\nThe sum is"),
        ("large", " four"),
        ("small", ".\n\nIndeed."),
    ]
    assert {event.kind for event in made.of(HandedOff)} == {"lead"}
    assert made.generation.usage.large_tokens == 4
    assert made.generation.usage.small.discarded == 3
    assert {request.top for request in (*small.requests, *large.requests)} == {20}


@pytest.mark.parametrize("policy", [TOKEN, STEP], ids=["token", "step"])
def test_a_small_model_that_is_never_certain(policy: EntropyPolicy) -> None:
    engines = {role: ScriptedEngine(ESSAY, margin=HIGH) for role in ("large", "small")}
    made = run(policy, ESSAY, large=engines["large"], small=engines["small"])
    assert made.generation.text == ESSAY
    assert made.generation.usage.small_tokens <= 2  # the opening marker of the thinking


@pytest.mark.parametrize("policy", [TOKEN, STEP], ids=["token", "step"])
def test_a_small_engine_that_fails(policy: EntropyPolicy) -> None:
    small = ScriptedEngine(ESSAY, failures=[Failure(EngineError("broken", retryable=True), 0, 3)])
    made = run(policy, ESSAY, small=small)
    assert made.generation.text == ESSAY
    assert made.generation.usage.fallbacks == 1


@pytest.mark.parametrize("unit", ["token", "step"])
def test_engines_without_candidates_are_refused(unit: Literal["token", "step"]) -> None:
    class Hiding(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Piece:
            return replace(super()._piece(id, top), top=())

    hiding, telling = Hiding("We add."), ScriptedEngine("We add.")
    policy = EntropyPolicy(0.5, unit)
    with Relay(telling, hiding, policy=policy) as pair, pytest.raises(EngineError) as caught:
        pair.generate("?")
    assert caught.value.role == "small"
    with Relay(hiding, telling, policy=policy) as pair:
        if unit == "step":  # nobody reads the large model's
            assert pair.generate("?").answer == "We add."
        else:
            with pytest.raises(EngineError) as caught:
                pair.generate("?")
            assert caught.value.role == "large"


def test_its_name_says_what_to_do() -> None:
    with Relay(ScriptedEngine("We."), ScriptedEngine("We."), policy="entropy:step") as pair:
        assert pair.policy == EntropyPolicy(1.0, "step")
    with pytest.raises(UsageError) as caught:
        Relay(ScriptedEngine("We."), ScriptedEngine("We."), policy="entropy:0.5")
    assert "entropy:token:0.5" in caught.value.hint


@settings(deadline=None, max_examples=30)
@given(POLICIES, st.integers(0, 99), st.integers(1, 9), st.integers(1, 9))
def test_bursts_change_nothing_in_the_loop(
    policy: EntropyPolicy, salt: int, one: int, other: int
) -> None:
    def margin(text: str) -> float:
        return crc32(f"{salt}{text}".encode()) % 101 / 100

    def made(large: int, small: int) -> Run:
        engines: Any = {
            "large": ScriptedEngine(ESSAY, margin=margin, burst=large),
            "small": ScriptedEngine(ESSAY, margin=margin, burst=small),
        }
        return run(policy, ESSAY, **engines)

    single, many = made(1, 1), made(one, other)
    assert single.generation.text == ESSAY
    assert single.roles() == many.roles()


def test_sessions_are_independent() -> None:
    sessions: list[Session] = [begun(STEP, "small") for _ in range(2)]
    feed(sessions[0], ["We", ".\n\n"], margins=[LOW, LOW])
    assert feed(sessions[1], ["We", " So"], margins=[LOW, HIGH]) == [STAY, STAY]
