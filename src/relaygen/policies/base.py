"""The policy protocol: who writes next. Pure state machines, no I/O.

A `Policy` is configuration; `Policy.start` gives the `Session` that holds one generation's state.
The loop tells the session when a segment begins, feeds it one token at a time, and obeys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from .._errors import UsageError
from .._types import Kind, Piece, Role, Stage

After = Literal["start", "handoff", "turn", "marker", "limit", "failure", "loop", "stage"]
"""What ended the segment before: nothing, the session's own decision, the delegate's end-of-turn,
the delegate's end-of-thinking marker, the segment's token limit, an engine failure, the repetition
guard, or a change of stage."""


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of the current segment, as text.

    ``index`` counts the segment's pieces from 0. ``text`` is what this piece completed: it is empty
    while a character is incomplete, and ``whole`` tells whether the text ends between characters.
    """

    index: int
    text: str
    whole: bool
    piece: Piece
    stage: Stage


@dataclass(frozen=True, slots=True)
class Start:
    """What a session is told once: the seed and how this generation treats thinking.

    ``thinking`` False means that every token is stage ``answer`` and the policy relays in it.
    ``answer_role`` is the profile's wish for the answer stage.
    """

    seed: int
    thinking: bool
    answer_role: Literal["large", "small", "relay"]


@dataclass(frozen=True, slots=True)
class Stay:
    """Go on. The last ``held`` pieces may still be taken back, so they are not shown yet."""

    held: int = 0


@dataclass(frozen=True, slots=True)
class HandOff:
    """Keep through piece ``k`` of this segment; the other role goes on.

    ``why`` is one word for logs: ``cue``, ``sentence``, ``margin``, …; metrics know those of this
    package, and any other is ``other`` there.
    """

    k: int
    kind: Kind
    why: str
    cue: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask ``role`` for one token with its best candidates; the result goes to `probed`."""

    role: Role
    candidates: int = 2


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert the profile's marker of this name after the pieces so far."""

    marker: Literal["end_of_thinking"]


Decision = Stay | HandOff | Probe | Insert
STAY = Stay()


class Session(Protocol):
    """One generation's state."""

    def begin(self, role: Role, kind: Kind, stage: Stage, after: After) -> None:
        """A segment begins; the next token fed has index 0."""
        ...

    def feed(self, token: Token) -> Decision:
        """One more piece of the current segment."""
        ...

    def probed(self, piece: Piece | None) -> Decision:
        """The probe's token, or None where the probe failed. Stay or HandOff."""
        ...

    def answer(self, on_duty: Role) -> Role:
        """The thinking is over; who leads the answer?"""
        ...


@runtime_checkable
class Hinting(Protocol):
    """A session that can tell beforehand which tokens end the current segment."""

    def hints(self) -> tuple[str, ...]:
        """Texts at each of which, as one token, a hand-off is due at once; () for none.

        Hints save work and decide nothing: a stop at one of them is fed like any other token.
        """
        ...


@runtime_checkable
class Streaming(Protocol):
    """A policy that reads candidates with every token, not from probes alone."""

    def candidates(self, role: Role, kind: Kind) -> int:
        """How many candidates each token of such a segment comes with; 0 for none.

        The models should be in `Policy.margins` too: those are checked beforehand.
        """
        ...


def streamed_candidates(policy: Policy, role: Role, kind: Kind) -> int:
    """How many candidates a policy reads with every token of such a segment; most read none."""
    return policy.candidates(role, kind) if isinstance(policy, Streaming) else 0


@runtime_checkable
class Suppressing(Protocol):
    """A policy under which some texts are never written."""

    @property
    def suppressed(self) -> frozenset[str]:
        """Texts that no model may write as one token; longer ones stay."""
        ...


def suppressed(policy: Policy) -> tuple[str, ...]:
    """The texts that a policy suppresses, in order; most suppress none."""
    return tuple(sorted(policy.suppressed)) if isinstance(policy, Suppressing) else ()


@runtime_checkable
class Policy(Protocol):
    """Configuration of a policy; stateless and shareable."""

    @property
    def name(self) -> str:
        """The name on the command line and in reports."""
        ...

    @property
    def first(self) -> Role:
        """Who leads first."""
        ...

    @property
    def roles(self) -> frozenset[Role]:
        """The models it may use. With one only, its failure is the request's; nothing is fed."""
        ...

    @property
    def margins(self) -> frozenset[Role]:
        """The models whose margins it reads; they are checked before they are used."""
        ...

    def start(self, start: Start) -> Session:
        """A fresh session for one generation."""
        ...


def several(name: str, texts: Iterable[str]) -> Iterable[str]:
    """Texts as they are, but not one alone, which would be taken for its letters.

    Raises:
        UsageError: it is one.
    """
    if isinstance(texts, str):
        raise UsageError(f"{name} must be several texts, not one", hint=f"write [{texts!r}]")
    return texts
