"""From scored traces to what each cue shows. Pure.

The effect of a cue in one trace is the mean margin of the tokens it would delegate, minus what the
same trace shows at the same places of sentences where the cue does not fire. So neither an easy
question nor a place that is easy in every sentence looks like an effect of the cue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._records import Scores, Trace
from ._segments import Sentence

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Observed:
    """One trace, what a scorer says of each of its tokens, and its sentences with their cues."""

    trace: Trace
    scores: Scores
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class CueStats:
    """What the traces show of one cue, or of a set of cues.

    Attributes:
        name: the cue.
        occurrences: segments that it would delegate.
        traces: traces with such a segment.
        tokens: tokens in those segments.
        known: of those, tokens with a known margin.
        margin: their mean margin; None where none is known.
        agreement: share of the tokens where the scorer's most probable token is the trace's; None
            where the scorer names none.
        differences: per trace, the segments' mean margin minus that of matched places; nan where
            the trace has no segment or no matched place.
    """

    name: str
    occurrences: int
    traces: int
    tokens: int
    known: int
    margin: float | None
    agreement: float | None
    differences: Floats = field(compare=False)


class Run(NamedTuple):
    """Tokens ``first`` to ``end`` - 1 are delegated, because of a cue that `token` completes."""

    token: int
    first: int
    end: int


class _Sums(NamedTuple):
    segments: int
    tokens: int
    known: int
    margin: float
    named: int
    agreed: int
    difference: float  # nan where nothing matches


_NOTHING = _Sums(0, 0, 0, 0.0, 0, 0, float("nan"))

MINING_FOLD = 0
"""Candidates are mined on the traces of this fold, and tested on the others."""


class Table:
    """One trace's margins by sentence and by place in the sentence, added up once for all cues.

    Attributes:
        margins: before each token of the trace; nan where it is not known.
        sentences: of the relayed stage, with what fires in them.
        firings: all that may fire, repeats included, by token, the longest cue first.
        places, inside: each token's offset in its sentence; whether it has one and a known margin.
    """

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        length = len(observed.trace.ids)
        margins = np.array(
            [np.nan if value is None else value for value in observed.scores.margins[:length]]
        )
        self.margins = np.full(length, np.nan)
        self.margins[: margins.size] = margins
        top = observed.scores.top[:length]
        self._named = np.zeros(length, np.int64)
        self._named[: len(top)] = [value is not None for value in top]
        self._agreed = np.zeros(length, np.int64)
        self._agreed[: len(top)] = [a == b for a, b in zip(top, observed.trace.ids, strict=False)]
        self.sentences = observed.sentences
        self._starts = [sentence.start for sentence in self.sentences]
        firings = (f for sentence in self.sentences for f in (*sentence.firings, *sentence.repeats))
        self.firings = tuple(sorted(firings, key=lambda firing: (firing.token, -len(firing.name))))
        self.places = np.zeros(length, np.int64)  # offset from the sentence's start
        inside = np.zeros(length, np.bool_)
        for sentence in self.sentences:
            inside[sentence.start : sentence.end] = True
            self.places[sentence.start : sentence.end] = np.arange(sentence.end - sentence.start)
        self.inside = inside & ~np.isnan(self.margins)
        self._width = int(self.places.max(initial=0)) + 1
        self._sums, self._counts = self._by_place(np.flatnonzero(inside))

    def _by_place(self, tokens: Ints) -> tuple[Floats, Ints]:
        """(sum, number) of the known margins at each place in the sentence."""
        known = tokens[~np.isnan(self.margins[tokens])]
        places = self.places[known]
        return (
            np.bincount(places, self.margins[known], self._width).astype(np.float64),
            np.bincount(places, minlength=self._width).astype(np.int64),
        )

    def sums(self, delegated: Sequence[Run]) -> _Sums:
        """What the delegated runs add up to, and how they differ from matched places."""
        tokens = _spans((run.first, run.end) for run in delegated)
        known = tokens[~np.isnan(self.margins[tokens])]
        return _Sums(
            len(delegated),
            tokens.size,
            known.size,
            float(self.margins[known].sum()),
            int(self._named[tokens].sum()),
            int(self._agreed[tokens].sum()),
            self._difference(delegated, known),
        )

    def sentence_end(self, token: int) -> int:
        """One behind the last token of the sentence that is written from `token` on.

        That is the one it is in; the next one, where only white space is left behind a full stop:
        for a role that begins there the sentence is over.
        """
        number = bisect_right(self._starts, token) - 1
        if number < 0:
            return token
        pieces, end = self.observed.trace.pieces, self.sentences[number].end
        stopped = token > 0 and pieces[token - 1].endswith((b".", b"!", b"?"))
        over = stopped and not b"".join(pieces[token:end]).strip()
        return self.sentences[min(number + over, len(self.sentences) - 1)].end

    def text(self, first: int, end: int, most: int) -> str:
        """What tokens ``first`` to ``end`` - 1 say, at most so many characters of it."""
        found = bytearray()
        for piece in self.observed.trace.pieces[first:end]:
            found += piece
            if len(found) >= 4 * most:  # bytes of the longest characters
                break
        return found.decode(errors="replace")[:most]

    def _difference(self, delegated: Sequence[Run], known: Ints) -> float:
        """Every delegated token minus the mean at its place in sentences without the cue.

        Where no such sentence reaches that place, the two places next to it stand in; where they
        are missing too, the token is left out.
        """
        own = _spans(self._sentences_of(delegated))
        own_sums, own_counts = self._by_place(own)
        counts = self._counts - own_counts
        sums = np.where(counts > 0, self._sums - own_sums, 0.0)
        beside = counts == 0
        near_sums, near_counts = _neighbours(sums), _neighbours(counts)
        sums = np.where(beside, near_sums, sums)
        counts = np.where(beside, near_counts, counts)
        places = self.places[known]
        matched = counts[places] > 0
        known, places = known[matched], places[matched]
        if not known.size:
            return float("nan")
        return float(np.mean(self.margins[known] - sums[places] / counts[places]))

    def _sentences_of(self, delegated: Sequence[Run]) -> set[tuple[int, int]]:
        """Start and end of every sentence that has a delegated token."""
        touched = set()
        for run in delegated:
            number = max(0, bisect_right(self._starts, run.first) - 1)
            while number < len(self._starts) and self._starts[number] < run.end:
                touched.add((self.sentences[number].start, self.sentences[number].end))
                number += 1
        return touched


def _spans(spans: Iterable[tuple[int, int]]) -> Ints:
    """The tokens of all spans."""
    parts = [np.arange(first, end) for first, end in spans]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _neighbours(values: NDArray[np.generic]) -> Floats:
    """At each place, what the places just before and after it hold together."""
    padded = np.pad(values.astype(np.float64), 1)
    return np.asarray(padded[:-2] + padded[2:], np.float64)


def tables(observed: Iterable[Observed]) -> list[Table]:
    """A table per trace, to be made once."""
    return [Table(each) for each in observed]


def names(observed: Iterable[Observed]) -> tuple[str, ...]:
    """Every cue that fires anywhere, sorted."""
    return tuple(sorted({f.name for each in observed for s in each.sentences for f in s.firings}))


def stats_of_each(
    made: Sequence[Table], cues: Sequence[str], mined: Collection[str] = ()
) -> list[CueStats]:
    """What the traces show of each cue as if it alone were used, in the order given.

    Traces of `MINING_FOLD` say nothing of `mined` cues, since those were found there.
    """
    sums: dict[str, list[_Sums]] = {cue: [_NOTHING] * len(made) for cue in cues}
    for row, table in enumerate(made):
        hidden = mined if table.observed.trace.fold == MINING_FOLD else ()
        delegated: dict[str, list[Run]] = {}
        for sentence in table.sentences:
            for firing in sentence.firings:
                run = Run(firing.token, firing.first, firing.end)
                delegated.setdefault(firing.name, []).append(run)
        for cue in delegated.keys() & sums.keys() - set(hidden):
            sums[cue][row] = table.sums(delegated[cue])
    return [_stats(cue, sums[cue]) for cue in cues]


def stats_of_runs(name: str, made: Sequence[Table], delegated: Sequence[Sequence[Run]]) -> CueStats:
    """What the traces show of a set of cues used together: its runs, a sequence per trace."""
    pairs = zip(made, delegated, strict=True)
    return _stats(name, [table.sums(each) for table, each in pairs])


def _stats(name: str, parts: Sequence[_Sums]) -> CueStats:
    known, named = sum(part.known for part in parts), sum(part.named for part in parts)
    return CueStats(
        name,
        sum(part.segments for part in parts),
        sum(part.segments > 0 for part in parts),
        sum(part.tokens for part in parts),
        known,
        sum(part.margin for part in parts) / known if known else None,
        sum(part.agreed for part in parts) / named if named else None,
        np.array([part.difference for part in parts], np.float64),
    )


def overall_margin(made: Iterable[Table]) -> float | None:
    """Mean of all known margins of the relayed stage, cue or no cue; None where none is known."""
    parts = [table.margins[table.inside] for table in made]
    values = np.concatenate(parts) if parts else np.zeros(0)
    return float(values.mean()) if values.size else None
