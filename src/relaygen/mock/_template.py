"""A chat template in the manner of the Qwen family."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

NO_THINKING = "<think>\n\n</think>\n\n"
_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{}\n"
    "</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)


def render(
    messages: Sequence[Mapping[str, Any]],
    *,
    generation: bool = True,
    continue_final: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    kwargs: Mapping[str, Any] | None = None,
    plain: bool = False,
) -> str:
    """The prompt's text.

    Args:
        messages: in OpenAI's form.
        generation: open an assistant turn at the end.
        continue_final: leave the last message open instead.
        tools: function definitions.
        kwargs: the template's own; ``enable_thinking`` False closes the thinking at once.
        plain: of a model that does not think, so that there is nothing to close.

    Raises:
        ValueError: there is no message, or one is malformed.
    """
    if not messages:
        raise ValueError("there are no messages")
    turns = [dict(message) for message in messages]
    if tools:
        listed = _TOOLS.format("\n".join(json.dumps(t, ensure_ascii=False) for t in tools))
        if turns[0].get("role") == "system":
            turns[0]["content"] = f"{_text(turns[0].get('content'))}\n\n{listed}"
        else:
            turns.insert(0, {"role": "system", "content": listed})
    parts = [f"<|im_start|>{_role(turn)}\n{_content(turn)}" for turn in turns]
    prompt = "<|im_end|>\n".join(parts)
    if continue_final:
        return prompt
    prompt += "<|im_end|>\n"
    if generation:
        prompt += "<|im_start|>assistant\n"
        if not plain and (kwargs or {}).get("enable_thinking") is False:
            prompt += NO_THINKING
    return prompt


def _role(turn: Mapping[str, Any]) -> str:
    role = turn.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise ValueError(f"there is no role {role!r}")
    return "system" if role == "developer" else str(role)


def _content(turn: Mapping[str, Any]) -> str:
    text = _text(turn.get("content"))
    for call in turn.get("tool_calls") or ():
        function = call["function"]
        arguments = function.get("arguments", "")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        name = json.dumps(function["name"], ensure_ascii=False)
        text += f'\n<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'
    return text


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(str(part["text"]) for part in content)
