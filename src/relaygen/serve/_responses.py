"""Replies in OpenAI's form, from what the relay wrote."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from .._results import Finish, Generation, ModelUsage, Usage
from .._types import ToolCall
from ..costs import large_alone_seconds, speedup
from ._errors import without_address
from ._settings import ReasoningField
from ._tasks import Order

FINISH_REASONS: dict[Finish, str] = {
    "stop": "stop",
    "length": "length",
    "repetition": "length",  # cut by a guard: the client must not take it for a whole answer
    "cancelled": "stop",
}


def finish_of(generation: Generation) -> Finish:
    """Why it ended, of one whose reply was sent to the end: the server stops the models behind a
    tool call where one call was all that was wanted, which nobody would call cancelled."""
    return "stop" if generation.finish == "cancelled" else generation.finish


def reasoning_names(field: ReasoningField) -> tuple[str, ...]:
    """The names under which the thinking is sent."""
    return ("reasoning_content", "reasoning") if field == "both" else (field,)


class Heading:
    """What all parts of one reply begin with.

    Args:
        order: what is answered.

    Attributes:
        key: the generation's name at the engines (their session), the end of `id`.
        id: of the reply.
        created: seconds since the epoch.
        model: the name that was asked for.
    """

    def __init__(self, order: Order) -> None:
        self.key = uuid.uuid4().hex
        self.id = f"{'chatcmpl' if order.chat else 'cmpl'}-{self.key}"
        self.created = int(time.time())
        self.model = order.model

    def dict(self, object: str) -> dict[str, Any]:
        """As JSON."""
        return {"id": self.id, "object": object, "created": self.created, "model": self.model}


def completion(
    order: Order,
    generation: Generation,
    heading: Heading,
    *,
    field: ReasoningField,
    content: str | None = None,
    calls: Sequence[ToolCall] = (),
) -> dict[str, Any]:
    """A whole reply.

    Args:
        order: what is answered.
        generation: what was written.
        heading: its id and time.
        field: the thinking's name.
        content: of the answer without its calls; None for the answer as it is.
        calls: found in the answer.
    """
    answer = generation.answer if content is None else content
    reasoning = dict.fromkeys(reasoning_names(field), generation.reasoning)
    choice: dict[str, Any] = {"index": 0}
    if order.chat:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": (answer or None) if calls else answer,
        }
        if generation.reasoning:
            message |= reasoning
        if calls:
            message["tool_calls"] = [call_dict(call) for call in calls]
        choice["message"] = message
    else:
        choice["text"] = answer
        if generation.reasoning:
            choice |= reasoning
    choice["logprobs"] = None
    choice["finish_reason"] = "tool_calls" if calls else FINISH_REASONS[generation.finish]
    return {
        **heading.dict("chat.completion" if order.chat else "text_completion"),
        "choices": [choice],
        "usage": usage_dict(generation.usage),
        "relay": relay_dict(order, generation),
    }


def call_dict(call: ToolCall) -> dict[str, Any]:
    """A call as OpenAI writes it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def usage_dict(usage: Usage) -> dict[str, Any]:
    """OpenAI's counts. Tokens found in a cache are told where one request made the reply: with
    more of them, the engines' counts do not say which part of the prompt was found."""
    made: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    only = usage.large if usage.large.requests else usage.small
    if usage.large.requests + usage.small.requests == 1 and only.cached is not None:
        made["prompt_tokens_details"] = {"cached_tokens": min(only.cached, usage.prompt_tokens)}
    return made


def relay_dict(order: Order, generation: Generation) -> dict[str, Any]:
    """Who wrote what, and what it cost."""
    usage = generation.usage
    return {
        "policy": order.policy,
        "level": order.level or None,
        "tokens": {
            "large": usage.large_tokens,
            "small": usage.small_tokens,
            "inserted": usage.inserted_tokens,
            "discarded": usage.discarded_tokens,
        },
        "utilization": usage.utilization,
        "handoffs": usage.handoffs,
        "fallbacks": usage.fallbacks,
        "paused": usage.paused or None,
        "seconds": {
            "total": usage.seconds,
            "first_token": usage.first_token_seconds,
            "large": usage.large.seconds,
            "small": usage.small.seconds,
        },
        "estimate": estimate(order, usage),
        "cached_share": {"large": cached_share(usage.large), "small": cached_share(usage.small)},
        "speculation": {"large": drafts(usage.large), "small": drafts(usage.small)},
        "finish": finish_of(generation),
        "notes": [without_address(note) for note in generation.notes],
    }


def estimate(order: Order, usage: Usage) -> dict[str, float | None]:
    """What the large model alone would have taken, and the speed-up over it; below 1 the relay was
    slower. None where it wrote too little to tell, or one model was to write everything."""
    relayed = len(order.task.policy.roles) > 1
    return {
        "large_alone": large_alone_seconds(usage) if relayed else None,
        "speedup": speedup(usage) if relayed else None,
    }


def drafts(usage: ModelUsage) -> dict[str, int] | None:
    """Tokens that speculative decoding guessed, and those that were right; None where unknown."""
    if usage.drafted is None or usage.accepted is None:
        return None
    return {"drafted": usage.drafted, "accepted": usage.accepted}


def cached_share(usage: ModelUsage) -> float | None:
    """Prompt tokens found in the prefix cache, of all; None where the engine hides it."""
    if usage.cached is None or usage.evaluated is None:
        return None
    total = usage.cached + usage.evaluated
    return usage.cached / total if total else None
