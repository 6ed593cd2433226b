"""Hints: token ids at which an engine may stop by itself because a hand-off is due there.

They only save work: the stream ends at the hand-off point, so that nothing beyond it is generated
and the connection lives on. Where such a stop turns out to be none, the rest of the segment is
asked for without hints, and the text is the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace

from ._types import Delta, SegmentRequest
from .engines.base import Engine

Stream = Callable[[SegmentRequest], AsyncGenerator[Delta, None]]


class HintIds:
    """Single-token ids of texts for one engine, asked once per text.

    Args:
        engine: whose tokenizer decides what is one token.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, int | None] = {}
        self._sets: dict[tuple[str, ...], tuple[int, ...]] = {}

    async def ids(self, texts: Iterable[str]) -> tuple[int, ...]:
        """The ids of those texts that are one token each, in rising order.

        Raises:
            EngineError: the engine does not answer.
        """
        wanted = tuple(texts)
        found = self._sets.get(wanted)
        if found is None:
            for text in wanted:
                if text not in self._known:
                    ids = await self._engine.tokenize(text)
                    self._known[text] = ids[0] if len(ids) == 1 else None
            found = tuple(sorted({id for text in wanted if (id := self._known[text]) is not None}))
            self._sets[wanted] = found
        return found


async def go_on_unhinted(
    stream: Stream, request: SegmentRequest, stopped: Callable[[], None]
) -> AsyncGenerator[Delta, None]:
    """The stream of a hinted request as if it had no hints.

    Asking for the delta behind a hinted stop says that there was no hand-off: the rest is requested
    without hints, and `stopped` is called. A reader who hands off closes the generator instead.

    Args:
        stream: makes an engine's stream.
        request: the hinted one.
        stopped: told of a stop that was no hand-off.

    Raises:
        EngineError: see `Engine.stream`.
    """
    ids = list(request.ids)
    last: Delta | None = None
    async with aclosing(stream(request)) as deltas:
        async for delta in deltas:
            ids += (piece.id for piece in delta.pieces if piece.id is not None)
            if delta.end != "hint":
                yield delta
            else:  # read to its end first, so that the connection can be used again
                last = delta
    if last is None:
        return
    yield replace(last, end=None)
    stopped()
    written = len(ids) - len(request.ids)
    if written >= request.max_tokens:
        yield Delta(end="length")
        return
    rest = replace(
        request,
        ids=tuple(ids),
        max_tokens=request.max_tokens - written,
        min_tokens=max(0, request.min_tokens - written),
        stop_ids=(),
    )
    async with aclosing(stream(rest)) as deltas:
        async for delta in deltas:
            yield delta
