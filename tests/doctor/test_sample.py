from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import EngineReplyError, Generation, Limits, MissingExtraError, Relay
from relaygen._results import Usage
from relaygen._types import Conversation, EngineInfo, Prompt, Role
from relaygen.doctor._report import Answered
from relaygen.doctor._sample import (
    agrees,
    answered,
    cue_names,
    questions,
    readable,
    shares,
    written,
)
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.policies import (
    EntropyPolicy,
    LargeOnly,
    MarginPolicy,
    OneShotPolicy,
    Policy,
    RandomPolicy,
    RelayPolicy,
)
from relaygen.profiles import load

from .support import TAGS

REASONING = "Let me see. Now we add one and two. So it is three. Done.\n"
THINKING = f"<think>\n{REASONING}</think>\n\nThe sum is three. So be it."
PROFILE, NONE = load(TAGS), load("embedded")
RELAY = RelayPolicy.of(("Now", "So"))


def shared(text: str, policy: Policy = RELAY, assistant: str = "", **given: Any) -> Generation:
    profile = given.pop("profile", PROFILE)
    written = Generation(text, "", "", (), Usage(), "stop")
    return asyncio.run(shares(written, Prompt((), "", assistant), profile, policy))


def small_parts(generation: Generation) -> list[tuple[str, str]]:
    return [(s.cue, s.text) for s in generation.segments if s.role == "small"]


def test_a_text_is_shared_as_the_relay_would_write_it() -> None:
    told = shared(THINKING)
    assert told.text == THINKING
    assert small_parts(told) == [
        ("Now", " we add one and two."),
        ("So", " it is three."),
        ("", "\n\nThe sum is three. So be it."),
    ]
    assert told.usage.handoffs == 5


def test_the_thinking_that_a_template_opens_is_not_in_the_text() -> None:
    told = shared(THINKING.removeprefix("<think>\n"), assistant="<a><think>\n")
    assert [cue for cue, _ in small_parts(told)] == ["Now", "So", ""]
    assert told.reasoning.strip() == REASONING.strip()


def test_a_text_that_was_cut_in_its_thinking_ends_there() -> None:
    text = "<think>\nLet me see. Now we add one and"
    told = shared(text)
    assert told.text == text
    assert told.finish == "length"
    assert small_parts(told) == [("Now", " we add one and")]


def test_a_profile_without_thinking_relays_everywhere() -> None:
    told = shared("We add. So we are at 3. The end.", profile=NONE)
    assert small_parts(told) == [("So", " we are at 3.")]


WORDS = st.lists(
    st.sampled_from(["Now", "So", "we", "add", "2.", "Done.", "é", "\n\n"]), min_size=1
)


@settings(max_examples=40, deadline=None)
@given(WORDS)
def test_no_text_is_changed_by_sharing_it(words: list[str]) -> None:
    text = " ".join(words)
    told = shared(text, profile=NONE)
    assert text.startswith(told.text)  # a looping text ends early
    assert told.finish == "repetition" or told.text == text


# Which policies a text can be shared by.


def test_policies_that_read_margins() -> None:
    assert readable(RELAY) is RELAY
    assert readable(EntropyPolicy(0.5, "token")) is None
    margin = MarginPolicy.of(("So",), stay=0.9, leave=0.3)
    assert isinstance(readable(margin), RelayPolicy)
    assert cue_names(margin) == ("So",)
    unshaken = RandomPolicy(0.3)
    assert readable(unshaken) is unshaken


def test_a_comma_form_never_fires_where_its_bare_form_is_listed() -> None:
    assert cue_names(RelayPolicy.of(("So", "So,", "Wait,", "Oh"))) == ("So", "Wait,", "Oh")
    assert cue_names(LargeOnly()) == ()
    assert "So" in cue_names(RelayPolicy.of(PROFILE.cues))
    assert len(cue_names(OneShotPolicy())) > 3


def test_the_first_shipped_questions() -> None:
    two = questions(2)
    assert len(two) == 2
    assert two == questions(3)[:2]


# Both models asked.


def asked(large: ScriptedEngine, small: ScriptedEngine, *, profile: str = TAGS) -> Answered:
    async def run() -> Answered:
        relay = Relay(large, small, profile=profile)
        infos: dict[Role, EngineInfo] = {
            "large": await large.info(),
            "small": await small.info(),
        }
        text = await written(relay, "How much?", Limits(max_tokens=200))
        told = await answered(text, relay.profile, RELAY)
        return replace(told, same=await agrees(relay, text, infos))

    return asyncio.run(run())


class Knowing(ScriptedEngine):
    """Goes on with a script behind whatever of it stands in the prompt."""

    def __init__(self, script: str) -> None:
        super().__init__(free=lambda text: script[len(text.split("<assistant>")[-1]) :])

    def _behind_prompt(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        return ids


def test_the_small_model_answers_behind_the_same_thinking() -> None:
    large, small = Knowing(THINKING), Knowing(THINKING)
    told = asked(large, small)
    assert told.same is True
    assert told.cues == {"Now": 1, "So": 1}
    assert told.segments == (6, 4)
    assert (told.handoffs, told.finish) == (5, "stop")
    thinking = THINKING.split("\n\nThe sum")[0]
    encode = small._tokenizer.encode
    assert small.requests[0].ids[-len(encode(thinking)) :] == encode(thinking)


def test_another_answer_is_another() -> None:
    wrong = Knowing(THINKING.replace("is three. So be it", "is four. So be it"))
    assert asked(Knowing(THINKING), wrong).same is False


def test_with_another_vocabulary_the_thinking_goes_as_text() -> None:
    small = Knowing(THINKING)
    small._vocabulary = "other"
    assert asked(Knowing(THINKING), small).same is True


def test_the_small_model_is_asked_only_where_it_should_be() -> None:
    small = Knowing(THINKING)
    assert asked(Knowing("<think>\nOnly thought. " + "More of it. " * 90), small).same is None
    assert not small.requests


def test_an_engine_that_refuses_raw_texts_gets_the_thinking_behind_the_question() -> None:
    class Chats(Knowing):
        async def render(self, conversation: Conversation) -> Prompt:
            if conversation.raw is not None:
                raise EngineReplyError("chats only", refused=True)
            return await super().render(conversation)

    small = Chats(THINKING)
    assert asked(Knowing(THINKING), small).same is True
    assert len(small.requests) == 1


def test_without_mathematics_unlike_sums_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    other = Knowing(THINKING.replace("The sum is three. So be it", "Three, then"))
    with pytest.raises(MissingExtraError):
        asked(Knowing(THINKING), other)
    assert asked(Knowing(THINKING), Knowing(THINKING)).same is True


def test_a_small_context_that_is_too_short_is_no_answer() -> None:
    small = Knowing(THINKING)
    small._context = 10
    assert asked(Knowing(THINKING), small).same is None


def test_failures_are_the_callers() -> None:
    small = Knowing(THINKING)
    small._failures = (Failure(EngineReplyError("answered 500")),)
    with pytest.raises(EngineReplyError, match="500"):
        asked(Knowing(THINKING), small)


def test_what_was_counted_is_plain_data() -> None:
    told = asked(Knowing(THINKING), Knowing(THINKING))
    assert type(told.cues) is dict
    assert replace(told, same=None) != told
