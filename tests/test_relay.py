"""The loop: promises, hand-off points, stages, budgets, failures."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import (
    ContextLengthError,
    Conversation,
    Done,
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
    FellBack,
    HandedOff,
    Inserted,
    LargeOnly,
    Message,
    OneShotPolicy,
    Probed,
    RandomPolicy,
    RelayPolicy,
    SmallOnly,
    StageChanged,
    Text,
    Thinking,
    UsageError,
)
from relaygen._task import Task
from relaygen._types import Delta, EngineInfo, Piece, Prompt, SegmentRequest
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.policies import Policy, Start
from relaygen.policies.base import STAY, HandOff, Insert, Probe, Stay, Token
from relaygen.relay import Generating

from .support import CUES, PLAIN, THINKING, check_promises, limits, run, task, tokens, words

RELAY = RelayPolicy.of(CUES)
PROMPT = tokens("<user>?<assistant>")
POLICIES: list[Policy] = [
    LargeOnly(),
    SmallOnly(),
    RELAY,
    OneShotPolicy(),
    OneShotPolicy.classic(),
    RandomPolicy(0.3),
    RandomPolicy(1.0),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("script", [THINKING, PLAIN], ids=["tags", "none"])
@pytest.mark.parametrize("burst", [1, 2, 7])
def test_self_relay_identity(policy: Policy, script: str, burst: int) -> None:
    """The same model in both roles writes what it writes alone, whatever the hand-offs."""
    result = run(
        policy,
        script,
        large=ScriptedEngine(script, burst=burst),
        small=ScriptedEngine(script, burst=burst),
    )
    assert result.generation.text == script
    assert result.generation.finish == "stop"


SENTENCES = st.lists(
    st.sampled_from(
        [
            "We add 3.14",
            "Thus x = 2",
            "So",
            "Now e.g. 5!",
            "\\(a. b\\)",
            "naïve 龘🦄",
            "Therefore",
            "$5",
        ]
    ),
    min_size=1,
    max_size=12,
)
ENDS = st.sampled_from([". ", ".\n", "\n\n", "! ", "。", " "])


@settings(max_examples=150, deadline=None)
@given(parts=SENTENCES, end=ENDS, bursts=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_grouping_into_deltas_never_moves_a_hand_off(
    parts: list[str], end: str, bursts: tuple[int, int]
) -> None:
    script = end.join(parts) + "."

    def played(large: int, small: int) -> Any:
        return run(
            RELAY,
            script,
            large=ScriptedEngine(script, burst=large),
            small=ScriptedEngine(script, burst=small),
        )

    one, many = played(1, 1), played(*bursts)
    assert many.generation.text == script
    assert many.roles() == one.roles()
    assert [(e.token, e.why, e.cue) for e in many.of(HandedOff)] == [
        (e.token, e.why, e.cue) for e in one.of(HandedOff)
    ]


def test_hand_off_points_are_exact() -> None:
    result = run(RELAY)
    assert result.roles() == [
        ("large", "<think>\nFirst we add 2 and 2. Thus"),
        ("small", " the sum is 3.14 or 4."),
        ("large", " We check it. Therefore"),
        ("small", " it is fine.\n"),
        ("large", "\nNow"),
        ("small", " we end the list."),
        ("large", " So"),
        ("small", " good.\n"),
        ("large", "</think>"),
        ("small", "\n\nThe answer is 4. Done now."),
    ]
    assert [s.cue for s in result.generation.segments if s.role == "small"] == [
        "Thus",
        "Therefore",
        "Now",
        "So",
        "",
    ]


def test_channels_hold_no_markers_and_are_shown_as_they_come() -> None:
    result = run(RELAY)
    reasoning, answer = THINKING.removeprefix("<think>\n").split("</think>\n\n")
    assert result.generation.reasoning == result.shown("reasoning") == reasoning
    assert result.generation.answer == result.shown("answer") == answer
    assert len(result.of(Text)) > 40
    assert result.generation.usage.reasoning_tokens == tokens(THINKING.split("</think>")[0]) + 1


def test_events_come_in_order() -> None:
    result = run(RELAY)
    assert isinstance(result.events[-1], Done)
    for before, after in itertools.pairwise(result.events):
        if isinstance(before, HandedOff) and isinstance(after, Text):
            assert after.role == before.target
    roles = [(e.source, e.target) for e in result.of(HandedOff)]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(roles))
    assert result.generation.usage.handoffs == len(roles) == 9


def test_tokens_beyond_a_hand_off_are_counted_and_never_shown() -> None:
    result = run(
        RELAY, PLAIN, large=ScriptedEngine(PLAIN, burst=4), small=ScriptedEngine(PLAIN, burst=4)
    )
    usage = result.generation.usage
    discarded = sum(event.discarded for event in result.of(HandedOff))
    # In fours: [We add 2 and][2 . Thus|the], [the sum is 4][.|We check .], [it holds , e][. g . here]
    # [.|Done .]; the bar is where the segment ends.
    assert usage.large.discarded == 1
    assert usage.small.discarded == 3 + 2
    assert discarded == usage.discarded_tokens == 6


def test_the_look_ahead_belongs_to_the_large_model() -> None:
    result = run(RELAY, "Thus a. Next b.")
    assert result.roles()[1:] == [("small", " a."), ("large", " Next b.")]
    assert result.generation.usage.small.discarded == 1


def test_both_engines_are_released() -> None:
    result = run(RELAY)
    assert len(result.large.released) == len(result.small.released) == 1
    assert result.large.released == result.small.released


@pytest.mark.parametrize("fresh", [False, True])
def test_a_fresh_generation_takes_the_cache_only_for_what_is_its_own(fresh: bool) -> None:
    result = run(RELAY, fresh=fresh)
    for engine in (result.large, result.small):
        first, *others = [request.fresh for request in engine.requests]
        assert first is fresh
        assert others
        assert not any(others)


# Reference defects 8, 9 and 11 (the others are tested with the text layer).


def test_defect_8_nothing_sent_is_ever_rewritten() -> None:
    """The reference re-renders the chat at each hand-off and loses the opened `<think>`."""
    script = THINKING.removeprefix("<think>\n")
    result = run(RELAY, script, prefill="<think>\n", thinking=Thinking())
    requests = sorted(result.large.requests + result.small.requests, key=lambda r: len(r.ids))
    assert len(requests) == 10
    for before, after in itertools.pairwise(requests):
        assert after.ids[: len(before.ids)] == before.ids
    assert all("<assistant><think>\n" in words(request.ids) for request in requests)


class _Remembering(ScriptedEngine):
    async def render(self, conversation: Conversation) -> Prompt:
        self.conversation = conversation
        return await super().render(conversation)


def test_defect_9_the_whole_conversation_is_rendered() -> None:
    """The reference keeps the last user message only."""
    engines = {"large": _Remembering(PLAIN), "small": _Remembering(PLAIN)}
    conversation = Conversation(
        (
            Message("system", "be brief"),
            Message("user", "one"),
            Message("assistant", "two"),
            Message("user", "three"),
        ),
        template_kwargs={"enable_thinking": False},
    )
    generating = Generating(engines, Task(conversation, RELAY))  # type: ignore[arg-type]

    async def go() -> None:
        async for _ in generating.events():
            pass

    asyncio.run(go())
    for engine in engines.values():
        assert engine.conversation == conversation


def test_defect_11_a_delegates_end_of_turn_is_not_trusted() -> None:
    """The reference calls the same model again, or gives up."""
    script = "We go. Thus it is so. We go on. Therefore more. End."
    small = ScriptedEngine(script, ends_at=[tokens("We go. Thus it")])
    result = run(RELAY, script, small=small)
    assert result.generation.text == script
    assert result.roles()[:3] == [
        ("large", "We go. Thus"),
        ("small", " it"),
        ("large", " is so. We go on. Therefore"),
    ]
    assert [e.why for e in result.of(HandedOff)][1] == "turn"


def test_after_an_untrusted_end_of_turn_the_large_model_owes_a_sentence() -> None:
    script = "Thus a b Thus c d. Thus e. End."
    small = ScriptedEngine(script, ends_at=[tokens("Thus a")])
    result = run(RELAY, script, small=small)
    assert result.roles()[:3] == [
        ("large", "Thus"),
        ("small", " a"),
        ("large", " b Thus c d. Thus"),
    ]


def test_a_delegates_end_of_thinking_is_discarded() -> None:
    def hasty(text: str) -> str:
        return " it</think>"[len(text.split("Thus", 1)[1]) :] if "Thus" in text else ""

    script = "<think>We go. Thus it is. Done.</think>Four."
    result = run(RELAY, script, small=ScriptedEngine(free=hasty))
    assert result.roles()[:3] == [
        ("large", "<think>We go. Thus"),
        ("small", " it"),
        ("large", " is. Done.</think>"),
    ]
    assert result.generation.usage.small.discarded == 1
    assert result.of(HandedOff)[1].why == "marker"
    assert [event.stage for event in result.of(StageChanged)] == ["answer"]


def test_a_leads_end_of_turn_inside_the_thinking_closes_it_once() -> None:
    script = "<think>We go. Done."
    answering = ScriptedEngine(free=lambda text: "" if "Four" in text else "Four")
    result = run(RELAY, script, small=answering)
    assert result.generation.text == "<think>We go. Done.\n</think>\n\nFour"
    assert [event.why for event in result.of(Inserted)] == ["turn"]
    assert result.generation.answer == "Four"
    inserted = [s for s in result.generation.segments if s.role == "inserted"]
    assert [s.text for s in inserted] == ["\n</think>\n\n"]
    assert result.generation.usage.inserted_tokens == tokens("\n</think>\n\n")


# Stages.


def test_a_template_that_opens_the_thinking() -> None:
    script = THINKING.removeprefix("<think>\n")
    result = run(RELAY, script, thinking=Thinking(), prefill="<think>\n")
    assert result.generation.text == script
    assert result.generation.reasoning == script.split("</think>")[0]


@pytest.mark.parametrize(
    "options",
    [{"prefill": "<think>\n\n</think>\n\n"}, {"template_kwargs": {"enable_thinking": False}}],
    ids=["closed", "switched off"],
)
def test_closed_thinking_is_relayed_as_one_answer(options: dict[str, Any]) -> None:
    result = run(RELAY, PLAIN, thinking=Thinking(), **options)
    assert result.generation.answer == PLAIN
    assert result.generation.reasoning == ""
    assert ("small", " the sum is 4.") in result.roles()


def test_a_model_that_answers_without_thinking() -> None:
    result = run(RELAY, PLAIN, thinking=Thinking())
    assert result.generation.answer == PLAIN
    assert ("small", " the sum is 4.") in result.roles()
    assert result.of(StageChanged)[0].token == 0


def test_markers_in_the_users_words_mean_nothing() -> None:
    result = run(RELAY, THINKING, question="what is </think>?")
    assert result.generation.answer == "The answer is 4. Done now."


@pytest.mark.parametrize(("role", "writer"), [("large", "large"), ("small", "small")])
def test_answer_role(role: Any, writer: str) -> None:
    result = run(RELAY, answer_role=role)
    assert {s.role for s in result.generation.segments if s.stage == "answer"} == {writer}


def test_a_relayed_answer() -> None:
    script = "<think>We go.</think>It is. Thus four. Done."
    result = run(RELAY, script, answer_role="relay")
    assert result.roles() == [
        ("large", "<think>We go.</think>"),
        ("large", "It is. Thus"),
        ("small", " four."),
        ("large", " Done."),
    ]


def test_markers_that_are_several_tokens() -> None:
    tags = Thinking("[[think]]", "[[/think]]", "[[/think]]")
    script = "[[think]]We go. Thus it is. [[maybe.[[/think]] Four."
    result = run(RELAY, script, thinking=tags)
    assert result.generation.text == script
    assert result.generation.reasoning == "We go. Thus it is. [[maybe."
    assert result.generation.answer == "Four."


@pytest.mark.parametrize("policy", [SmallOnly(), OneShotPolicy()], ids=["small", "one-shot"])
def test_the_small_model_closes_the_thinking_of_a_long_trace(policy: Policy) -> None:
    body = "".join(f"Step {n} adds {n} and one. " for n in range(70))
    script = f"<think>\n{body}In conclusion it is done. And more.\n</think>\n\nThe answer is 4."
    assert tokens(script) > 500
    result = run(policy, script)
    assert result.generation.text == script
    assert result.generation.answer == "The answer is 4."
    closing = next(s for s in result.generation.segments if "</think>" in s.text)
    assert closing.role == "small"
    assert result.generation.usage.inserted_tokens == 0


def test_no_thinking_style_no_reasoning_budget() -> None:
    with pytest.raises(UsageError, match="max_reasoning_tokens"):
        task(RELAY, thinking=None, limits=limits(max_reasoning_tokens=5))


# Budgets and guards.


def test_max_tokens_counts_everything() -> None:
    for budget in range(1, 45):
        result = run(RELAY, limits=limits(max_tokens=budget))
        assert result.generation.usage.completion_tokens == budget
        assert result.generation.finish == "length"
        assert THINKING.startswith(result.generation.text)


def test_the_reasoning_budget_closes_the_thinking() -> None:
    answering = ScriptedEngine(
        free=lambda text: (
            " " + THINKING.split()[5] if "</think>" not in text else "4" * ("4" not in text)
        )
    )
    result = run(
        LargeOnly(), large=answering, limits=limits(max_reasoning_tokens=12), prefill="<think>"
    )
    usage = result.generation.usage
    assert usage.reasoning_tokens == 12 + usage.inserted_tokens
    assert result.of(Inserted)[0].why == "budget"
    assert result.generation.answer == "4"


def test_a_budget_that_ends_with_the_marker_leaves_room_for_the_answer() -> None:
    script = "<think>\nWe add.\n</think>\n\nThe answer is 4."
    budget = limits(max_reasoning_tokens=tokens("<think>\nWe add.\n</think>"))
    result = run(LargeOnly(), script, limits=budget)
    assert result.generation.answer == "The answer is 4."
    assert result.generation.finish == "stop"


def test_a_budget_inside_a_character_never_reaches_the_answer() -> None:
    script = "<think>\n日"

    def follow(text: str) -> str:
        return "ok" if text.endswith("\n\n") else script[len(text) :]

    budget = limits(max_reasoning_tokens=3)  # the character has three tokens of its own
    result = run(LargeOnly(), script, large=ScriptedEngine(free=follow), limits=budget)
    assert result.generation.answer == "ok"
    assert result.roles()[0] == ("large", "<think>\n\ufffd")


def test_an_insertion_never_overruns_the_budget() -> None:
    insertion = tokens("\n</think>\n\n")
    for budget in range(12, 12 + insertion + 3):
        large = ScriptedEngine(free=lambda text: "4" if "</think>" in text else " a")
        result = run(
            LargeOnly(),
            "",
            large=large,
            thinking=Thinking(),
            prefill="<think>",
            limits=limits(max_reasoning_tokens=10, max_tokens=budget, max_repeats=0),
        )
        fits = budget > 10 + insertion
        assert result.generation.usage.completion_tokens == (budget if fits else 10)
        assert result.generation.finish == "length"
        assert bool(result.of(Inserted)) == fits


def test_a_delegated_segment_ends_at_its_limit() -> None:
    script = "Thus " + "a b c d " * 20 + ". End."
    result = run(RELAY, script, limits=limits(max_segment_tokens=10))
    assert [s.tokens for s in result.generation.segments if s.role == "small"] == [10]
    assert result.of(HandedOff)[1].why == "limit"
    assert result.generation.text == script


def test_no_hand_off_inside_a_character() -> None:
    script = "Thus " + "🦄" * 20 + ". End."
    result = run(RELAY, script, limits=limits(max_segment_tokens=10))
    small = next(s for s in result.generation.segments if s.role == "small")
    assert small.text == " 🦄🦄🦄"
    assert small.tokens == 13
    assert result.generation.text == script


def test_stop_strings_act_on_the_answer_only() -> None:
    result = run(RELAY, stop=("is",))
    assert result.generation.reasoning.count("is") == 3
    assert result.generation.answer == result.shown("answer") == "The answer "
    assert result.generation.text.endswith("The answer is")
    assert result.generation.finish == "stop"


def test_a_stop_string_across_tokens_and_roles() -> None:
    result = run(RELAY, PLAIN, stop=("Thus the",))
    assert result.generation.answer == "We add 2 and 2. "
    assert result.generation.segments[-1].role == "small"


def test_a_stop_string_held_at_the_start_loses_no_space() -> None:
    script = "<think>\na\n</think>\n\nThe answer is 4."
    assert run(LargeOnly(), script, stop=("The end",)).generation.answer == "The answer is 4."


def test_a_stop_string_that_never_completes_is_shown() -> None:
    result = run(RELAY, PLAIN, stop=("Done. Never",))
    assert result.shown("answer") == PLAIN


def _looping(text: str) -> str:
    return " round and round"[len(text) % 16 :] if text else " round"


def _chant(text: str) -> str:
    return [" la", " li", " lo"][len(text.split()) % 3]


def test_a_looping_lead_of_the_small_model_goes_to_the_large_one() -> None:
    def large(text: str) -> str:
        if "lo" in text:
            return "" if text.endswith(" end") else " end"
        return [" it", " is", " therefore", ""][len(text.split())]

    result = run(
        OneShotPolicy(),
        "",
        large=ScriptedEngine(free=large),
        small=ScriptedEngine(free=_chant),
        thinking=None,
    )
    assert [e.why for e in result.of(HandedOff)] == ["cue", "loop"]
    assert result.generation.text.endswith(" end")
    assert result.generation.finish == "stop"


def test_a_looping_thinking_is_closed_and_a_looping_answer_ends() -> None:
    result = run(
        LargeOnly(), "", large=ScriptedEngine(free=_chant), thinking=Thinking(), prefill="<think>"
    )
    assert [e.why for e in result.of(Inserted)] == ["repetition"]
    assert result.generation.finish == "repetition"
    assert result.generation.usage.completion_tokens < 400


@pytest.mark.parametrize("before", range(4))
def test_a_loop_is_left_at_the_end_of_a_character(before: int) -> None:
    script = "x " * before + "So " + "🎉" * 80 + " end."
    loops = limits(max_segment_tokens=400, max_repeats=2)
    result = run(RELAY, script, limits=loops)  # `run` compares ids and text
    assert script.startswith(result.generation.text)
    assert [s.why for s in result.generation.segments] == ["", "cue", "loop"]
    assert not any("\ufffd" in segment.text for segment in result.generation.segments)


def test_the_repetition_guard_can_be_switched_off() -> None:
    result = run(
        LargeOnly(),
        "",
        large=ScriptedEngine(free=_chant),
        thinking=None,
        limits=limits(max_tokens=600, max_repeats=0),
    )
    assert result.generation.finish == "length"


def test_the_so_loop_is_broken() -> None:
    script = "So a. So b. So c. So d. So e. End."
    result = run(RELAY, script)
    large = [text for role, text in result.roles() if role == "large"]
    assert large == ["So", " So", " So", " So d. So", " End."]


# Contexts.


def test_a_prompt_that_does_not_fit() -> None:
    with pytest.raises(
        ContextLengthError, match="prompt has 7 tokens, the context holds 7"
    ) as caught:
        run(RELAY, PLAIN, large=ScriptedEngine(PLAIN, context=7))
    assert caught.value.role == "large"
    assert "--ctx" in caught.value.hint


def test_the_small_models_context_always_applies() -> None:
    small = ScriptedEngine(PLAIN, context=PROMPT + 20)
    result = run(RELAY, PLAIN, small=small)
    assert result.generation.text == PLAIN
    assert result.generation.usage.handoffs == 2
    assert any("context is full" in note for note in result.generation.notes)


def test_a_small_lead_that_runs_into_its_context_hands_back() -> None:
    script = "We go. In conclusion " + "it is and " * 20 + "so."
    small = ScriptedEngine(
        script, context=PROMPT + tokens("We go. In conclusion " + "it is and " * 6)
    )
    result = run(OneShotPolicy(), script, small=small)
    assert result.generation.text == script
    assert [e.why for e in result.of(HandedOff)] == ["cue", "context"]


def test_the_large_models_context_ends_the_text() -> None:
    result = run(LargeOnly(), PLAIN, large=ScriptedEngine(PLAIN, context=PROMPT + 9))
    assert result.generation.finish == "length"
    assert result.generation.usage.completion_tokens == 8


def test_different_vocabularies_exchange_text() -> None:
    small = ScriptedEngine(THINKING, vocabulary="other", prompt="<<{content}>> answer:")
    result = run(RELAY, small=small)
    assert result.generation.text == THINKING
    assert all(words(r.ids).startswith("<<?>> answer:") for r in small.requests)
    assert words(small.requests[-1].ids).endswith("So good.\n</think>")


def test_unknown_vocabularies_never_count_as_equal() -> None:
    result = run(
        RELAY,
        large=ScriptedEngine(THINKING, vocabulary=""),
        small=ScriptedEngine(THINKING, vocabulary="", prompt="other {content}"),
    )
    assert words(result.small.requests[0].ids).startswith("other ?")


def test_equal_vocabularies_share_the_large_models_prompt() -> None:
    small = ScriptedEngine(THINKING, prompt="other {content}")
    result = run(RELAY, small=small)
    assert words(small.requests[0].ids).startswith("<user>?<assistant>")
    assert any("templates differ" in note for note in result.generation.notes)


# Seeds.


def _seeds(**options: Any) -> list[int | None]:
    result = run(RELAY, **options)
    requests = sorted(result.large.requests + result.small.requests, key=lambda r: len(r.ids))
    return [request.seed for request in requests]


def test_every_segment_has_a_seed_of_its_own() -> None:
    seeds = _seeds(seed=7)
    assert seeds[0] == 7
    assert len(set(seeds)) == len(seeds) == 10
    assert _seeds(seed=7) == seeds
    assert _seeds(seed=8)[1:] != seeds[1:]
    assert _seeds(seed=7, choice=1)[0] != 7
    assert set(_seeds(seed=None)) == {None}


# Failures.

SMALL_STARTS = tokens("We add 2 and 2. Thus")
SEGMENT = tokens(" the sum is 4.")


@pytest.mark.parametrize("token", range(SEGMENT))
@pytest.mark.parametrize(
    "error",
    [EngineUnreachableError("reset"), EngineReplyError("garbage"), None],
    ids=["reset", "garbage", "early end"],
)
def test_a_failure_of_the_small_engine_changes_no_text(
    token: int, error: EngineError | None
) -> None:
    small = ScriptedEngine(PLAIN, failures=[Failure(error, request=0, token=token)])
    result = run(RELAY, PLAIN, small=small)
    assert result.generation.text == PLAIN
    assert result.generation.usage.fallbacks == 1
    assert [event.role for event in result.of(FellBack)] == ["small"]
    kept = [s for s in result.generation.segments if s.role == "small"]
    if token:
        assert kept[0].tokens == token


def test_a_dead_small_engine_is_not_asked_again() -> None:
    dead = EngineUnreachableError("gone", retryable=False)
    small = ScriptedEngine(THINKING, failures=[Failure(dead, request=None, token=2)])
    result = run(RELAY, small=small)
    assert result.generation.text == THINKING
    assert len(small.requests) == 1
    assert any("went on alone" in note for note in result.generation.notes)


def test_a_flaky_small_engine_is_given_up_after_three_failures() -> None:
    flaky = EngineUnreachableError("reset")
    small = ScriptedEngine(THINKING, failures=[Failure(flaky, request=None, token=1)])
    result = run(RELAY, small=small)
    assert result.generation.text == THINKING
    assert len(small.requests) == result.generation.usage.fallbacks == 3


def test_a_small_engine_that_never_starts() -> None:
    class Dead(ScriptedEngine):
        async def info(self) -> EngineInfo:
            raise EngineUnreachableError("refused")

    result = run(RELAY, small=Dead())
    assert result.generation.text == THINKING
    assert result.generation.usage.small_tokens == 0
    assert any("refused" in note for note in result.generation.notes)


def test_a_failure_in_the_answer_is_carried_on_by_the_large_model() -> None:
    request = len(run(RELAY).small.requests) - 1
    small = ScriptedEngine(
        THINKING, failures=[Failure(EngineUnreachableError("reset"), request, token=4)]
    )
    result = run(RELAY, small=small)
    assert result.generation.text == THINKING
    assert [s.role for s in result.generation.segments if s.stage == "answer"] == ["small", "large"]


def test_a_failure_inside_a_character_keeps_the_bytes() -> None:
    script = "Thus a 🦄. End."
    small = ScriptedEngine(script, failures=[Failure(EngineUnreachableError("reset"), 0, 4)])
    result = run(RELAY, script, small=small)
    assert result.generation.text == script
    assert result.generation.usage.small_tokens == 4
    assert result.generation.usage.small.discarded == 0


def test_half_a_marker_of_a_failed_delegate_is_written_again() -> None:
    script = "<t>\nWe add. Thus it is so</t>\n\nDone."
    begun = tokens("<t>\nWe add. Thus it is so</") - tokens("<t>\nWe add. Thus")
    reset = EngineUnreachableError("reset by the test")
    for token in range(begun - 1, begun + 2):
        small = ScriptedEngine(script, failures=[Failure(reset, token=token)])
        made = run(RELAY, script, small=small, thinking=Thinking("<t>", "</t>"))
        assert made.generation.text == script
        assert (made.generation.reasoning, made.generation.answer) == (
            "We add. Thus it is so",
            "Done.",
        )


def test_half_a_character_never_crosses_as_text() -> None:
    script = "Thus a🦄. End."
    small = ScriptedEngine(
        script, vocabulary="other", failures=[Failure(EngineUnreachableError("reset"), 0, 3)]
    )
    result = run(RELAY, script, small=small)
    assert result.generation.text == script
    assert result.generation.usage.small.discarded == 2


@pytest.mark.parametrize(("policy", "role"), [(RELAY, "large"), (SmallOnly(), "small")])
def test_a_failure_nobody_can_stand_in_for(policy: Policy, role: str) -> None:
    failing = ScriptedEngine(PLAIN, failures=[Failure(EngineReplyError("boom"), 0, 3)])
    engines = {role: failing}
    other = "small" if role == "large" else "large"
    engines[other] = ScriptedEngine(PLAIN)
    generating = Generating({r: engines[r] for r in policy.roles}, task(policy, thinking=None))

    shown: list[str] = []

    async def go() -> None:
        async for event in generating.events():
            shown.append(event.text if isinstance(event, Text) else "")

    with pytest.raises(EngineReplyError, match=f"{role} engine: boom"):
        asyncio.run(go())
    assert "".join(shown) == "We add 2"
    partial = generating.snapshot()
    check_promises(partial)
    assert partial.usage.completion_tokens == 3
    assert partial.finish == "cancelled"
    assert len(failing.released) == 1


def test_an_engine_that_hides_its_ids_is_refused() -> None:
    class Blind(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Any:
            from dataclasses import replace

            return replace(super()._piece(id, top), id=None)

    with pytest.raises(EngineReplyError, match="token ids"):
        run(LargeOnly(), PLAIN, large=Blind(PLAIN))


def test_a_small_engine_that_hides_its_ids_changes_no_text() -> None:
    class Blind(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Any:
            from dataclasses import replace

            return replace(super()._piece(id, top), id=None)

    script = "<think>\nThus </b it is. So\n</think>\n\n4"
    result = run(RELAY, script, small=Blind(script))
    assert result.generation.text == script
    assert result.generation.usage.small_tokens == 0
    assert None not in result.generation.ids


def test_what_could_not_be_tokenized_is_sent_with_the_next_turn() -> None:
    class Deaf(ScriptedEngine):
        heard = 0

        async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
            self.heard += text.endswith("Thus")
            if self.heard == 1 and text.endswith("Thus"):
                raise EngineUnreachableError("gone")
            return await super().tokenize(text, special=special)

    script = "We add. Thus it is. Now we go. Done."
    small = Deaf(script, vocabulary="other")
    result = run(RELAY, script, small=small)
    assert result.generation.text == script
    assert result.generation.usage.fallbacks == 1
    assert words(small.requests[0].ids).endswith("We add. Thus it is. Now")


# Probes.


class _Asking:
    """Probes at its fifth token, then does what it was built for."""

    name, first, margins = "asking", "large", frozenset(("small",))
    roles = frozenset(("large", "small"))

    def __init__(self, then: Any) -> None:
        self.then = then
        self.fed: list[int] = []
        self.piece: Any = "never"

    def start(self, start: Start) -> _Asking:
        return self

    def begin(self, *_: Any) -> None:
        pass

    def feed(self, token: Token) -> Any:
        self.fed.append(token.index)
        return Probe("small") if len(self.fed) == 5 else STAY

    def probed(self, piece: Any) -> Any:
        self.piece = piece
        return self.then

    def answer(self, on_duty: Any) -> Any:
        return on_duty


def test_no_piece_is_fed_while_a_probe_is_out() -> None:
    policy = _Asking(STAY)
    small = ScriptedEngine(PLAIN, ttft_ms=60, margin=0.7)
    result = run(policy, PLAIN, large=ScriptedEngine(PLAIN, token_ms=5), small=small)  # type: ignore[arg-type]
    assert result.generation.text == PLAIN
    assert policy.fed == list(range(tokens(PLAIN)))
    assert policy.piece.margin == pytest.approx(0.7)
    assert result.of(Probed)[0].margin == pytest.approx(0.7)
    assert result.generation.usage.small.probes == result.generation.usage.small.discarded == 1
    assert words(small.requests[0].ids).endswith("We add 2 and 2")


def test_what_arrived_during_a_probe_is_discarded_on_a_hand_off() -> None:
    policy = _Asking(HandOff(4, "lead", "sure"))
    result = run(
        policy,  # type: ignore[arg-type]
        PLAIN,
        large=ScriptedEngine(PLAIN, token_ms=5),
        small=ScriptedEngine(PLAIN, ttft_ms=60),
    )
    assert result.generation.text == PLAIN
    assert result.roles()[0] == ("large", "We add 2 and 2")
    assert result.generation.usage.large.discarded >= 2
    assert result.of(HandedOff)[0].discarded == result.generation.usage.large.discarded


def test_a_failed_probe_is_unknown_and_harmless() -> None:
    policy = _Asking(STAY)
    small = ScriptedEngine(PLAIN, failures=[Failure(EngineUnreachableError("reset"))])
    result = run(policy, PLAIN, small=small)  # type: ignore[arg-type]
    assert policy.piece is None
    assert result.generation.text == PLAIN
    assert any("probe failed" in note for note in result.generation.notes)


def test_a_probe_outlives_the_stream() -> None:
    policy = _Asking(STAY)
    script = "We add 2 and 2"
    result = run(policy, script, small=ScriptedEngine(script + " x", ttft_ms=50))  # type: ignore[arg-type]
    assert result.generation.text == script
    assert policy.piece is not None


@pytest.mark.parametrize("burst", [1, 4])
@pytest.mark.parametrize("every", range(4, 13))
def test_a_hand_off_after_a_probe_waits_for_the_end_of_a_character(every: int, burst: int) -> None:
    script = "a b therefore 日本語 is it. Done"
    policy = OneShotPolicy(check_every=every, switch_threshold=0.5)
    result = run(policy, script, large=ScriptedEngine(script, burst=burst))
    assert result.generation.text == script
    assert not any("\ufffd" in segment.text for segment in result.generation.segments)


def test_a_probes_stream_is_closed_before_the_session_is_released() -> None:
    order: list[str] = []

    class Slow(ScriptedEngine):
        async def stream(self, request: Any) -> Any:
            try:
                await asyncio.sleep(30)
                yield
            finally:
                await asyncio.sleep(0.01)
                order.append("closed")

        async def release(self, session: str) -> None:
            order.append("released")

    async def cancelled() -> None:
        engines = {"large": ScriptedEngine(PLAIN), "small": Slow(PLAIN)}
        job = task(_Asking(STAY), thinking=None)  # type: ignore[arg-type]
        events = Generating(engines, job).events()  # type: ignore[arg-type]

        async def consume() -> None:
            async for _ in events:
                pass

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consume(), 0.1)
        await events.aclose()

    asyncio.run(cancelled())
    assert order == ["closed", "released"]


def test_what_a_reader_who_leaves_in_a_probe_never_saw_is_discarded() -> None:
    """The rest of the delta whose token asked for it, and what came while it was out."""

    async def leave() -> Generating:
        large = ScriptedEngine(PLAIN, burst=8)
        small = ScriptedEngine(PLAIN, ttft_ms=60_000)
        job = task(_Asking(STAY), thinking=None)  # type: ignore[arg-type]  # at the fifth token
        generating = Generating({"large": large, "small": small}, job)
        running = asyncio.ensure_future(generating.whole())
        for _ in range(1000):  # turns of the event loop: the whole text is there
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        return generating

    made = asyncio.run(leave()).snapshot()
    check_promises(made)
    assert made.text == "We add 2 and 2"
    assert made.usage.large.discarded == tokens(PLAIN) - 5
    assert made.usage.small.discarded == 0


def test_what_an_engine_sent_behind_what_is_no_piece_is_discarded() -> None:
    class Wrong(ScriptedEngine):
        async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
            piece = self._piece(self._script[0], 0)
            yield Delta((piece, Piece(-1, b"x"), piece, piece), "turn")

    large = Wrong(PLAIN)
    result = run(RELAY, PLAIN, large=large, rescue=True)
    assert result.generation.text == PLAIN
    assert result.generation.usage.large.discarded == 3


def test_one_shot_waits_for_trust() -> None:
    script = "We add two and two here. So therefore it is four and that is it, all done now."
    sure = run(OneShotPolicy.classic(), script, small=ScriptedEngine(script, margin=0.8))
    assert [s.role for s in sure.generation.segments] == ["large", "small"]
    assert sure.generation.segments[0].tokens % 10 == 0
    unsure = run(OneShotPolicy.classic(), script, small=ScriptedEngine(script, margin=0.79))
    assert [s.role for s in unsure.generation.segments] == ["large"]
    assert unsure.generation.usage.small.probes == 1


# What a policy may say.


class _Saying(_Asking):
    """Says what it was built for at its fifth token."""

    def feed(self, token: Token) -> Any:
        self.fed.append(token.index)
        return self.then if len(self.fed) == 5 else STAY


def test_a_policy_may_close_the_thinking() -> None:
    policy = _Saying(Insert("end_of_thinking"))
    large = ScriptedEngine(
        free=lambda text: "4" * ("4" not in text) if "</think>" in text else " a"
    )
    result = run(policy, "", large=large, thinking=Thinking(), prefill="<think>")  # type: ignore[arg-type]
    assert result.generation.text == " a a a a a\n</think>\n\n4"
    assert result.of(Inserted)[0].why == "policy"


@pytest.mark.parametrize("k", [-2, 5, 99])
def test_a_hand_off_at_a_piece_that_was_never_fed_is_the_policys_fault(k: int) -> None:
    with pytest.raises(UsageError, match=f"handed off at piece {k} of 5"):
        run(_Saying(HandOff(k, "lead", "wrong")), PLAIN)  # type: ignore[arg-type]


def test_a_policy_that_hands_over_for_ever_is_stopped() -> None:
    class PingPong(_Asking):
        def feed(self, token: Token) -> Any:
            return HandOff(-1, "lead", "no")

    with pytest.raises(UsageError, match="without a token kept"):
        run(PingPong(STAY), PLAIN)  # type: ignore[arg-type]


def test_held_pieces_can_be_taken_back_and_are_not_shown() -> None:
    class Holding(_Asking):
        def feed(self, token: Token) -> Any:
            says = {4: Stay(1), 5: Stay(2), 6: HandOff(3, "lead", "back")}
            return says.get(token.index, STAY) if not self.fed else STAY

        def begin(self, *said: Any) -> None:
            self.fed = [1] if said[0] == "small" else []

    result = run(Holding(STAY), PLAIN)  # type: ignore[arg-type]
    assert result.roles() == [("large", "We add 2 and"), ("small", PLAIN[12:])]
    assert result.generation.usage.large.discarded == 3
    large = [event.text for event in result.of(Text) if event.role == "large"]
    assert "".join(large) == "We add 2 and"


def test_a_hand_off_waits_for_the_end_of_a_character() -> None:
    script = "a b c d🦄 e"
    result = run(_Saying(HandOff(4, "lead", "now")), script)  # type: ignore[arg-type]
    assert result.roles() == [("large", "a b c d🦄"), ("small", " e")]


# Shares and figures.


@pytest.mark.parametrize("back", [1, 2])
def test_a_policy_that_cuts_a_character_loses_no_byte(back: int) -> None:
    class Cutting(_Asking):
        def feed(self, token: Token) -> Any:
            self.fed.append(token.index)
            cuts = len(self.fed) == 6  # the second byte of the second character
            return HandOff(token.index - back, "lead", "cut") if cuts else Stay(back)

    script = "a日本 b"
    result = run(Cutting(STAY), script)  # type: ignore[arg-type]
    assert result.generation.text == script


def test_the_random_policy_meets_its_share() -> None:
    for share in (0.2, 0.3, 0.5):
        small = total = 0
        for question in range(20):
            script = " ".join(
                f"Step {n} of {question} has " + "some " * ((n * 7 + question) % 15) + "words."
                for n in range(30)
            )
            usage = run(RandomPolicy(share), script, seed=question).generation.usage
            small += usage.small_tokens
            total += usage.completion_tokens
        assert abs(small / total - share) < 0.02


def test_a_generation_can_be_looked_at_and_left() -> None:
    engine = ScriptedEngine(PLAIN, token_ms=5)
    generating = Generating({"large": engine}, task(LargeOnly(), thinking=None))

    async def go() -> None:
        events = generating.events()
        async for event in events:
            if isinstance(event, Text) and event.text == " 2":
                break
        await events.aclose()

    asyncio.run(go())
    partial = generating.snapshot()
    assert partial.text == "We add 2"
    assert partial.finish == "cancelled"
    assert partial.usage.large.seconds >= 0.015
    assert partial.segments[0].seconds == pytest.approx(partial.usage.large.seconds, abs=0.05)
    assert engine.aborted == 1
    assert len(engine.released) == 1


def test_seconds_belong_to_the_model_that_spent_them() -> None:
    result = run(
        RELAY,
        PLAIN,
        large=ScriptedEngine(PLAIN, token_ms=8),
        small=ScriptedEngine(PLAIN, token_ms=1, ttft_ms=10),
    )
    usage = result.generation.usage
    assert usage.large.decode_ms is not None
    assert usage.small.decode_ms is not None
    assert usage.large.decode_ms >= 8
    assert usage.small.first_seconds >= 0.010 * usage.small.requests
    assert usage.seconds >= usage.large.seconds + usage.small.seconds
    assert sum(s.seconds for s in result.generation.segments) == pytest.approx(
        usage.large.seconds + usage.small.seconds, abs=0.05
    )
    assert usage.first_token_seconds is not None
    assert 0 < usage.first_token_seconds < usage.seconds
    assert usage.prompt_tokens == PROMPT
    assert result.of(HandedOff)[0].seconds >= 0.010
