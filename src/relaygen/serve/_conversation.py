"""From OpenAI's messages and tools to a conversation."""

from __future__ import annotations

import json
from typing import Any

from .._profile import Profile
from .._types import Conversation, Message, ToolCall
from ._errors import ApiError, invalid
from ._requests import ChatMessage, ChatRequest, CompletionRequest, TextPart

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def chat(request: ChatRequest, profile: Profile) -> Conversation:
    """The whole conversation, with what reaches the template.

    Raises:
        ApiError: 400 for what cannot be honoured.
    """
    messages = [_message(each, f"messages.{place}") for place, each in enumerate(request.messages)]
    continued = request.continue_final_message is True
    opened = request.add_generation_prompt
    if continued and messages[-1].role != "assistant":
        raise invalid(
            "continue_final_message needs a last message of the assistant's",
            "continue_final_message",
        )
    if continued and messages[-1].tool_calls:
        raise invalid(
            "a message with tool calls cannot be continued", "continue_final_message", "unsupported"
        )
    if continued and opened:
        raise invalid(
            "continue_final_message and add_generation_prompt contradict each other",
            "add_generation_prompt",
        )
    if opened is False and not continued:
        raise invalid(
            "without a generation prompt there is nothing to write: "
            "use continue_final_message, or /v1/completions",
            "add_generation_prompt",
            "unsupported",
        )
    kwargs = _template_kwargs(request, profile)
    return Conversation(
        tuple(messages),
        "" if continued else profile.prefill,
        kwargs,
        continue_final=continued,
        tools=tools(request, profile),
    )


def text(request: CompletionRequest) -> Conversation:
    """The prompt of a plain completion, as it is.

    Raises:
        ApiError: 400 for more than one prompt, or an empty one.
    """
    prompt: Any = request.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            raise invalid("one prompt per request", "prompt", "unsupported")
        prompt = prompt[0]
    if not prompt:
        raise invalid("the prompt is empty", "prompt")
    return Conversation((), raw=prompt if isinstance(prompt, str) else tuple(prompt))


def _message(message: ChatMessage, place: str) -> Message:
    role = "system" if message.role == "developer" else message.role
    calls = message.tool_calls or []
    if calls and role != "assistant":
        raise invalid("only the assistant calls tools", f"{place}.tool_calls")
    if message.content is None and role != "assistant":
        raise invalid("content is missing", f"{place}.content")
    return Message(
        role,
        _content(message.content, f"{place}.content"),
        reasoning=message.reasoning_content or message.reasoning or "",
        tool_calls=tuple(
            ToolCall(call.id, call.function.name, _arguments(call.function.arguments, place))
            for call in calls
        ),
        tool_call_id=message.tool_call_id or "",
        name=message.name or "",
    )


def _arguments(arguments: str, place: str) -> str:
    """Templates read them as JSON, and fail on anything else."""
    if not arguments.strip():
        return "{}"
    try:
        if isinstance(json.loads(arguments), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    raise invalid("a tool call's arguments are no JSON object", f"{place}.tool_calls")


def _content(content: str | list[TextPart] | None, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for number, part in enumerate(content):
        if part.type not in ("text", "input_text", "output_text"):
            raise invalid(
                f"parts of type {part.type[:40]!r} are not supported: text only",
                f"{place}.{number}.type",
                "unsupported",
            )
        if part.text is None:
            raise invalid("the text is missing", f"{place}.{number}.text")
    return "".join(part.text or "" for part in content)


def _template_kwargs(request: ChatRequest, profile: Profile) -> dict[str, Any]:
    kwargs = dict(request.chat_template_kwargs or {})
    for name in ("messages", "tools", "add_generation_prompt", "chat_template"):
        if name in kwargs:
            raise invalid(
                f"{name} cannot be set here", f"chat_template_kwargs.{name}", "unsupported"
            )
    effort = request.reasoning_effort
    if effort is not None:
        if effort not in _EFFORTS:
            raise invalid(f"one of {', '.join(_EFFORTS)}", "reasoning_effort", "invalid_value")
        kwargs.setdefault("reasoning_effort", effort)
        if effort == "none":
            kwargs.setdefault("enable_thinking", False)
    if request.enable_thinking is not None:
        kwargs["enable_thinking"] = request.enable_thinking
    if not isinstance(kwargs.get("enable_thinking", True), bool):
        raise invalid("true or false", "chat_template_kwargs.enable_thinking", "invalid_value")
    if kwargs.get("enable_thinking") is False and profile.prefill:
        raise invalid(
            f"profile {profile.name!r} opens the thinking itself, so it cannot be switched off",
            "enable_thinking",
            "unsupported",
        )
    return kwargs


def tools(request: ChatRequest, profile: Profile) -> tuple[dict[str, Any], ...]:
    """The definitions that reach the prompt.

    Raises:
        ApiError: 400 where the profile has no tool format, or a call is to be forced.
    """
    choice = request.tool_choice
    if choice is not None and not request.tools and choice != "none" and choice != "auto":
        raise invalid("tool_choice without tools", "tool_choice")
    if not request.tools or choice == "none":
        return ()
    if profile.tools is None:
        raise invalid(
            f"profile {profile.name!r} has no tool format: its models were not trained for tools",
            "tools",
            "unsupported",
        )
    if choice not in (None, "auto"):
        raise invalid("a call cannot be forced; use auto or none", "tool_choice", "unsupported")
    return tuple(tool.model_dump(exclude_none=True) for tool in request.tools)


def refuse_both(request: ChatRequest, constrained: bool) -> None:
    """A form of the answer leaves no room for a call.

    Raises:
        ApiError: 400.
    """
    if constrained and request.tools and request.tool_choice != "none":
        raise ApiError(
            400,
            "tools and a form of the answer exclude each other: set tool_choice to none",
            param="response_format",
            code="unsupported",
        )
