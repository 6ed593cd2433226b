"""Drive a policy without the loop: two perfect models that both write the same script."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Literal

from relaygen._types import Kind, Piece, Role, Stage, other
from relaygen.policies import HandOff, Policy, Probe, Session, Start, Token
from relaygen.policies.base import After, Decision
from relaygen.text.utf8 import Utf8

_WORDS = re.compile(r" ?\w+| ?[^\w\s]|\s")


def words(text: str) -> list[str]:
    """Tokens like those of real vocabularies: words carry their space in front."""
    return _WORDS.findall(text)


def plan(
    thinking: bool = True,
    answer_role: Literal["large", "small", "relay"] = "small",
    seed: int = 0,
) -> Start:
    return Start(seed, thinking, answer_role)


def feed(
    session: Session,
    tokens: Sequence[str | bytes],
    *,
    stage: Stage = "reasoning",
    first: int = 0,
    margins: Sequence[float | None] | None = None,
) -> list[Decision]:
    """The decisions on each token; `first` is the index of the first one in its segment."""
    utf8, decisions = Utf8(), []
    for index, part in enumerate(tokens, first):
        data = part.encode() if isinstance(part, str) else part
        text = utf8.feed(data)
        margin = margins[index - first] if margins is not None else None
        token = Token(index, text, utf8.whole, sure(data, margin), stage)
        decisions.append(session.feed(token))
    return decisions


def begun(
    policy: Policy,
    role: Role = "large",
    kind: Kind = "lead",
    *,
    start: Start | None = None,
    stage: Stage = "reasoning",
    after: After = "start",
) -> Session:
    """A session in its first segment."""
    session = policy.start(start if start is not None else plan())
    session.begin(role, kind, stage, after)
    return session


def sure(data: bytes, margin: float | None) -> Piece:
    """A token with that margin; None: the engine gave only one candidate."""
    if margin is None:
        return Piece(1, data, ((1, 0.0),))
    second = (1 - margin) / 2
    worst = math.log(second) if second else -math.inf
    return Piece(1, data, ((1, math.log((1 + margin) / 2)), (2, worst)))


def candidates(margin: float | None) -> Piece:
    """A probe's token."""
    return sure(b"a", margin)


@dataclass(frozen=True)
class Segment:
    role: Role
    kind: Kind
    text: str
    size: int
    why: str = ""
    """Why it ended."""
    cue: str = ""


def play(
    policy: Policy,
    script: Sequence[str | bytes],
    *,
    start: Start | None = None,
    groups: Iterator[int] | None = None,
    margin: Callable[[int], float | None] = lambda place: None,
    streamed: bool = False,
) -> list[Segment]:
    """Play the script to its end.

    `groups` are the sizes of the deltas that the engines send: behind a hand-off the rest of one
    is discarded and written again by the other role. `margin` is what a probe at a place finds, and
    with `streamed` what the token there comes with.
    """
    start = start if start is not None else plan()
    groups = groups if groups is not None else repeat(1)
    data = [part.encode() if isinstance(part, str) else part for part in script]
    stage: Stage = "reasoning" if start.thinking else "answer"
    session = policy.start(start)
    segments: list[Segment] = []
    role: Role = policy.first
    kind: Kind = "lead"
    after: After = "start"
    place = 0
    while True:
        session.begin(role, kind, stage, after)
        handed = _segment(session, data, place, stage, groups, margin, streamed)
        end = place + handed.k + 1 if handed is not None else len(data)
        text = b"".join(data[place:end]).decode(errors="replace")
        why, cue = (handed.why, handed.cue) if handed is not None else ("", "")
        segments.append(Segment(role, kind, text, end - place, why, cue))
        if handed is None:
            return segments
        place, role, kind, after = end, other(role), handed.kind, "handoff"


def _segment(
    session: Session,
    data: Sequence[bytes],
    place: int,
    stage: Stage,
    groups: Iterator[int],
    margin: Callable[[int], float | None],
    streamed: bool,
) -> HandOff | None:
    utf8, index = Utf8(), 0
    while place + index < len(data):
        for part in data[place + index :][: next(groups)]:
            text = utf8.feed(part)
            piece = sure(part, margin(place + index) if streamed else None)
            decision = session.feed(Token(index, text, utf8.whole, piece, stage))
            if isinstance(decision, Probe):
                decision = session.probed(candidates(margin(place + index)))
            if isinstance(decision, HandOff):
                assert -1 <= decision.k <= index
                return decision
            index += 1
    return None


def written(segments: Sequence[Segment]) -> list[tuple[Role, str]]:
    """Who wrote what."""
    return [(segment.role, segment.text) for segment in segments]
