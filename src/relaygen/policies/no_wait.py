"""NoWait: the large model alone, kept from the words with which it doubts itself.

Words of arXiv:2506.08343, which bans every token that holds one. Here each word is banned in the
forms below where the vocabulary has them as one token; what is written in several tokens stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._errors import UsageError
from .._types import Role
from .base import Start, several
from .single import Alone

WORDS = (
    *("wait", "alternatively", "hmm", "but", "however", "alternative", "another", "check"),
    *("double-check", "oh", "maybe", "verify", "other", "again", "now", "ah", "any"),
)

_FRONTS = ("", " ", ".")


@dataclass(frozen=True, slots=True)
class NoWaitPolicy:
    """The large model alone, never writing the words; in the answer neither.

    Args:
        words: in any case; they are suppressed in small letters, capitalized and in capitals,
            bare, behind a space and behind a full stop.

    Raises:
        UsageError: there is no word, one is empty, or the words are one text.
    """

    words: tuple[str, ...] = WORDS

    name: ClassVar[str] = "no-wait"
    first: ClassVar[Role] = "large"
    roles: ClassVar[frozenset[Role]] = frozenset(("large",))
    margins: ClassVar[frozenset[Role]] = frozenset()

    def __post_init__(self) -> None:
        if not several("words", self.words) or not all(word.strip() for word in self.words):
            raise UsageError("words must hold at least one word, and no empty one")

    @property
    def suppressed(self) -> frozenset[str]:
        """The words as tokens may write them."""
        bare = (word.strip().lower() for word in self.words)
        forms = {form for word in bare for form in (word, word.capitalize(), word.upper())}
        return frozenset(front + form for front in _FRONTS for form in forms)

    def start(self, start: Start) -> Alone:
        """A fresh session."""
        return Alone()
