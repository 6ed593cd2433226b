"""Answers with a form, tool calls, and engines that hide their token ids."""

from __future__ import annotations

from typing import Any

import pytest

from relaygen import EngineReplyError, EngineUnreachableError, Thinking
from relaygen._types import Constraint, Delta, Piece, SegmentRequest
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.policies import LargeOnly, RelayPolicy

from .support import CUES, PLAIN, THINKING, limits, run, tokens

RELAY = RelayPolicy.of(CUES)
FORM = Constraint("json_object")
TAGS = ("<tool_call>", "</tool_call>")
ANSWER = 'Thus {"a": 1}. So it is. Now.'


def test_a_form_holds_from_the_answers_first_token() -> None:
    script = f"<think>\nWe think. Thus it is so. Now.\n</think>{ANSWER}"
    made = run(RELAY, script, constraint=FORM)
    assert made.generation.text == script
    assert [request.constraint for request in made.large.requests] == [None] * len(
        made.large.requests
    )
    *delegated, last = made.small.requests
    assert [request.constraint for request in delegated] == [None] * len(delegated)
    assert last.constraint == FORM
    answers = [s for s in made.generation.segments if s.stage == "answer"]
    assert [(s.role, s.text) for s in answers] == [("small", ANSWER)]


def test_the_same_model_begins_a_new_request_for_its_answer() -> None:
    script = f"<think>\nWe think.\n</think>{ANSWER}"
    made = run(RELAY, script, constraint=FORM, answer_role="large")
    assert [request.constraint for request in made.large.requests] == [None, FORM]
    assert made.generation.usage.small_tokens == 0


def test_without_thinking_one_model_writes_the_whole_form() -> None:
    made = run(RELAY, ANSWER, constraint=FORM)
    assert made.roles() == [("large", ANSWER)]
    assert made.large.requests[0].constraint == FORM
    assert made.large.requests[0].stop_ids == ()


def test_a_model_that_does_not_think_answers_again_in_its_form() -> None:
    made = run(LargeOnly(), ANSWER, thinking=Thinking(), constraint=FORM)
    assert made.generation.text == ANSWER
    assert [request.constraint for request in made.large.requests] == [None, FORM]
    assert made.generation.usage.large.discarded == 1


def test_an_answer_that_ends_before_it_begins_is_asked_for_again_with_its_form() -> None:
    large = ScriptedEngine("\n")
    made = run(LargeOnly(), large=large, thinking=Thinking(), constraint=FORM)
    assert [request.constraint for request in made.large.requests] == [None, FORM]
    assert made.generation.usage.discarded_tokens == 1


def test_a_form_is_not_entered_in_its_middle() -> None:
    script = f"<think>\nWe think.\n</think>{ANSWER}"
    small = ScriptedEngine(script, failures=[Failure(EngineUnreachableError("gone"), None, 3)])
    made = run(RELAY, script, small=small, constraint=FORM)
    assert made.generation.text == script
    assert made.large.requests[-1].constraint is None
    assert any("not certain" in note for note in made.generation.notes)


def test_no_hand_off_splits_a_call() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"q": "So. Thus it is. Now"}}\n</tool_call>'
    script = f"We look. {call} Thus we wait. Done."
    split = run(RELAY, script)
    assert len(split.generation.segments) > 4
    made = run(RELAY, script, calls=TAGS)
    assert made.generation.text == script
    assert made.roles()[0] == ("large", f"We look. {call} Thus")
    assert [role for role, _ in made.roles()] == ["large", "small", "large"]


def test_a_delegate_finishes_the_call_it_began() -> None:
    call = "<tool_call>" + '{"a": "b c d e f g h i j k"}' + "</tool_call>"
    script = f"We look. Thus {call} so. Done."
    made = run(RELAY, script, calls=TAGS, limits=limits(max_segment_tokens=8))
    assert made.generation.text == script
    (delegated,) = [s for s in made.generation.segments if s.role == "small"][:1]
    assert call in delegated.text
    assert tokens(call) > 8


def test_the_segments_limit_does_not_split_a_tag() -> None:
    script = 'We add. Thus it is so now <tool_call>{"name": "f"}</tool_call>'
    for most in range(1, 12):
        made = run(RELAY, script, calls=TAGS, limits=limits(max_segment_tokens=most))
        assert made.generation.text == script
        assert sum("<tool_call>" in text for _, text in made.roles()) == 1


def test_an_engine_may_hide_its_ids() -> None:
    engines: dict[str, Any] = {
        "large": ScriptedEngine(THINKING),
        "small": ScriptedEngine(THINKING, text_only=True),
    }
    made = run(RELAY, THINKING, **engines)
    assert made.generation.text == THINKING
    assert made.generation.usage.small_tokens > 0
    assert None in made.generation.ids
    assert all(request.ids == () and request.text for request in made.small.requests)


@pytest.mark.parametrize("script", [PLAIN, THINKING])
def test_two_engines_may_hide_their_ids(script: str) -> None:
    made = run(
        RELAY,
        script,
        large=ScriptedEngine(script, text_only=True),
        small=ScriptedEngine(script, text_only=True),
    )
    assert made.generation.text == script
    assert set(made.generation.ids) == {None}
    assert made.generation.usage.handoffs > 2
    alone = run(LargeOnly(), script, large=ScriptedEngine(script, text_only=True))
    assert alone.generation.text == script


def test_an_insertion_reaches_an_engine_that_hides_its_ids() -> None:
    made = run(
        LargeOnly(),
        "We think on and on and on.</think>Done.",
        large=ScriptedEngine(
            free=lambda text: " Done." if "</think>" in text and "Done" not in text else " on",
            text_only=True,
        ),
        thinking=Thinking(),
        prefill="<think>\n",
        limits=limits(max_tokens=24, max_reasoning_tokens=4),
    )
    assert "</think>" in (made.large.requests[-1].text or "")


def test_ids_that_are_suddenly_missing_are_an_error() -> None:
    class Broken(ScriptedEngine):
        async def stream(self, request: SegmentRequest) -> Any:
            yield Delta((Piece(None, b"x"),))

    with pytest.raises(EngineReplyError, match="does not return token ids"):
        run(LargeOnly(), "x", large=Broken("x"))


def test_a_token_that_waited_has_the_stage_it_is_kept_in() -> None:
    """White space waits for what follows it: a tag that opens the thinking, or the answer."""
    seen: list[str] = []

    class Watching(RelayPolicy):
        def start(self, start: Any) -> Any:
            session = super().start(start)
            feed = session.feed

            class Session:
                begin, probed, answer = session.begin, session.probed, session.answer

                def feed(self, token: Any) -> Any:
                    seen.append(token.stage)
                    return feed(token)

            return Session()

    made = run(Watching(RELAY.cues), "\n\nFour.", thinking=Thinking())
    assert made.generation.answer == "\n\nFour."
    assert seen == ["answer"] * 4


# An answer that is none.


@pytest.mark.parametrize("answer_role", ["large", "small"])
@pytest.mark.parametrize("answer", ["", "\n\n"])
def test_an_empty_answer_is_said(answer_role: Any, answer: str) -> None:
    script = f"<think>\nWe think. Thus it is.\n</think>{answer}"
    made = run(RELAY, script, answer_role=answer_role)
    assert (made.generation.answer, made.generation.finish) == ("", "stop")
    assert made.generation.notes == (
        f"the answer is empty: the {answer_role} model ended its turn before it",
    )


def test_an_answer_without_thinking_may_be_empty_too() -> None:
    made = run(LargeOnly(), large=ScriptedEngine(""), thinking=None)
    assert made.generation.notes == (
        "the answer is empty: the large model ended its turn before it",
    )


def test_an_answer_that_is_cut_to_nothing_is_no_empty_one() -> None:
    script = "<think>\nWe think.\n</think>Four."
    assert run(RELAY, script).generation.notes == ()
    stopped = run(RELAY, script, stop=("Four",)).generation
    assert (stopped.answer, stopped.notes) == ("", ())
    cut = run(RELAY, script, limits=limits(max_tokens=3)).generation
    assert (cut.answer, cut.finish, cut.notes) == ("", "length", ())
