from __future__ import annotations

from typing import Any

import pytest

from relaygen._profile import Profile
from relaygen._types import Conversation, ToolCall
from relaygen.profiles import load
from relaygen.serve import _conversation
from relaygen.serve._body import validate
from relaygen.serve._errors import ApiError
from relaygen.serve._requests import ChatRequest, CompletionRequest

from .support import TAGS, TOOL

USER = {"role": "user", "content": "1 + 2?"}
ASSISTANT = {"role": "assistant", "content": "It is"}
FUNCTION = {"name": "add", "arguments": '{"a": 1}'}
CALLED = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "I should add.",
    "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}],
}


def chat(*messages: Any, profile: Profile | None = None, **fields: Any) -> Conversation:
    body = {"messages": list(messages), **fields}
    request = validate(body, ChatRequest, strict=True).request
    return _conversation.chat(request, profile or load(TAGS))


def text(prompt: Any) -> Conversation:
    request = validate({"prompt": prompt}, CompletionRequest, strict=True).request
    return _conversation.text(request)


def refused(*messages: Any, **fields: Any) -> tuple[str | None, str | None]:
    with pytest.raises(ApiError) as error:
        chat(*messages, **fields)
    assert error.value.status == 400
    return error.value.param, error.value.code


def test_every_message_is_passed_on() -> None:
    made = chat(
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "1 +"}, {"type": "text", "text": " 2?"}],
        },
        {"role": "assistant", "content": "3", "reasoning": "Hm."},
        {**USER, "name": "Ann", "cache_control": {"type": "ephemeral"}},
        CALLED,
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    )
    assert [m.role for m in made.messages] == [
        "system", "user", "assistant", "user", "assistant", "tool",
    ]  # fmt: skip
    assert made.messages[1].content == "1 + 2?"
    assert made.messages[2].reasoning == "Hm."
    assert made.messages[3].name == "Ann"
    assert made.messages[4].tool_calls == (ToolCall("c1", "add", '{"a": 1}'),)
    assert (made.messages[4].content, made.messages[4].reasoning) == ("", "I should add.")
    assert made.messages[5].tool_call_id == "c1"
    assert made.continue_final is False


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ({"role": "user", "content": None}, "messages.0.content", None),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "messages.0.content.0.type",
            "unsupported",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content.0.text", None),
        ({**USER, "tool_calls": CALLED["tool_calls"]}, "messages.0.tool_calls", None),
        (
            {**CALLED, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[1]"}}]},
            "messages.0.tool_calls",
            None,
        ),
        ({"role": "function", "name": "f", "content": "3"}, "messages.0.role", "invalid_value"),
    ],
)
def test_messages_that_are_refused(message: dict[str, Any], param: str, code: str | None) -> None:
    assert refused(message) == (param, code)


def test_empty_arguments_are_an_empty_object() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": ""}}
    made = chat(USER, {"role": "assistant", "tool_calls": [call]})
    assert made.messages[1].tool_calls[0].arguments == "{}"


# Whose turn it is.


def test_a_final_assistant_message_is_continued_only_when_asked() -> None:
    assert chat(USER, ASSISTANT).continue_final is False
    made = chat(USER, ASSISTANT, continue_final_message=True, add_generation_prompt=False)
    assert made.continue_final is True
    assert chat(USER, add_generation_prompt=True).continue_final is False


def test_a_profiles_prefill_opens_a_new_turn_only() -> None:
    profile = load("embedded-thinking")
    assert chat(USER, profile=profile).prefill == "<think>\n"
    made = chat(USER, ASSISTANT, profile=profile, continue_final_message=True)
    assert made.prefill == ""


@pytest.mark.parametrize(
    ("messages", "fields", "param"),
    [
        ([USER], {"continue_final_message": True}, "continue_final_message"),
        ([USER, CALLED], {"continue_final_message": True}, "continue_final_message"),
        (
            [USER, ASSISTANT],
            {"continue_final_message": True, "add_generation_prompt": True},
            "add_generation_prompt",
        ),
        ([USER], {"add_generation_prompt": False}, "add_generation_prompt"),
    ],
)
def test_contradictions_about_the_turn(
    messages: list[Any], fields: dict[str, Any], param: str
) -> None:
    assert refused(*messages, **fields)[0] == param


# What reaches the template.


@pytest.mark.parametrize(
    ("fields", "kwargs"),
    [
        ({}, {}),
        ({"enable_thinking": False}, {"enable_thinking": False}),
        ({"chat_template_kwargs": {"x": [1]}}, {"x": [1]}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "none"}, {"reasoning_effort": "none", "enable_thinking": False}),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
            {"enable_thinking": True},
        ),
    ],
)
def test_template_arguments(fields: dict[str, Any], kwargs: dict[str, Any]) -> None:
    assert chat(USER, **fields).template_kwargs == kwargs


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"enable_thinking": 1}}, "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
    ],
)
def test_template_arguments_that_are_refused(fields: dict[str, Any], param: str) -> None:
    assert refused(USER, **fields)[0] == param


def test_thinking_that_a_profile_opens_cannot_be_switched_off() -> None:
    profile = load("embedded-thinking")
    assert refused(USER, profile=profile, enable_thinking=False) == (
        "enable_thinking",
        "unsupported",
    )


# Tools.


def test_tools_reach_the_prompt_as_they_were_defined() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object", "x-y": 1}}
    made = chat(USER, tools=[{"type": "function", "function": function}])
    assert made.tools == ({"type": "function", "function": function},)
    assert chat(USER, tools=[TOOL], tool_choice="none").tools == ()
    assert chat(USER, tools=[TOOL], tool_choice="auto").tools == (TOOL,)
    assert chat(USER, tools=[]).tools == ()
    assert chat(USER, tool_choice="auto").tools == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
    ],
)
def test_tools_that_are_refused(fields: dict[str, Any], param: str) -> None:
    assert refused(USER, **fields)[0] == param


def test_tools_need_models_that_were_trained_for_them() -> None:
    profile = load("r1-distill-32b+1.5b")
    assert refused(USER, profile=profile, tools=[TOOL]) == ("tools", "unsupported")
    assert chat(USER, profile=profile, tools=[TOOL], tool_choice="none").tools == ()


# Plain prompts.


@pytest.mark.parametrize(
    ("prompt", "raw"),
    [("x", "x"), (["x"], "x"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2))],
)
def test_one_prompt(prompt: Any, raw: Any) -> None:
    assert text(prompt) == Conversation((), raw=raw)


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], ["x", "y"], [[1], [2]]])
def test_no_prompt_or_several(prompt: Any) -> None:
    with pytest.raises(ApiError) as error:
        text(prompt)
    assert error.value.param == "prompt"
