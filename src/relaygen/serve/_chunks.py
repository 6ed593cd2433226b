"""The parts of a streamed reply as bytes. All but the text itself is made once per reply."""

from __future__ import annotations

import json
from dataclasses import asdict
from json.encoder import encode_basestring
from typing import Any

from .._events import Event, HandedOff, Inserted, StageChanged, Text
from .._results import Generation
from .._types import ToolCall
from ._responses import FINISH_REASONS, Heading, reasoning_names, relay_dict, usage_dict
from ._settings import ReasoningField
from ._tasks import Order
from ._tools import Part

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
_HERE = "\x00"  # stands for the text while a chunk's frame is made
_MARK = json.dumps(_HERE)


class Chunks:
    """Makes the chunks of one reply.

    Args:
        order: what is answered.
        heading: its id and time.
        field: the thinking's name.
        annotate: whether each chunk says who wrote it.
    """

    def __init__(
        self, order: Order, heading: Heading, field: ReasoningField, *, annotate: bool
    ) -> None:
        self._order = order
        self._heading = heading
        self._names = reasoning_names(field)
        self._annotate = annotate
        self._object = "chat.completion.chunk" if order.chat else "text_completion"
        self._frames: dict[tuple[str, str], list[str]] = {}
        self._calls = 0

    def opening(self) -> bytes:
        """The first chunk of a chat: the role."""
        if not self._order.chat:
            return b""
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, event: Text) -> bytes:
        """One token."""
        frame = self._frames.get((event.role, event.stage))
        if frame is None:
            frame = self._frame(event)
        return encode_basestring(event.text).join(frame).encode()

    def _frame(self, event: Text) -> list[str]:
        if event.stage == "answer":
            delta = {"content" if self._order.chat else "text": _HERE}
        else:
            delta = dict.fromkeys(self._names, _HERE)
        frame = self._data(delta, role=event.role, stage=event.stage).split(_MARK)
        self._frames[event.role, event.stage] = frame
        return frame

    def part(self, part: Part, event: Text) -> bytes:
        """Content or a whole call: its name first, then its arguments."""
        if not isinstance(part, ToolCall):
            return self.text(Text(part.text, event.role, event.stage))
        number, self._calls = self._calls, self._calls + 1
        head: dict[str, Any] = {"index": number, "id": part.id, "type": "function"}
        named = {**head, "function": {"name": part.name, "arguments": ""}}
        filled = {"index": number, "function": {"arguments": part.arguments}}
        return b"".join(
            self._data({"tool_calls": [each]}, role=event.role, stage=event.stage).encode()
            for each in (named, filled)
        )

    def told(self, event: Event) -> bytes:
        """What happens beside the text, for a client that wants to know who wrote what."""
        if not self._annotate or not isinstance(event, (HandedOff, Inserted, StageChanged)):
            return b""
        facts = asdict(event)
        return self._chunk({}, relay={"event": facts.pop("type"), **facts})

    def end(self, generation: Generation, *, called: bool) -> bytes:
        """Why it ended; then the usage, where it was asked for; then the end of the stream."""
        reason = "tool_calls" if called else FINISH_REASONS[generation.finish]
        summary = {"relay": relay_dict(self._order, generation)}
        if not self._order.include_usage:
            more = summary if self._annotate else {}
            return self._chunk({}, reason, **more) + DONE
        last = {
            **self._heading.dict(self._object),
            "choices": [],
            "usage": usage_dict(generation.usage),
            **summary,
        }
        return self._chunk({}, reason) + _event(last).encode() + DONE

    def _data(self, delta: dict[str, Any], *, role: str, stage: str) -> str:
        more = {"relay": {"model": role, "stage": stage}} if self._annotate else {}
        return _event(self._dict(delta, None, **more))

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        return _event(self._dict(delta, reason, **more)).encode()

    def _dict(self, delta: dict[str, Any], reason: str | None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta} if self._order.chat else {"index": 0, "text": ""}
        if not self._order.chat:
            choice |= delta
        choice |= {"logprobs": None, "finish_reason": reason}
        return {**self._heading.dict(self._object), "choices": [choice], **more}


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


def error_events(body: dict[str, Any]) -> bytes:
    """An error after the first byte, and the end."""
    return _event(body).encode() + DONE
