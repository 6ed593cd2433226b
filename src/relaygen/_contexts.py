"""What each engine is asked to continue: its own prompt, and its own ids of what was written.

With equal vocabularies there is one list of ids for both. Otherwise only text crosses: what the
other role wrote is tokenized alone, without special tokens, when its receiver is next on duty;
stage markers map to each other through the receiver's own special tokens. An engine that hides its
token ids is sent text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ._types import Piece, Prompt, Role, other
from .engines.base import Engine

_BYTES_PER_TOKEN = 3
"""Of plain English it is four; code and digits have fewer."""


class Contexts:
    """The request contexts of both roles.

    Args:
        prompts: each role's own rendering; one entry serves both roles of a `shared` pair.
        shared: whether ids mean the same on both engines.
        text_only: roles whose engines hide ids.
    """

    def __init__(
        self,
        prompts: Mapping[Role, Prompt],
        *,
        shared: bool,
        text_only: Collection[Role] = (),
    ) -> None:
        self.shared = shared
        self._texts: dict[Role, list[str]] = {role: [] for role in text_only}
        self._bytes: dict[Role, int] = dict.fromkeys(text_only, 0)
        for role in text_only:
            self._append(role, prompts[role].text)
        if shared:
            ids = list(next(iter(prompts.values())).ids)
            self._ids: dict[Role, list[int]] = {"large": ids, "small": ids}
        else:
            self._ids = {role: list(prompt.ids) for role, prompt in prompts.items()}
        self._backlog: dict[Role, list[tuple[str, bool]]] = {"large": [], "small": []}

    def write(self, role: Role, piece: Piece, text: str, *, special: bool = False) -> None:
        """A kept token of `role`; `text` is what it completed, `special` that it is a marker's."""
        if role in self._texts:
            self._append(role, text)
        elif piece.id is not None:
            self._ids[role].append(piece.id)
        if not self.shared and other(role) in self._ids:
            self._hear(other(role), text, special=special)

    def insert(self, text: str, ids: tuple[int, ...]) -> None:
        """An insertion; `ids` are those of a shared vocabulary."""
        if self.shared and not self._texts:
            self._ids["large"].extend(ids)
            return
        for role in self._ids:
            self._hear(role, text, special=True)

    def _append(self, role: Role, text: str) -> None:
        self._texts[role].append(text)
        self._bytes[role] += len(text.encode())

    def _hear(self, role: Role, text: str, *, special: bool) -> None:
        if role in self._texts:
            self._append(role, text)
            return
        backlog = self._backlog[role]
        if backlog and backlog[-1][1] == special:
            backlog[-1] = (backlog[-1][0] + text, special)
        elif text:
            backlog.append((text, special))

    def size(self, role: Role) -> int:
        """Tokens of `role`'s context; a byte of backlog counts as one, which is plenty.

        Of an engine that hides ids only the text is known: three bytes count as one.
        """
        if role in self._texts:
            return self._bytes[role] // _BYTES_PER_TOKEN
        return len(self._ids[role]) + sum(len(text.encode()) for text, _ in self._backlog[role])

    def known(self, role: Role) -> tuple[int, ...]:
        """The ids of `role`'s context that are there, without what waits to be tokenized.

        What waits is tokenized as a whole when its receiver is on duty. Earlier, in parts, it might
        become other ids, and other text.
        """
        return tuple(self._ids[role])

    def text(self, role: Role) -> str | None:
        """`role`'s whole context as text, for an engine that hides ids; else None."""
        return "".join(self._texts[role]) if role in self._texts else None

    async def ids(self, role: Role, engine: Engine) -> tuple[int, ...]:
        """`role`'s whole context, caught up; () for an engine that hides ids.

        Raises:
            EngineError: its engine does not answer.
        """
        backlog = self._backlog[role]
        while backlog:  # what could not be tokenized waits for the next try
            text, special = backlog[0]
            ids = await engine.tokenize(text, special=special)
            del backlog[0]
            self._ids[role].extend(ids)
        return tuple(self._ids[role])
