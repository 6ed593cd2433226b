"""The paper's policy: the large model leads, cues delegate the rest of a sentence to the small one.

Two-way segment switching with an answer stage (paper, section on intra-generation switching). Ours
are the word bounds, the real sentence ends, sentence-initial cues with a guard against the
"So-loop" (the reference skips them by `min_tokens=5`), and an end-of-turn of the small model that
is not trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from .._types import Kind, Piece, Role, Stage
from ..text.cues import LONGEST_OPENING, CueSet, bare
from ..text.reader import Reader, Reading
from .base import STAY, After, Decision, HandOff, Start, Stay, Token, several

_BREAKS = ("\n", "\n\n", "\n\n\n")
_ENDS = (
    *(f"{mark}{space}" for mark in (".", "!", "?", ".)", "!)", "?)") for space in _BREAKS),
    *("\n\n", "\n\n\n", ":\n\n", "。", "！", "？"),
)
"""Texts that end a sentence without a look at what follows."""


@dataclass(frozen=True, slots=True)
class RelayPolicy:
    """Delegates the rest of a sentence at each switch cue.

    Args:
        cues: the switch cues of a profile.
        markers: answer markers. Where there is no thinking and the profile wants the small model to
            answer, it takes over at the sentence after the first one. A cue is never a marker too.
        max_consecutive_delegations: large segments in a row that may hold nothing but the cue;
            then the large model writes a whole sentence.
    """

    cues: CueSet
    markers: CueSet = field(default_factory=lambda: CueSet(()))
    max_consecutive_delegations: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "markers", self.markers.without(self.cues))

    @property
    def hints(self) -> tuple[str, ...]:
        """The cues as tokens may write them."""
        return tuple(form for name in self.cues.names for form in (name, f" {name}"))

    name: ClassVar[str] = "relay"
    first: ClassVar[Role] = "large"
    roles: ClassVar[frozenset[Role]] = frozenset(("large", "small"))
    margins: ClassVar[frozenset[Role]] = frozenset()

    @classmethod
    def of(cls, cues: Iterable[str], markers: Iterable[str] = ()) -> RelayPolicy:
        """From plain strings.

        Raises:
            UsageError: a cue is empty, or the cues are one text.
        """
        return cls(CueSet(several("cues", cues)), CueSet(several("markers", markers)))

    def start(self, start: Start) -> RelaySession:
        """A fresh session."""
        return RelaySession(self, start)


class RelaySession:
    """One generation under `RelayPolicy`."""

    def __init__(self, policy: RelayPolicy, start: Start) -> None:
        self._policy = policy
        self._start = start
        self._hands_over_answer = not start.thinking and start.answer_role == "small"
        self._reader = self._new_reader()
        self._kind: Kind = "lead"
        self._role: Role = policy.first
        self._stage: Stage = "reasoning"
        self._cue_hints = policy.hints
        self._opening = ""  # the first characters of the current large segment
        self._bare = 0  # large segments in a row that held nothing but their cue
        self._owes_sentence = False  # no delegation before the large model ended a sentence
        self._answering = False  # an answer marker was seen

    def _new_reader(self) -> Reader:
        return Reader(self._policy.cues, self._policy.markers if self._hands_over_answer else None)

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins."""
        self._role, self._kind, self._stage = role, kind, stage
        if after == "stage":  # another text: its first sentence owes nothing to the last one
            self._reader = self._new_reader()
            self._owes_sentence = False
        self._reader.cut()
        self._opening = ""
        if role == "large" and self._bare >= self._policy.max_consecutive_delegations:
            self._bare = 0
            self._owes_sentence = True
        if after in ("turn", "loop"):
            self._owes_sentence = True

    def hints(self) -> tuple[str, ...]:
        """The cues for a leading large model that may delegate, sentence ends for a delegate."""
        if self._kind == "delegate":
            return _ENDS
        leads = self._role == "large" and self._relays(self._stage)
        return self._cue_hints if leads and not (self._owes_sentence or self._answering) else ()

    def feed(self, token: Token) -> Decision:
        """One token."""
        reading = self._reader.feed(token.text, token.whole)
        if self._kind == "delegate":
            return self._delegated(token, reading)
        if self._role == "small" or not self._relays(token.stage):
            return STAY
        return self._leading(token, reading)

    def _delegated(self, token: Token, reading: Reading) -> Decision:
        if reading.end == "here":
            return HandOff(token.index, "lead", "sentence")
        if reading.end == "before":
            self._reader.rewind()
            return HandOff(token.index - reading.held, "lead", "sentence")
        return Stay(reading.held)

    def _leading(self, token: Token, reading: Reading) -> Decision:
        if len(self._opening) < LONGEST_OPENING:
            self._opening += token.text
        if reading.end:
            self._owes_sentence = False
        if self._answering:
            return self._take_over(token, reading)
        if reading.marker is not None:
            self._answering = True
            return Stay(0 if reading.end else reading.held)
        if reading.cue is None or self._owes_sentence:
            return STAY
        self._bare = self._bare + 1 if bare(self._opening, reading.cue) else 0
        return HandOff(token.index, "delegate", "cue", reading.cue)

    def _take_over(self, token: Token, reading: Reading) -> Decision:
        """After an answer marker the small model takes over at the next sentence, for good."""
        if not reading.end or reading.sealed:
            return Stay(0 if reading.end else reading.held)
        kept = token.index
        if reading.end == "before":
            kept -= reading.held
            self._reader.rewind()
        return HandOff(kept, "lead", "answer")

    def _relays(self, stage: Stage) -> bool:
        return stage == "reasoning" or not self._start.thinking or self._answer_relays()

    def _answer_relays(self) -> bool:
        return self._start.answer_role == "relay"

    def probed(self, piece: Piece | None) -> Decision:
        """Never asked for."""
        return STAY

    def answer(self, on_duty: Role) -> Role:
        """The profile's choice; a relayed answer begins with the large model."""
        return "small" if self._start.answer_role == "small" else "large"
