"""Random delegation at a given share: what any cue selection has to beat."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from .._errors import UsageError
from .._types import Kind, Piece, Role, Stage
from ..text.reader import Reader, Reading
from .base import STAY, After, Decision, HandOff, Start, Stay, Token

_TYPICAL_SENTENCE = 20.0
"""Tokens of a sentence before any was seen."""


@dataclass(frozen=True, slots=True)
class RandomPolicy:
    """Delegates whole random sentences until the small model's share of the tokens is `share`.

    Args:
        share: target share of the small model, 0 to 1.

    The probability at each sentence end is the one that brings the expected share to the target
    with the next sentence, so the share is unbiased whatever the sentences' lengths; the draws come
    from the generation's seed.

    Raises:
        UsageError: `share` is not in [0, 1].
    """

    share: float

    name: ClassVar[str] = "random"
    first: ClassVar[Role] = "large"
    roles: ClassVar[frozenset[Role]] = frozenset(("large", "small"))
    margins: ClassVar[frozenset[Role]] = frozenset()

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise UsageError(f"share must be between 0 and 1, not {self.share}")

    def start(self, start: Start) -> RandomSession:
        """A fresh session."""
        return RandomSession(self.share, random.Random(start.seed))


class RandomSession:
    """One generation under `RandomPolicy`."""

    def __init__(self, share: float, generator: random.Random) -> None:
        self._share = share
        self._random = generator
        self._reader = Reader()
        self._role: Role = "large"
        self._tokens = {"large": 0, "small": 0}  # of ended segments
        self._segment = 0  # tokens of the current one
        self._sentences = 0

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins."""
        self._tokens[self._role] += self._segment
        self._segment = 0
        self._role = role
        if after == "stage":  # another text
            self._reader = Reader()
        self._reader.cut()

    def feed(self, token: Token) -> Decision:
        """One token."""
        reading = self._reader.feed(token.text, token.whole)
        self._segment = token.index + 1
        if not reading.end:
            return Stay(reading.held)
        kept = token.index if reading.end == "here" else token.index - reading.held
        self._sentences += 1
        if not self._switches(kept + 1, reading.sealed):
            return STAY
        return self._hand_off(kept, reading)

    def _switches(self, segment: int, sealed: bool) -> bool:
        """Whether the other role writes the next sentence."""
        small = self._tokens["small"] + (segment if self._role == "small" else 0)
        total = sum(self._tokens.values()) + segment
        sentence = total / self._sentences if self._sentences > 2 else _TYPICAL_SENTENCE
        debt = self._share * (total + sentence) - small
        delegates = not sealed and self._random.random() < debt / sentence
        return delegates == (self._role == "large")

    def _hand_off(self, kept: int, reading: Reading) -> HandOff:
        if reading.end == "before":
            self._reader.rewind()
        self._segment = kept + 1
        kind: Kind = "delegate" if self._role == "large" else "lead"
        return HandOff(kept, kind, "random")

    def probed(self, piece: Piece | None) -> Decision:
        """Never asked for."""
        return STAY

    def answer(self, on_duty: Role) -> Role:
        """The large model leads; sentences of the answer are drawn too."""
        return "large"
