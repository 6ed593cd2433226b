from __future__ import annotations

from typing import Any

import pytest

from relaygen.mock._template import render

USER = {"role": "user", "content": "Hi"}


def test_turns() -> None:
    messages = [{"role": "system", "content": "Be brief."}, USER]
    assert render(messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_thinking_switched_off_is_closed_at_once() -> None:
    prompt = render([USER], kwargs={"enable_thinking": False})
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert render([USER], kwargs={"enable_thinking": True}) == render([USER])


def test_a_plain_template_has_nothing_to_close() -> None:
    plain = render([USER], kwargs={"enable_thinking": False}, plain=True)
    assert plain == render([USER])


def test_a_final_message_is_left_open() -> None:
    prompt = render([USER, {"role": "assistant", "content": "We"}], continue_final=True)
    assert prompt.endswith("<|im_start|>assistant\nWe")


def test_without_a_new_turn() -> None:
    assert render([USER], generation=False).endswith("Hi<|im_end|>\n")


def test_tools_stand_in_the_system_message() -> None:
    tools = [{"type": "function", "function": {"name": "add"}}]
    prompt = render([USER], tools=tools)
    assert prompt.startswith("<|im_start|>system\n# Tools")
    assert '{"type": "function", "function": {"name": "add"}}' in prompt
    assert "{{" not in prompt
    both = render([{"role": "system", "content": "Be brief."}, USER], tools=tools)
    assert both.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    assert both.count("<|im_start|>system") == 1


def test_calls_of_earlier_turns() -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}
    prompt = render([USER, call, {"role": "tool", "content": "1"}])
    assert '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>' in prompt
    parsed = {"name": "add", "arguments": {"a": 1}}
    assert render([USER, {**call, "tool_calls": [{"function": parsed}]}]) in prompt.replace(
        "<|im_start|>tool\n1<|im_end|>\n", ""
    )


def test_content_in_parts() -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    assert render([{"role": "user", "content": parts}]) == render([USER])


@pytest.mark.parametrize("messages", [[], [{"role": "king", "content": "x"}], [{}]])
def test_what_is_no_conversation(messages: Any) -> None:
    with pytest.raises(ValueError, match="there "):
        render(messages)
