"""Switch once: the large model reasons until a cue says that the rest is easy.

Cue groups name what announces the easy rest: the answer, a consolidation, a calculation. They are
matched in either case and can be replaced per domain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from .._errors import UsageError
from .._types import Kind, Piece, Role, Stage
from ..text.cues import CueSet
from ..text.reader import Reader
from .base import STAY, After, Decision, HandOff, Probe, Start, Token

CUE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "answer": (
        "answer:",
        "solution:",
        "result:",
        "therefore,",
        "thus,",
        "finally,",
        "here's the answer:",
    ),
    "consolidation": ("in conclusion", "to summarize", "simplifying", "therefore"),
    "calculation": ("{", "}", "="),
}
"""The default groups; `calculation` is off unless named."""

DEFAULT_GROUPS = ("answer", "consolidation")


def group_cues(
    groups: tuple[str, ...] = DEFAULT_GROUPS,
    known: Mapping[str, tuple[str, ...]] = CUE_GROUPS,
) -> CueSet:
    """The cues of the named groups, matched in either case.

    Raises:
        UsageError: a group is not among `known`.
    """
    unknown = [name for name in groups if name not in known]
    if unknown:
        raise UsageError(f"unknown cue group {unknown[0]!r}; there are {', '.join(known)}")
    return CueSet([cue for name in groups for cue in known[name]], ignore_case=True)


@dataclass(frozen=True, slots=True)
class OneShotPolicy:
    """Hands the generation to the small model for good at the first cue.

    Args:
        cues: what to look for, see `group_cues`.
        check_every: tokens between two looks at the text.
        window: characters of text that a look covers.
        switch_threshold: hand off only if a probe of the small model shows a next-token margin at
            least this high; 0 asks for no probe.
        repeat: whether a cue that was seen once may fire again.
        max_switches: 1, or 0 for a policy that never switches.

    Raises:
        UsageError: a value is out of range.
    """

    cues: CueSet = field(default_factory=group_cues)
    check_every: int = 1
    window: int = 100
    switch_threshold: float = 0.0
    repeat: bool = True
    max_switches: int = 1

    name: ClassVar[str] = "one-shot"
    first: ClassVar[Role] = "large"
    roles: ClassVar[frozenset[Role]] = frozenset(("large", "small"))

    def __post_init__(self) -> None:
        if self.check_every < 1 or self.window < 1:
            raise UsageError("check_every and window must be at least 1")
        if not 0.0 <= self.switch_threshold <= 1.0:
            raise UsageError("switch_threshold is a margin, between 0 and 1")
        if self.max_switches not in (0, 1):
            raise UsageError("one-shot switches at most once: max_switches is 0 or 1")

    @classmethod
    def classic(cls, cues: CueSet | None = None) -> OneShotPolicy:
        """A look every 10 tokens, behind a confidence gate of 0.8; a cue fires once only."""
        return cls(
            cues if cues is not None else group_cues(),
            check_every=10,
            window=100,
            switch_threshold=0.8,
            repeat=False,
        )

    @property
    def margins(self) -> frozenset[Role]:
        """The small model's, behind a confidence gate."""
        return frozenset(("small",)) if self.switch_threshold > 0 else frozenset()

    def start(self, start: Start) -> OneShotSession:
        """A fresh session."""
        return OneShotSession(self)


class OneShotSession:
    """One generation under `OneShotPolicy`."""

    def __init__(self, policy: OneShotPolicy) -> None:
        self._policy = policy
        self._reader = Reader(policy.cues)
        self._switches_left = policy.max_switches
        self._tokens = 0
        self._length = 0  # characters read
        self._found: deque[tuple[int, str]] = deque()  # where each cue not yet acted on ended
        self._spent: set[str] = set()
        self._asked: HandOff | None = None  # what a good probe would do

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins."""
        if after == "stage":  # another text
            self._reader = Reader(self._policy.cues)
            self._found.clear()

    def feed(self, token: Token) -> Decision:
        """One token."""
        if not self._switches_left:
            return STAY
        self._tokens += 1
        self._length += len(token.text)
        cue = self._reader.feed(token.text, token.whole).cue
        if cue is not None and cue not in self._spent:
            self._found.append((self._length, cue))
        if self._tokens % self._policy.check_every:
            return STAY
        return self._check(token)

    def _check(self, token: Token) -> Decision:
        seen = [cue for end, cue in self._found if self._length - end < self._policy.window]
        self._found.clear()
        if not self._policy.repeat:
            self._spent.update(seen)
        if not seen:
            return STAY
        hand_off = HandOff(token.index, "lead", "cue", seen[-1])
        if self._policy.switch_threshold > 0:
            self._asked = hand_off
            return Probe("small")
        self._switches_left -= 1
        return hand_off

    def probed(self, piece: Piece | None) -> Decision:
        """Hand off if the small model is sure of its next token; an unknown margin is not."""
        asked, self._asked = self._asked, None
        margin = piece.margin if piece is not None else None
        if asked is None or margin is None or margin < self._policy.switch_threshold:
            return STAY
        self._switches_left -= 1
        return asked

    def answer(self, on_duty: Role) -> Role:
        """Whoever is on duty stays."""
        return on_duty
