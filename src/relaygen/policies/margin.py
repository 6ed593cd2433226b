"""Like the relay policy, but the small model's own certainty decides how long it writes.

A cue delegates as in `RelayPolicy`. Then the small model goes on past a sentence end while it is
sure of what comes next, and hands back in mid-sentence where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from .._errors import UsageError
from .._types import Kind, Role, Stage
from ..text.cues import CueSet
from ..text.reader import Reading
from .base import STAY, After, Decision, HandOff, Start, Token
from .relay import RelayPolicy, RelaySession


@dataclass(frozen=True, slots=True)
class MarginPolicy:
    """Delegates at each switch cue, for as long as the small model is sure.

    Args:
        cues: the switch cues of a profile.
        stay: the small model goes on past a sentence end while its margin at the next token is at
            least this; above 1 it never does.
        leave: a token of the small model whose margin is below this is discarded, and the large
            model writes on from there; at or below 0 that never happens.
        markers: answer markers, as in `RelayPolicy`.
        max_consecutive_delegations: as in `RelayPolicy`.

    A token without a known margin is neither: it does not hand back, and no sentence follows it.
    Nothing is cut inside a character: what it began with goes too. Where the small model is unsure
    of its very first token nothing of it is kept, and no cue delegates before the large model ended
    a sentence, so that the two do not take turns over nothing.

    Raises:
        UsageError: `stay` is below `leave`, or one of them is no number.
    """

    cues: CueSet
    stay: float
    leave: float
    markers: CueSet = field(default_factory=lambda: CueSet(()))
    max_consecutive_delegations: int = 3

    def __post_init__(self) -> None:
        if not (math.isfinite(self.stay) and math.isfinite(self.leave)):
            raise UsageError("stay and leave must be finite numbers")
        if self.stay < self.leave:
            raise UsageError(
                f"stay ({self.stay:g}) must not be below leave ({self.leave:g})",
                hint="who may go on after a sentence may go on within one",
            )
        object.__setattr__(self, "markers", self.markers.without(self.cues))

    name: ClassVar[str] = "margin"
    first: ClassVar[Role] = "large"
    roles: ClassVar[frozenset[Role]] = frozenset(("large", "small"))

    @classmethod
    def of(
        cls, cues: Iterable[str], *, stay: float, leave: float, markers: Iterable[str] = ()
    ) -> MarginPolicy:
        """From plain strings.

        Raises:
            UsageError: a cue is empty, the cues are one text, or the thresholds make no sense.
        """
        relay = RelayPolicy.of(cues, markers)
        return cls(relay.cues, stay, leave, relay.markers)

    @property
    def margins(self) -> frozenset[Role]:
        """The small model's, unless neither threshold can ever act."""
        return frozenset(("small",)) if self.leave > 0 or self.stay <= 1 else frozenset()

    def candidates(self, role: Role, kind: Kind) -> int:
        """With every token that the small model writes as a delegate."""
        return 2 if kind == "delegate" and role in self.margins else 0

    @property
    def relay(self) -> RelayPolicy:
        """What it is without thresholds."""
        return RelayPolicy(self.cues, self.markers, self.max_consecutive_delegations)

    def start(self, start: Start) -> MarginSession:
        """A fresh session."""
        return MarginSession(self, start)


class MarginSession(RelaySession):
    """One generation under `MarginPolicy`: what differs is the delegated segment."""

    def __init__(self, policy: MarginPolicy, start: Start) -> None:
        super().__init__(policy.relay, start)
        self._stay, self._leave = policy.stay, policy.leave
        self._margins: dict[int, float | None] = {}  # of the segment's tokens
        self._whole = -1  # the segment's last token that ends between characters
        self._over = False  # a sentence ended, and the next token decides who goes on

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins."""
        if after == "turn" and self._over:  # it stopped where its sentence did
            after = "handoff"
        super().begin(role, kind, stage, after)
        self._margins.clear()
        self._whole, self._over = -1, False

    def hints(self) -> tuple[str, ...]:
        """The cues for a leading large model; a delegate may go on past a sentence end."""
        return () if self._kind == "delegate" and self._stay <= 1 else super().hints()

    def feed(self, token: Token) -> Decision:
        """One token."""
        if self._kind != "delegate":
            return super().feed(token)
        margin, before = token.piece.margin, self._whole
        self._margins[token.index] = margin
        if token.whole:
            self._whole = token.index
        ended = self._over and before == token.index - 1
        if ended and not self._sure(margin):
            return HandOff(before, "lead", "sentence")
        if margin is not None and margin < self._leave:
            self._owes_sentence = self._owes_sentence or before < 0
            return HandOff(before, "lead", "margin")
        if ended:
            self._over = False
        return super().feed(token)  # a token that is discarded above is never read

    def _delegated(self, token: Token, reading: Reading) -> Decision:
        if not reading.end or self._stay > 1:
            return super()._delegated(token, reading)
        if reading.end == "here":
            self._over = True
            return STAY
        following = token.index - reading.held + 1  # the first token behind the sentence
        if not self._sure(self._margins.get(following)):
            return super()._delegated(token, reading)
        self._over = token.whole and self._reader.fresh  # another sentence, all in this token
        return STAY

    def _sure(self, margin: float | None) -> bool:
        return margin is not None and margin >= self._stay
