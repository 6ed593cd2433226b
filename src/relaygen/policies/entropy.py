"""The small model leads; where it is uncertain of the next token, the large one writes.

By the token as in R-Stitch (arXiv:2507.17307, whose first versions look at the confidence), or by
the step as in GlimpRouter (arXiv:2601.05110 and its published code). Uncertainty is the entropy of
the most probable tokens, scaled to sum 1, in nats: GlimpRouter's measure, with its 20 candidates.
R-Stitch takes the whole vocabulary's, which engines do not tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from .._errors import UsageError
from .._types import Kind, Piece, Role, Stage
from ..text.steps import Steps
from .base import STAY, After, Decision, HandOff, Probe, Session, Start, Token

Unit = Literal["token", "step"]
UNITS: tuple[Unit, ...] = ("token", "step")

CANDIDATES = 20
"""As many as vLLM gives by default."""

STEP_THRESHOLD = 1.0
"""GlimpRouter's default, in nats."""


@dataclass(frozen=True, slots=True)
class EntropyPolicy:
    """The small model leads, and the large one writes where that is uncertain.

    Args:
        threshold: entropy of the small model's candidates for a token, in nats, from which it is
            uncertain. Nobody measured which is good for a pair: try some.
        unit: what an uncertain token decides. ``token``: it is discarded and the large model
            writes on, until it wrote a token of which it is certain itself; whoever is on duty
            leads the answer, which is written by the same rule. ``step``: the first token of each
            stretch between blank lines decides who writes the whole of it, and the large model
            answers.

    A token without known candidates decides nothing; a failed glimpse leaves the step to the large
    model.

    Raises:
        UsageError: `threshold` is not a positive number, or `unit` is neither.
    """

    threshold: float = STEP_THRESHOLD
    unit: Unit = "step"

    name: ClassVar[str] = "entropy"
    first: ClassVar[Role] = "small"
    roles: ClassVar[frozenset[Role]] = frozenset(("large", "small"))

    def __post_init__(self) -> None:
        if not (math.isfinite(self.threshold) and self.threshold > 0):
            raise UsageError(f"threshold must be a positive number, not {self.threshold}")
        if self.unit not in UNITS:
            raise UsageError(f"unit is 'token' or 'step', not {self.unit!r}")

    @property
    def margins(self) -> frozenset[Role]:
        """Whose candidates it reads: by the token, the large model's too."""
        return self.roles if self.unit == "token" else frozenset(("small",))

    def candidates(self, role: Role, kind: Kind) -> int:
        """With every token of the models that it reads."""
        return CANDIDATES if role in self.margins else 0

    def uncertain(self, piece: Piece) -> bool | None:
        """Whether its model was uncertain of this token; None where the engine did not tell."""
        entropy = piece.entropy
        return None if entropy is None else entropy >= self.threshold

    def start(self, start: Start) -> Session:
        """A fresh session."""
        return TokenSession(self) if self.unit == "token" else StepSession(self, start)


class TokenSession:
    """One generation by the token."""

    def __init__(self, policy: EntropyPolicy) -> None:
        self._uncertain = policy.uncertain
        self._role: Role = policy.first
        self._whole = -1  # the segment's last token that ends between characters

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins."""
        self._role, self._whole = role, -1

    def feed(self, token: Token) -> Decision:
        """One token; the small model's goes with all of its character."""
        before = self._whole
        if token.whole:
            self._whole = token.index
        uncertain = self._uncertain(token.piece)
        if self._role == "small":
            return HandOff(before, "lead", "entropy") if uncertain else STAY
        return HandOff(token.index, "lead", "certain") if uncertain is False else STAY

    def probed(self, piece: Piece | None) -> Decision:
        """Never asked for."""
        return STAY

    def answer(self, on_duty: Role) -> Role:
        """Whoever is on duty stays."""
        return on_duty


class StepSession:
    """One generation by the step."""

    def __init__(self, policy: EntropyPolicy, start: Start) -> None:
        self._uncertain = policy.uncertain
        self._thinking = start.thinking
        self._role: Role = policy.first
        self._steps = Steps()
        self._open = True  # who writes the coming step is not decided
        self._asked = -1  # the large model's token behind which the small one is asked

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins."""
        self._role = role
        if after == "stage":  # another text
            self._steps, self._open = Steps(), True
        if role == "large":
            self._open = False

    def feed(self, token: Token) -> Decision:
        """One token."""
        if self._thinking and token.stage == "answer":
            return STAY
        if self._open and self._begins(token):
            self._open = False
            if self._uncertain(token.piece):
                return HandOff(token.index - 1, "lead", "entropy")
        if not self._steps.feed(token.text, token.whole):
            return STAY
        if self._role == "large":
            self._asked = token.index
            return Probe("small", CANDIDATES)
        self._open = True
        return STAY

    @staticmethod
    def _begins(token: Token) -> bool:
        """Whether the token is more than white space."""
        return not token.whole or bool(token.text.strip())

    def probed(self, piece: Piece | None) -> Decision:
        """The small model writes the coming step if it is certain how to begin."""
        if piece is None or self._uncertain(piece) is not False:
            return STAY
        return HandOff(self._asked, "lead", "certain")

    def answer(self, on_duty: Role) -> Role:
        """The large model answers."""
        return "large"
