"""Hints: token ids at which an engine may stop by itself because a hand-off is due there.

They only save work: the stream ends at the hand-off point, so that nothing beyond it is generated
and the connection lives on. Where such a stop turns out to be none, the rest of the segment is
asked for without hints, and the text is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace

from ._errors import EngineError
from ._types import Delta, SegmentRequest
from .engines._per_loop import PerLoop
from .engines.base import Engine

_AT_ONCE = 16
"""Texts that an engine is asked for at a time: there are a hundred and more of a profile."""

Stream = Callable[[SegmentRequest], AsyncGenerator[Delta, None]]


class HintIds:
    """Single-token ids of texts for one engine, asked once per text, whoever wants them.

    Args:
        engine: whose tokenizer decides what is one token.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, int | None] = {}
        self._sets: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._asked: PerLoop[dict[tuple[str, ...], asyncio.Future[None]]] = PerLoop(dict)

    async def ids(self, texts: Iterable[str]) -> tuple[int, ...]:
        """The ids of those texts that are one token each, in rising order.

        Raises:
            EngineError: the engine does not answer.
        """
        wanted, asked = tuple(texts), self._asked.get()
        while wanted not in self._sets:
            if wanted in asked:
                other = asked[wanted]
                await asyncio.wait({other})
                if not other.cancelled():  # else whoever asked gave up
                    other.result()
                continue
            mine = asked[wanted] = asyncio.get_running_loop().create_future()
            try:
                self._sets[wanted] = await self._learn(wanted)
                mine.set_result(None)
            except EngineError as error:
                mine.set_exception(error)
                mine.exception()  # it is seen to even where nobody waits
                raise
            finally:
                del asked[wanted]
                mine.cancel()
        return self._sets[wanted]

    async def _learn(self, wanted: tuple[str, ...]) -> tuple[int, ...]:
        """Ask for the first one alone, for an adapter may learn from it what holds for all."""
        texts = [text for text in dict.fromkeys(wanted) if text not in self._known]
        while texts:
            size = _AT_ONCE if self._known else 1
            part, texts = texts[:size], texts[size:]
            answers = await asyncio.gather(
                *map(self._engine.tokenize, part), return_exceptions=True
            )
            for text, ids in zip(part, answers, strict=True):
                if isinstance(ids, BaseException):
                    raise ids
                self._known[text] = ids[0] if len(ids) == 1 else None
        return tuple(sorted({id for text in wanted if (id := self._known[text]) is not None}))


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
