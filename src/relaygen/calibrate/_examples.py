"""Traces as the report shows them: each token with its margin and what would be handed over."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..text.utf8 import Utf8

if TYPE_CHECKING:
    from ._effects import Observed

MOST_TOKENS = 600
_SHADES = 9


@dataclass(frozen=True, slots=True)
class Shown:
    """One token.

    Attributes:
        text: what it adds to the text.
        margin: the scorer's, or None.
        shade: 0 (certain, or unknown) to 9 (a coin flip).
        delegated: it would be the small model's.
        cue: the cue that hands over behind it, or "".
        other: the scorer's most probable token where it is another one; "" where it agrees.
    """

    text: str
    margin: float | None
    shade: int
    delegated: bool
    cue: str
    other: str


@dataclass(frozen=True, slots=True)
class Example:
    """A trace's beginning.

    Attributes:
        question: the user's words.
        tokens: as many as are shown.
        length: of the whole trace.
        handoffs: to the small model, in what is shown.
        share: of what is shown, that would be delegated.
    """

    question: str
    tokens: tuple[Shown, ...]
    length: int
    handoffs: int
    share: float


def delegations(one: Observed, cues: Collection[str]) -> tuple[tuple[int, int, str], ...]:
    """(first, end, cue) of what a relay with these cues would delegate of a trace, in order."""
    from ._effects import Table
    from ._predict import delegated

    table = Table(one)
    fired: dict[int, str] = {}
    for firing in table.firings:  # of those at one token the longest comes first
        if firing.name in cues:
            fired.setdefault(firing.token, firing.name)
    return tuple((run.first, run.end, fired[run.token]) for run in delegated(table, cues))


def examples(
    observed: Sequence[Observed], cues: Collection[str], *, count: int = 3
) -> tuple[Example, ...]:
    """The most typical traces: their delegated share is nearest to the median of all."""
    pieces: dict[int, bytes] = {}
    shares: list[tuple[float, int]] = []
    for number, one in enumerate(observed):
        pieces.update(zip(one.trace.ids, one.trace.pieces, strict=True))
        tokens = len(one.trace.ids)
        if tokens:
            delegated = sum(end - first for first, end, _ in delegations(one, cues))
            shares.append((delegated / tokens, number))
    some = sorted(share for share in shares if share[0] > 0.0) or sorted(shares)
    if not some:
        return ()
    middle = some[len(some) // 2][0]
    chosen: list[int] = []
    asked: set[str] = set()
    for _, number in sorted(some, key=lambda share: (abs(share[0] - middle), share[1])):
        question = observed[number].trace.question
        if question not in asked and len(chosen) < count:
            asked.add(question)
            chosen.append(number)
    return tuple(_example(observed[number], cues, pieces) for number in chosen)


def _example(one: Observed, cues: Collection[str], pieces: Mapping[int, bytes]) -> Example:
    stretches = [part for part in delegations(one, cues) if part[0] <= MOST_TOKENS]
    owned = {token for first, end, _ in stretches for token in range(first, end)}
    starts = {first - 1: name for first, _, name in stretches}
    decoder = Utf8()
    tokens = [
        Shown(
            decoder.feed(data),
            margin,
            shade(margin),
            number in owned,
            starts.get(number, ""),
            "" if top is None or top == id else visible(pieces.get(top), top),
        )
        for number, (id, data, margin, top) in enumerate(
            zip(
                one.trace.ids[:MOST_TOKENS],
                one.trace.pieces,
                one.scores.margins,
                one.scores.top,
                strict=False,
            )
        )
    ]
    shown = tuple(token for token in tokens if token.text)
    share = sum(token.delegated for token in tokens) / len(tokens) if tokens else 0.0
    return Example(
        one.trace.question, shown, len(one.trace.ids), sum(bool(t.cue) for t in tokens), share
    )


def shade(margin: float | None) -> int:
    """0 (certain, or unknown) to 9 (two candidates alike)."""
    return 0 if margin is None else min(_SHADES, max(0, int((1.0 - margin) * (_SHADES + 1))))


def visible(data: bytes | None, id: int) -> str:
    """A token for the reader: its text with white space made visible, or its number."""
    if data is None:
        return f"#{id}"
    text = data.decode("utf-8", "replace")
    return text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
