"""Conversations in OpenAI's form, as servers' template routes take them."""

from __future__ import annotations

from typing import Any

from .._errors import UsageError
from .._types import Conversation, Message


def as_json(message: Message) -> dict[str, Any]:
    """One message; what is empty is left out, since templates test for its presence."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        # Both names: servers differ in the one they read, templates know the longer one.
        found["reasoning"] = found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        found["tool_call_id"] = message.tool_call_id
    if message.name:
        found["name"] = message.name
    return found


def split(conversation: Conversation) -> tuple[list[Message], str]:
    """The messages for the template, and the text with which the assistant's turn begins.

    A final assistant message that is to be continued is not given to the template: templates close
    it, trim it, or take its thinking out.

    Raises:
        UsageError: it has more than a text.
    """
    messages, begun = list(conversation.messages), ""
    while conversation.continue_final and messages and messages[-1].role == "assistant":
        last = messages.pop()
        if last.reasoning or last.tool_calls:
            raise UsageError(
                "a final assistant message with reasoning or tool calls cannot be continued",
                hint="write the reasoning into its content, or do not continue the message",
            )
        begun = last.content + begun
    return messages, begun + conversation.prefill
