"""llama-server's chat templates: from conversations to prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from .._errors import EngineReplyError
from .._types import Conversation, Message, Prompt
from ._chat import as_json, split
from ._pieces import detokenize, tokenize
from ._wire import Wire

_FILLER = Message("user", "x")


async def render(wire: Wire, conversation: Conversation, extra: Mapping[str, Any]) -> Prompt:
    """The conversation in the model's chat template, as the server's chat route renders it.

    Args:
        wire: to the server.
        conversation: a chat, or a raw text as it is.
        extra: fields for every body.

    Raises:
        EngineError: the server does not answer, or the template refuses the conversation.
        UsageError: a final assistant message that cannot be continued.
    """
    raw = conversation.raw
    if isinstance(raw, tuple):
        text = await detokenize(wire, raw)
        return Prompt(raw, text, text)
    if raw is not None:
        return Prompt(await tokenize(wire, raw, special=True, begin=True), raw, raw)
    messages, begun = split(conversation)
    if messages and messages[-1].role == "assistant":
        closed, opened = await _behind(wire, messages, conversation, extra)
    else:
        closed, opened = await asyncio.gather(
            _template(wire, messages, conversation, extra, opened=False),
            _template(wire, messages, conversation, extra, opened=True),
        )
    assistant = opened.removeprefix(closed) if opened.startswith(closed) else ""
    text = opened + begun
    # The template's BOS is not in the server's rendering; its tokenizer adds it (`begin`).
    ids = await tokenize(wire, text, special=True, begin=True)
    return Prompt(ids, text, assistant + begun)


async def _behind(
    wire: Wire, messages: list[Message], conversation: Conversation, extra: Mapping[str, Any]
) -> tuple[str, str]:
    """The conversation with its final assistant message closed, and with a new turn opened.

    The server always continues a final assistant message. So one more user message is rendered
    behind it, and taken out again.
    """
    before = messages[:-1]
    short, filler, closed, opened = await asyncio.gather(
        _template(wire, before, conversation, extra, opened=False),
        _template(wire, [*before, _FILLER], conversation, extra, opened=False),
        _template(wire, [*messages, _FILLER], conversation, extra, opened=False),
        _template(wire, [*messages, _FILLER], conversation, extra, opened=True),
    )
    added = filler.removeprefix(short)
    fits = added and filler.startswith(short) and closed.endswith(added)
    if not fits or not opened.startswith(closed):
        raise EngineReplyError(
            "this model's template cannot open a new turn behind a final assistant message",
            role=wire.role,
            hint="continue the message (continue_final_message), or put a user message behind it",
            refused=True,
        )
    text = closed.removesuffix(added)
    return text, text + opened.removeprefix(closed)


async def _template(
    wire: Wire,
    messages: list[Message],
    conversation: Conversation,
    extra: Mapping[str, Any],
    *,
    opened: bool,
) -> str:
    body: dict[str, Any] = {
        "messages": [as_json(each) for each in messages],
        "chat_template_kwargs": dict(conversation.template_kwargs),
        "add_generation_prompt": opened,
        **extra,
    }
    if conversation.tools:
        body["tools"] = [dict(each) for each in conversation.tools]
    answer = await wire.post("/apply-template", body)
    text = answer.get("prompt") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise EngineReplyError(f"{wire.url} rendered no prompt", role=wire.role)
    return text
