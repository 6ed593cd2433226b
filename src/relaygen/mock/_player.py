"""Where in the trace a request stands: what its prompt holds behind the prompt proper."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ._template import NO_THINKING
from ._trace import Trace
from ._vocabulary import START, Vocabulary

PAD = 10  # the newline that is written where the turn may not end
_REMEMBERED = 256
_OPENINGS = (b"<think>\n", b"<think>")


class OffTraceError(Exception):
    """What stands behind the prompt is no beginning of the trace."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands.

    Attributes:
        position: the trace's tokens that are written, in whole or in part.
        rest: ids of what is missing of the last of them.
        prompt: tokens before the trace.
    """

    position: int
    rest: tuple[int, ...]
    prompt: int


class Player:
    """Plays a trace from where a request's ids leave it.

    The trace begins behind the last opening of an assistant turn. A prompt without one is known
    from its tokenization or from the first request with it.

    Args:
        trace: what is said.
        vocabulary: in which ids.
        match: see `MockConfig`.
        plain: behind the opening comes the trace's answer only.
    """

    def __init__(
        self,
        trace: Trace,
        vocabulary: Vocabulary,
        match: Literal["ids", "text"],
        *,
        plain: bool = False,
    ) -> None:
        self.ids = [vocabulary.trace_id(token) for token in trace.tokens]
        self._trace, self._data = trace, trace.data
        self._vocabulary = vocabulary
        self._match = match
        self._plain = plain
        self._head = vocabulary.head("assistant")
        self._closed = vocabulary.encode(NO_THINKING, special=True)
        self._prompts: OrderedDict[bytes, None] = OrderedDict()

    def remember(self, ids: Sequence[int]) -> None:
        """A prompt was tokenized; what is sent later may begin with it."""
        if self._behind_head(ids) is None:
            self._remember(self._vocabulary.decode(ids))

    def following(self, place: Place) -> Iterator[int]:
        """The ids from there on, without an end-of-turn."""
        yield from place.rest
        ids = self.ids
        for position in range(place.position, len(ids)):
            yield ids[position]

    def locate(self, ids: Sequence[int], *, text: bool = False) -> Place:
        """Where these ids stand; with `text` they were made from a text, so only it counts.

        Raises:
            OffTraceError: nowhere.
        """
        text = text or self._match == "text"
        start = self._behind_head(ids)
        if start is None:
            return self._locate_raw(ids, text)
        begin = self._answer() if self._plain else 0
        closed = len(self._closed)
        if ids[start : start + closed] == self._closed and self.ids[:closed] != self._closed:
            start += closed
            begin = self._answer()
        written = ids[start:]
        if text:
            return self._by_text(self._vocabulary.decode(written), begin, start)
        return self._by_ids(written, begin, start)

    def _behind_head(self, ids: Sequence[int]) -> int | None:
        found, at = None, -1
        try:
            while True:
                at = ids.index(START, at + 1)
                if ids[at : at + len(self._head)] == self._head:
                    found = at + len(self._head)
        except ValueError:
            return found

    def _answer(self) -> int:
        """Where the answer begins, in bytes."""
        closing = self._data.find(b"</think>") if self._trace.thinking else -1
        if closing < 0:
            return 0
        behind = self._data[closing + len(b"</think>") :]
        return len(self._data) - len(behind.lstrip(b"\n"))

    def _by_ids(self, written: Sequence[int], begin: int, prompt: int) -> Place:
        place = self._place(begin, prompt)
        if place.rest:  # the answer begins inside a token
            return self._by_text(self._vocabulary.decode(written), begin, prompt)
        first = place.position
        expected = self.ids[first : first + len(written)]
        expected += [PAD] * (len(written) - len(expected))
        if written == expected:
            return Place(min(first + len(written), len(self.ids)), (), prompt)
        at = next(n for n, (a, b) in enumerate(zip(written, expected, strict=True)) if a != b)
        raise OffTraceError(
            f"the ids sent are not the prompt and a beginning of the trace: token {at} behind the "
            f"prompt is {written[at]} {self._vocabulary.data(written[at])!r}, "
            f"not {expected[at]} {self._vocabulary.data(expected[at])!r}"
        )

    def _by_text(self, written: bytes, begin: int, prompt: int) -> Place:
        expected = self._data[begin:]
        if expected.startswith(written):
            return self._place(begin + len(written), prompt)
        if written.startswith(expected) and not written[len(expected) :].strip(b"\n"):
            return Place(len(self.ids), (), prompt)
        at = _common(written, expected)
        raise OffTraceError(
            "the text sent is not the prompt and a beginning of the trace: behind "
            f"{written[max(0, at - 20) : at]!r} comes {written[at : at + 20]!r}, "
            f"not {expected[at : at + 20]!r}"
        )

    def _place(self, offset: int, prompt: int) -> Place:
        starts = self._trace.starts
        index = bisect_right(starts, offset) - 1
        if starts[index] == offset:
            return Place(index, (), prompt)
        rest = self._trace.tokens[index][offset - starts[index] :]
        return Place(index + 1, tuple(self._vocabulary.encode(rest)), prompt)

    def _locate_raw(self, ids: Sequence[int], text: bool) -> Place:
        data = self._vocabulary.decode(ids)
        known = max((p for p in self._prompts if data.startswith(p)), key=len, default=None)
        if known is not None and len(data) > len(known) and data[len(known)] != self._data[0]:
            known = None  # another prompt that begins with this one
        if known is None:
            known = self._remember(data)
        self._prompts.move_to_end(known)
        prompt = self._tokens_in(ids, len(known))
        if text:
            return self._by_text(data[len(known) :], 0, prompt)
        return self._by_ids(ids[prompt:], 0, prompt)

    def _tokens_in(self, ids: Sequence[int], size: int) -> int:
        """How many ids make up the first `size` bytes."""
        total = 0
        for count, id in enumerate(ids):
            if total >= size:
                return count
            total += len(self._vocabulary.data(id))
        return len(ids)

    def _remember(self, data: bytes) -> bytes:
        """What of it is prompt: an open thinking tag at the end belongs to the trace."""
        if self._trace.thinking:
            for opening in _OPENINGS:
                if data.endswith(opening) and self._data.startswith(opening):
                    data = data[: -len(opening)]
                    break
        self._prompts[data] = None
        self._prompts.move_to_end(data)
        while len(self._prompts) > _REMEMBERED:
            self._prompts.popitem(last=False)
        return data


def _common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    length = min(len(one), len(other))
    return next((n for n in range(length) if one[n] != other[n]), length)
