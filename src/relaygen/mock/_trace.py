"""Traces: what a mock engine says, token by token."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from .._errors import UsageError


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole assistant turn; behind its last token the turn ends.

    Attributes:
        name: for people.
        tokens: the bytes of each token; a character may be spread over several.
        thinking: whether it begins with ``<think>`` and closes it.
        starts: where each token begins, in bytes, and the length of the whole.
    """

    name: str
    tokens: tuple[bytes, ...]
    thinking: bool = False
    starts: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.tokens or not all(self.tokens):
            raise UsageError(f"trace {self.name!r} has no tokens, or an empty one")
        ends = itertools.accumulate(map(len, self.tokens), initial=0)
        object.__setattr__(self, "starts", tuple(ends))

    @property
    def data(self) -> bytes:
        """The whole turn."""
        return b"".join(self.tokens)

    @property
    def text(self) -> str:
        """The whole turn as text."""
        return self.data.decode(errors="replace")

    def split(self) -> Trace:
        """The same text in other tokens: each token of more than three bytes is cut in two."""
        return Trace(
            self.name,
            tuple(part for token in self.tokens for part in _halves(token)),
            self.thinking,
        )

    def dump(self) -> str:
        """The trace file's text."""
        tokens = [_dumped(token) for token in self.tokens]
        whole = {"name": self.name, "thinking": self.thinking, "tokens": tokens}
        return json.dumps(whole, ensure_ascii=False, indent=0) + "\n"

    @classmethod
    def of(cls, tokens: Sequence[str | bytes], *, name: str = "trace") -> Trace:
        """From texts; it thinks where it begins with ``<think>``."""
        data = tuple(t.encode() if isinstance(t, str) else t for t in tokens)
        return cls(name, data, b"".join(data).startswith(b"<think>"))


def _halves(token: bytes) -> tuple[bytes, ...]:
    if len(token) <= 3 or token.startswith((b"<think", b"</think", b"<tool", b"</tool")):
        return (token,)
    middle = len(token) // 2
    return token[:middle], token[middle:]


def _dumped(token: bytes) -> str | dict[str, str]:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(token).decode()}


def trace_names() -> tuple[str, ...]:
    """The shipped traces."""
    folder = resources.files(__package__) / "data"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".json")))


def load_trace(name: str | Path) -> Trace:
    """A shipped trace by name, or a file ``{"name", "thinking", "tokens": [text | {"b64"}]}``.

    Raises:
        UsageError: there is no such trace, or the file is none.
    """
    try:
        if str(name) in trace_names():
            text = (resources.files(__package__) / "data" / f"{name}.json").read_text("utf-8")
        else:
            text = Path(name).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"cannot read the trace {str(name)!r}: {getattr(error, 'strerror', None) or error}",
            hint=f"a file, or one of: {', '.join(trace_names())}",
        ) from None
    try:
        value = json.loads(text)
        tokens = tuple(_loaded(token) for token in value["tokens"])
        return Trace(str(value.get("name", name)), tokens, bool(value.get("thinking", False)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{name} is no trace file: {error}",
            hint='it is a JSON object {"name": …, "thinking": …, "tokens": ["…", …]}',
        ) from None


def _loaded(token: Any) -> bytes:
    if isinstance(token, str):
        return token.encode()
    return base64.b64decode(token["b64"], validate=True)
