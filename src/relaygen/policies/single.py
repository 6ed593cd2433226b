"""One model alone: the two baselines every comparison needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._types import Kind, Piece, Role, Stage
from .base import STAY, After, Decision, Start, Token


class Alone:
    """One generation in which nobody else ever writes."""

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """Nothing to remember."""

    def feed(self, token: Token) -> Decision:
        """Go on."""
        return STAY

    def probed(self, piece: Piece | None) -> Decision:
        """Never asked for."""
        return STAY

    def answer(self, on_duty: Role) -> Role:
        """The same model."""
        return on_duty


@dataclass(frozen=True, slots=True)
class LargeOnly:
    """The large model alone."""

    name: ClassVar[str] = "large"
    first: ClassVar[Role] = "large"
    roles: ClassVar[frozenset[Role]] = frozenset(("large",))
    margins: ClassVar[frozenset[Role]] = frozenset()

    def start(self, start: Start) -> Alone:
        """A fresh session."""
        return Alone()


@dataclass(frozen=True, slots=True)
class SmallOnly:
    """The small model alone, closing its own thinking."""

    name: ClassVar[str] = "small"
    first: ClassVar[Role] = "small"
    roles: ClassVar[frozenset[Role]] = frozenset(("small",))
    margins: ClassVar[frozenset[Role]] = frozenset()

    def start(self, start: Start) -> Alone:
        """A fresh session."""
        return Alone()
