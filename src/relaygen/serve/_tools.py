"""Tool calls in an answer: Hermes tags, as the Qwen family writes them.

A call is shown when it is whole: only then is it known to be one, and a broken one is content.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from .._types import ToolCall

OPENING, CLOSING = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Content:
    """Text that belongs to no call."""

    text: str


Part = Content | ToolCall


class CallParser:
    """Finds the calls in a text that arrives in parts.

    White space between calls, and between content and a call, is no content.

    Attributes:
        calls: those found so far.
    """

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self._held = ""  # may be the beginning of a tag, or white space in front of one
        self._inside: list[str] | None = None
        self._tail = ""
        self._gap = ""  # white space in front of the open call
        self._shown = False

    def feed(self, text: str) -> list[Part]:
        """What is certain by now."""
        parts: list[Part] = []
        while text:
            text = self._outside(text, parts) if self._inside is None else self._within(text, parts)
        return parts

    def _outside(self, text: str, parts: list[Part]) -> str:
        text = self._held + text
        self._held = ""
        at = text.find(OPENING)
        if at >= 0:
            content = text[:at].rstrip()
            self._gap = text[len(content) : at]
            self._content(content, parts)
            self._inside, self._tail = [], ""
            return text[at + len(OPENING) :]
        keep = _beginning(text)
        keep = len(text[:keep].rstrip())
        self._content(text[:keep], parts)
        self._held = text[keep:]
        return ""

    def _within(self, text: str, parts: list[Part]) -> str:
        assert self._inside is not None
        seen = self._tail + text  # the tag may have begun before this text
        at = seen.find(CLOSING)
        if at < 0:
            self._inside.append(text)
            self._tail = seen[-(len(CLOSING) - 1) :]
            return ""
        rest = seen[at + len(CLOSING) :]
        whole = "".join(self._inside) + text
        body = whole[: len(whole) - len(rest) - len(CLOSING)]
        self._inside, self._tail = None, ""
        call = read_call(body)
        if call is None:
            self._content(self._gap + OPENING + body + CLOSING, parts)
        else:
            self.calls.append(call)
            parts.append(call)
        return rest

    def _content(self, text: str, parts: list[Part]) -> None:
        if not self._shown and self.calls:
            text = text.lstrip()  # nothing but white space was between the calls
        if text:
            self._shown = True
            parts.append(Content(text))

    def flush(self) -> list[Part]:
        """The text is over: what was held is content, an open call too."""
        parts: list[Part] = []
        if self._inside is not None:
            self._content(self._gap + OPENING + "".join(self._inside), parts)
            self._inside = None
        elif self._held and not (self.calls and not self._held.strip()):
            self._content(self._held, parts)
        self._held = ""
        return parts


def _beginning(text: str) -> int:
    """Where a beginning of the opening tag stands at the text's end, else the text's length."""
    at = text.rfind("<")
    if at >= 0 and OPENING.startswith(text[at:]):
        return at
    return len(text)


def read_call(body: str) -> ToolCall | None:
    """The call between the tags, None where it is none."""
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict):
        return None
    name, arguments = call.get("name"), call.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    try:
        name.encode()
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except ValueError:  # half a character, or what Python alone takes for a number in JSON
        return None
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which JSON may write as an escape
        text = json.dumps(arguments)
    return ToolCall(f"call_{secrets.token_hex(12)}", name, text)
