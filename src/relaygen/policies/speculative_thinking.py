"""Speculative Thinking: the small model leads, the large one writes what reflects or affirms.

Rules and numbers of arXiv:2504.12329 and its published configuration for 1.5B + 32B models. What
differs here: the help sentence that the original inserts before a recap is left out, because this
loop inserts no text of its own; and a second blank line within the words looked at starts a new
look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._errors import UsageError
from .._types import Kind, Piece, Role, Stage
from ..text.steps import Steps
from .base import STAY, After, Decision, HandOff, Start, Stay, Token

AFFIRMATION = ("yeah", "yes", "final answer", "confident")
REFLECTION = ("wait", "alternatively", "hold on", "another")
VERIFICATION = ("verify", "think again", "recap", "check")

_RECAP_GROWTH, _LONGEST_RECAP = 25, 200
_PATIENCE_GROWTH, _MOST_PATIENCE = 5, 30


@dataclass(frozen=True, slots=True)
class SpeculativeThinkingPolicy:
    """The small model leads; the large one takes over at paragraphs that reflect or affirm.

    A blank line of the small model is followed by up to `takeover` tokens that are not shown yet.
    If a word of the lists is among them, they are discarded and the large model writes `takeover`
    tokens in their place, `verification` more if a verification word is among those. Once
    `patience` of its passages were rather reflection than affirmation, the next blank line gives it
    a recap of `verification` tokens; recaps grow longer and rarer. Words are found as in the
    original: in either case, in other words too. The small model answers, by the same rules.

    Args:
        affirmation, reflection, verification: the word lists, in small letters.
        takeover: tokens looked at, and tokens of a passage.
        verification_tokens: more tokens of a passage that verifies, and tokens of the first recap.
        patience: reflecting passages before the first recap.

    Raises:
        UsageError: a number is below 1.
    """

    affirmation: tuple[str, ...] = AFFIRMATION
    reflection: tuple[str, ...] = REFLECTION
    verification: tuple[str, ...] = VERIFICATION
    takeover: int = 20
    verification_tokens: int = 125
    patience: int = 15

    name: ClassVar[str] = "speculative-thinking"
    first: ClassVar[Role] = "small"
    roles: ClassVar[frozenset[Role]] = frozenset(("large", "small"))
    margins: ClassVar[frozenset[Role]] = frozenset()

    def __post_init__(self) -> None:
        if min(self.takeover, self.verification_tokens, self.patience) < 1:
            raise UsageError("takeover, verification_tokens and patience must be at least 1")

    def mood(self, text: str) -> int:
        """1 where a text affirms, -1 where it reflects or verifies at least as often, else 0."""
        affirms = _count(text, self.affirmation)
        reflects = _count(text, self.reflection + self.verification)
        if affirms == reflects == 0:
            return 0
        return 1 if affirms > reflects else -1

    def start(self, start: Start) -> SpeculativeThinkingSession:
        """A fresh session."""
        return SpeculativeThinkingSession(self)


class SpeculativeThinkingSession:
    """One generation under `SpeculativeThinkingPolicy`."""

    def __init__(self, policy: SpeculativeThinkingPolicy) -> None:
        self._policy = policy
        self._steps = Steps()
        self._role: Role = policy.first
        self._blank: int | None = None  # the blank line's token, while we look at what follows
        self._seen = ""  # what follows it, or the large model's passage; in small letters
        self._left = 0  # tokens that the large model may still write
        self._judged = True  # its passage was judged
        self._reflections = 0
        self._patience, self._recap = policy.patience, policy.verification_tokens
        self._recaps = False  # the coming passage is a recap

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins."""
        self._role, self._blank, self._seen = role, None, ""
        recaps, self._recaps = self._recaps, False
        if after == "stage":  # another text
            self._steps = Steps()
        if role == "small":
            return
        if after == "handoff":  # what the small model wrote behind the blank line is discarded
            self._steps.rewind()
        self._judged = recaps
        self._left = self._recap if recaps else self._policy.takeover
        if recaps:
            self._reflections = 0
            self._recap = min(self._recap + _RECAP_GROWTH, _LONGEST_RECAP)
            self._patience = min(self._patience + _PATIENCE_GROWTH, _MOST_PATIENCE)

    def feed(self, token: Token) -> Decision:
        """One token."""
        ended = self._steps.feed(token.text, token.whole)
        if self._role == "large":
            return self._passage(token)
        if self._blank is not None:
            self._seen += token.text.lower()
            mood = self._policy.mood(self._seen)
            if mood:
                kept, self._blank = self._blank, None
                return HandOff(kept, "lead", "affirmation" if mood > 0 else "reflection")
        if ended:
            return self._look(token)
        if self._blank is None:
            return STAY
        held = token.index - self._blank
        if held >= self._policy.takeover:
            self._blank, held = None, 0
        return Stay(held)

    def _look(self, token: Token) -> Decision:
        """The small model wrote a blank line."""
        self._blank, self._seen = token.index, ""
        if self._reflections < self._patience:
            return STAY
        self._blank, self._recaps = None, True
        return HandOff(token.index, "lead", "recap")

    def _passage(self, token: Token) -> Decision:
        """One token of the large model's."""
        self._seen += token.text.lower()
        self._left -= 1
        if self._left > 0:
            return STAY
        if not self._judged:
            self._judged = True
            self._reflections += self._policy.mood(self._seen) < 0
            if _count(self._seen, self._policy.verification):
                self._left = self._policy.verification_tokens
                return STAY
        return HandOff(token.index, "lead", "written")

    def probed(self, piece: Piece | None) -> Decision:
        """Never asked for."""
        return STAY

    def answer(self, on_duty: Role) -> Role:
        """The small model leads the answer too."""
        return "small"


def _count(text: str, words: tuple[str, ...]) -> int:
    return sum(text.count(word) for word in words)
