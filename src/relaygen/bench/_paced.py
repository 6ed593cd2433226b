"""A policy that hands over at a given rate, whatever is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._errors import UsageError
from .._types import Kind, Piece, Role, Stage
from ..policies.base import STAY, After, Decision, HandOff, Start, Token


@dataclass(frozen=True, slots=True)
class PacedPolicy:
    """The large model writes `large` tokens, the small one `small`, and so on to the end.

    No hint tells an engine beforehand where a segment ends, so every hand-off breaks a stream off.

    Raises:
        UsageError: a segment has fewer than one token.
    """

    large: int
    small: int

    name: ClassVar[str] = "paced"
    first: ClassVar[Role] = "large"
    roles: ClassVar[frozenset[Role]] = frozenset(("large", "small"))
    margins: ClassVar[frozenset[Role]] = frozenset()

    def __post_init__(self) -> None:
        if min(self.large, self.small) < 1:
            raise UsageError("a segment has at least one token")

    @classmethod
    def at(cls, rate: float, utilization: float) -> PacedPolicy:
        """`rate` hand-offs per 1,000 tokens, the large model's share near `utilization`.

        Raises:
            UsageError: a rate that is not above 0, or too high for one token a segment.
        """
        if not 0 < rate <= 1000:
            raise UsageError(f"hand-offs per 1,000 tokens are above 0 and at most 1000, not {rate}")
        both = max(2, round(2000 / rate))
        large = min(both - 1, max(1, round(utilization * both)))
        return cls(large, both - large)

    def start(self, start: Start) -> PacedSession:
        """A fresh session."""
        return PacedSession(self)


class PacedSession:
    """One generation under `PacedPolicy`."""

    def __init__(self, policy: PacedPolicy) -> None:
        self._last = {"large": policy.large - 1, "small": policy.small - 1}
        self._role: Role = policy.first

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins."""
        self._role = role

    def feed(self, token: Token) -> Decision:
        """One token; in the middle of a character nobody hands over."""
        if token.index < self._last[self._role] or not token.whole:
            return STAY
        return HandOff(token.index, "lead", "paced")

    def probed(self, piece: Piece | None) -> Decision:
        """Never asked for."""
        return STAY

    def answer(self, on_duty: Role) -> Role:
        """Whoever closed the thinking goes on."""
        return on_duty
