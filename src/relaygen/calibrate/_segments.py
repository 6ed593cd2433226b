"""What each candidate cue would delegate in a trace, by the detectors of the run time.

A cue is looked at as if it alone were listed: the large model leads, the cue fires at the token
that completes it, and the rest of its sentence is delegated, at most `max_segment_tokens`. The
rules are those of `relaygen.policies.relay` and the loop, and so is the code that reads the text.
The guard of the policy against cues in a row (`max_consecutive_delegations`) is left out: it looks
at what was delegated before, while every sentence is wanted here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .._task import Thinking
from .._types import Piece
from ..text.cues import CueSet
from ..text.reader import Reader
from ..text.scanner import Scanner
from ..text.stages import Marker, Phase, StageDetector
from ..text.utf8 import Utf8
from ._records import Trace

MAX_SEGMENT_TOKENS = 128
"""The loop's own default (`Limits.max_segment_tokens`), in tokens."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A cue fires.

    Attributes:
        name: of the cue.
        token: index in the trace of the token behind which the small model would go on. It is the
            one that completes the cue, or the next one that ends a character.
        first: the first token that would be delegated, ``token + 1``.
        end: one behind the last token that would be delegated.
        longest: no longer candidate is completed by the same token.
    """

    name: str
    token: int
    first: int
    end: int
    longest: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """Tokens ``start`` to ``end - 1`` of a trace.

    Attributes:
        start: the first token; white space behind the sentence before counts to this one.
        end: one behind the last token.
        firings: what would be delegated from here, by `Firing.token`. A firing belongs to the
            sentence of its `first` token, since a token may complete a cue and end a sentence (the
            next one is delegated then). A cue fires a second time in one sentence where a segment
            reached its limit. A segment may go on behind `end` where its cue ended in a full stop
            that is no sentence end.
        repeats: the same for a cue inside the segment that it delegates itself: it fires only where
            that segment is not delegated, or handed back before it.
    """

    start: int
    end: int
    firings: tuple[Firing, ...]
    repeats: tuple[Firing, ...] = ()


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of the relayed stage, as the policy is fed it."""

    index: int
    text: str
    whole: bool
    settled: bool  # the stage detector has released all that it received: limits are looked at


class _Every(CueSet):
    """Notes every cue that alone would match, where a `CueSet` finds the longest."""

    __slots__ = ("_alone", "found")

    def __init__(self, cues: Iterable[str]) -> None:
        super().__init__(cues)
        self._alone: dict[str, list[CueSet]] = {}
        for name in self.names:
            self._alone.setdefault(_last(name), []).append(CueSet((name,)))
        self.found: set[str] = set()

    def match(self, scanner: Scanner, after: str, *, anywhere: bool = False) -> str | None:
        """The longest, as ever."""
        for cue in self._alone.get(_last(scanner.tail), ()):
            name = cue.match(scanner, after, anywhere=anywhere)
            if name is not None:
                self.found.add(name)
        return super().match(scanner, after, anywhere=anywhere)


def _last(text: str) -> str:
    return text[-1:].replace("’", "'")


def sentences(
    trace: Trace,
    candidates: Sequence[str],
    thinking: Thinking | None,
    *,
    max_segment_tokens: int = MAX_SEGMENT_TOKENS,
) -> tuple[Sentence, ...]:
    """The sentences of the relayed stage, in order and without gaps, with what fires in them.

    Args:
        trace: a generation of the large model.
        candidates: cues.
        thinking: None: everything is relayed. Else the thinking, from its opening tag (or from the
            start, where the prompt has it) to its closing tag; everything where neither is there.
        max_segment_tokens: of one delegated segment.

    Raises:
        UsageError: a candidate is empty.
    """
    tokens, start = _relayed(trace, thinking)
    if not tokens:
        return ()
    matches = _matches(tokens, candidates)
    bounds, ends = _read(tokens, matches, max_segment_tokens)
    starts = [start, *(tokens[at].index for at in bounds if at < len(tokens))]
    stops = [*starts[1:], tokens[-1].index + 1]
    by_sentence = [_split(each, stops) for each in _firings(tokens, matches, ends)]
    return tuple(map(Sentence, starts, stops, *by_sentence))


def _split(firings: Sequence[Firing], stops: Sequence[int]) -> Iterator[tuple[Firing, ...]]:
    """Those of each sentence."""
    position = 0
    for end in stops:
        held = position
        while position < len(firings) and firings[position].first < end:
            position += 1
        yield tuple(firings[held:position])


def _relayed(trace: Trace, thinking: Thinking | None) -> tuple[list[_Token], int]:
    """What the policy is fed in the relayed stage, and the first token behind the opening tag."""
    opening, closing, phase = _markers(trace, thinking)
    detector = StageDetector(opening, closing, phase)
    utf8 = Utf8()
    received: list[tuple[str, bool]] = []
    tokens: list[_Token] = []
    start = fed = 0

    def release(count: int) -> None:
        nonlocal fed
        for index in range(fed, fed + count):
            tokens.append(_Token(index, *received[index], index == fed + count - 1))
        fed += count

    for index, (id, data) in enumerate(zip(trace.ids, trace.pieces, strict=True)):
        text = utf8.feed(data)
        received.append((text, utf8.whole))
        found = detector.feed(text, Piece(id, data))
        release(found.released)
        if found.marker == "open":
            start = fed = index + 1
        elif found.marker == "close":
            return tokens, start
    release(detector.flush().released)
    return tokens, start


def _markers(trace: Trace, thinking: Thinking | None) -> tuple[Marker, Marker, Phase]:
    """The tags as this trace has them, by id where one token is the tag."""
    if thinking is None:
        return Marker(""), Marker(""), "answer"
    tags = (thinking.opening, thinking.closing)
    ids = {data: id for id, data in zip(trace.ids, trace.pieces, strict=True)}
    single = any(tag.encode() in ids for tag in tags)  # then both are one token of the vocabulary
    opening, closing = (Marker(tag, ids.get(tag.encode(), -1 if single else None)) for tag in tags)
    text = trace.text
    if text.lstrip().startswith(thinking.opening):
        return opening, closing, "unopened"
    return opening, closing, "reasoning" if thinking.closing in text else "answer"


def _matches(tokens: Sequence[_Token], candidates: Sequence[str]) -> dict[int, dict[str, bool]]:
    """By position: the cues that this token completes, and whether each is the longest there."""
    cues = _Every(candidates)
    reader = Reader(cues)
    found: dict[int, dict[str, bool]] = {}
    for position, token in enumerate(tokens):
        longest = reader.feed(token.text, token.whole).cue
        if cues.found:
            found[position] = {name: name == longest for name in sorted(cues.found)}
            cues.found.clear()
    return found


def _read(
    tokens: Sequence[_Token], matches: Iterable[int], limit: int
) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """Positions at which sentences end; for each match the first and the end of its segment."""
    reader = Reader()
    bounds: list[int] = []
    ends: dict[int, tuple[int, int]] = {}
    waiting: list[int] = []  # matches whose token does not end a character
    fired = frozenset(matches)
    ended = False
    for position, token in enumerate(tokens):
        reading = reader.feed(token.text, token.whole)
        if reading.end == "before":
            bounds.append(position + 1 - reading.held)
        ended |= reading.end == "here"
        if ended and token.whole:
            bounds.append(position + 1)
            ended = False
        if position in fired:
            waiting.append(position)
        if waiting and token.whole:
            end = _delegated(copy.deepcopy(reader), tokens, position + 1, limit)
            ends.update((match, (position + 1, end)) for match in waiting)
            waiting = []
    return bounds, ends


def _delegated(reader: Reader, tokens: Sequence[_Token], first: int, limit: int) -> int:
    """One behind the last token of the segment that begins at `first`."""
    reader.cut()
    ended = False
    for position in range(first, len(tokens)):
        token = tokens[position]
        reading = reader.feed(token.text, token.whole)
        if reading.end == "before" and not ended:
            return position + 1 - reading.held
        ended |= reading.end == "here"
        full = position + 1 - first >= limit and token.settled
        if (ended or full) and token.whole:
            return position + 1
    return len(tokens)


def _firings(
    tokens: Sequence[_Token],
    matches: dict[int, dict[str, bool]],
    ends: dict[int, tuple[int, int]],
) -> tuple[list[Firing], list[Firing]]:
    """What fires, and what would but for the segment that the same cue delegates before it.

    Nothing fires where nothing is left to delegate.
    """
    until: dict[str, int] = {}
    found: list[Firing] = []
    repeats: list[Firing] = []
    for position, names in matches.items():
        if position not in ends:
            continue
        first, end = ends[position]
        if first >= end:
            continue
        for name, longest in names.items():
            token, last = tokens[first - 1].index, tokens[end - 1].index
            firing = Firing(name, token, token + 1, last + 1, longest)
            if position < until.get(name, 0):
                repeats.append(firing)
                continue
            until[name] = end
            found.append(firing)
    found.sort(key=lambda firing: firing.token)
    repeats.sort(key=lambda firing: firing.token)
    return found, repeats
