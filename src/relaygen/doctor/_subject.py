"""One engine under examination: short requests, and what they show."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from .._checks import FILLER, LETTERS, SLOW_S, refused
from .._errors import EngineReplyError
from .._types import Conversation, EngineInfo, Message, Prompt, Sampling, SegmentRequest
from ..engines._margins import margins_are_raw
from ..engines.base import Engine
from ._report import Rollback, Speed

_GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0)
_GROWTH = 48
"""Tokens by which a text grows where reading is measured: about one long delegated segment."""
_WRITTEN = 8
_AGAIN = 3
"""How often a text is asked about again at most, where only the time tells of a prefix cache."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One request's answer.

    Attributes:
        first_s, whole_s: seconds to the first token, and to the end.
        decode_ms: milliseconds per token, see `_decode_ms`; None before two tokens.
        tokens: how many came.
        ids: of the tokens; empty where the engine hides them.
        text: of the tokens.
        cached, evaluated: prompt tokens; None where hidden.
        drafted: whether tokens were guessed.
    """

    first_s: float
    whole_s: float
    decode_ms: float | None
    tokens: int
    ids: tuple[int, ...]
    text: str
    cached: int | None
    evaluated: int | None
    drafted: bool


async def heard(engine: Engine, request: SegmentRequest) -> Heard:
    """Ask and listen to the end.

    Raises:
        EngineError: the engine fails.
    """
    began = time.perf_counter()
    first = last = 0.0
    sizes: list[int] = []
    ids: list[int] = []
    data = b""
    cached = evaluated = None
    drafted = False
    async with aclosing(engine.stream(request)) as deltas:
        async for delta in deltas:
            if delta.pieces:
                last = time.perf_counter() - began
                first = first or last
                sizes.append(len(delta.pieces))
                ids += [piece.id for piece in delta.pieces if piece.id is not None]
                data += b"".join(piece.data for piece in delta.pieces)
            cached = delta.cached if delta.cached is not None else cached
            evaluated = delta.evaluated if delta.evaluated is not None else evaluated
            drafted = drafted or bool(delta.drafted)
    whole = time.perf_counter() - began
    return Heard(
        first or whole,
        whole,
        _decode_ms(sizes, first, last),
        sum(sizes),
        tuple(ids),
        data.decode(errors="replace"),
        cached,
        evaluated,
        drafted,
    )


def _decode_ms(sizes: Sequence[int], first: float, last: float) -> float | None:
    """Of the tokens behind the first chunk; where all came in one, of the whole wait.

    Args:
        sizes: tokens of each chunk.
        first, last: seconds to the first and to the last chunk.
    """
    later = sum(sizes[1:])
    if later:
        return 1000.0 * (last - first) / later
    return 1000.0 * last / sizes[0] if sizes and sizes[0] > 1 else None


def held_back(one: Heard, many: Sequence[Heard]) -> float | None:
    """Milliseconds per token where a stream is kept until its end; None where it is not.

    The first of many tokens comes then about as late as the last one.

    Args:
        one: a request of the same prompt for one token.
        many: for many.
    """
    whole = statistics.median(each.whole_s for each in many)
    first = statistics.median(each.first_s for each in many)
    longer = whole - one.whole_s
    tokens = statistics.median(each.tokens for each in many) - one.tokens
    if longer <= SLOW_S or whole - first > longer / 4.0 or tokens < 1:
        return None
    return 1000.0 * longer / tokens


class Subject:
    """An engine and a text of its own, which only grows.

    Args:
        engine: what is examined.
        info: what it says of itself.
        tokens: length of the text to begin with; at most half of the engine's context.

    Attributes:
        chats: the engine refused the text as it is, so it is a user's message since.
    """

    def __init__(self, engine: Engine, info: EngineInfo, *, tokens: int) -> None:
        self._engine, self._info = engine, info
        self._tokens = min(tokens, info.context // 2)
        self._growth = min(_GROWTH, max(1, info.context // 16))
        self._key = uuid.uuid4().hex
        self._ids: tuple[int, ...] = ()
        self._text = ""
        self._rereads = False
        self.chats = False

    @property
    def size(self) -> int:
        """Tokens of the text; about, where the engine hides them."""
        return len(self._text) // LETTERS if self._info.text_only else len(self._ids)

    async def _heard(self, tokens: int, *, of: int | None = None) -> Heard:
        """Ask for so many tokens more; `of` cuts the text to so many tokens before."""
        hidden = self._info.text_only
        request = SegmentRequest(
            () if hidden else self._ids[:of],
            tokens,
            _GREEDY,
            self._key,
            text=self._text[: None if of is None else of * LETTERS] if hidden else None,
            min_tokens=tokens,
        )
        return await heard(self._engine, request)

    async def _filling(self, name: str, tokens: int) -> str:
        """So many tokens or some more that begin as nothing before did."""
        size = len(FILLER) // LETTERS
        if not self._info.text_only:
            size = len(await self._engine.tokenize(FILLER))
        return f"{name}: " + FILLER * (2 + tokens // max(1, size))

    async def prefix(self) -> tuple[Heard, Heard]:
        """The same new text twice; the second time a prefix cache has it.

        Where the engine hides its counts and the second time is no faster, it is asked about some
        times more, and the fastest counts. Where the engine refuses it as it is, it is a user's
        message in the engine's own template.

        Raises:
            EngineError: the engine fails.
        """
        text = await self._filling(self._key, self._tokens)
        try:
            prompt = await self._engine.render(Conversation((), raw=text))
            self._ids = prompt.ids[: self._tokens]
            self._text = prompt.text[: self._tokens * LETTERS]
            first = await self._heard(1)
        except EngineReplyError as error:
            if not refused(error):
                raise
            self.chats = True
            prompt = await self._engine.render(Conversation((Message("user", text),)))
            self._ids, self._text = prompt.ids, prompt.text
            first = await self._heard(1)
        second = await self._heard(1)
        if second.evaluated is not None:
            self._rereads = 2 * second.evaluated > self.size
            return first, second
        for _ in range(_AGAIN - 1):  # a busy machine may look like no cache
            if not _as_slow(first, second):
                break
            second = min(second, await self._heard(1), key=lambda each: each.first_s)
        self._rereads = _as_slow(first, second)
        return first, second

    async def _grow(self) -> None:
        more = " " + await self._filling(uuid.uuid4().hex, self._growth)
        if self._info.text_only:
            self._text += more[: self._growth * LETTERS]
        else:
            self._ids += (await self._engine.tokenize(more))[: self._growth]

    async def speed(self, rounds: int, decode_ms: float) -> Speed:
        """How long it reads, with `prefix` done before.

        The text grows and is asked about, and is asked about again as it is: what the first took
        longer was reading; what the second took beyond one decode step, any request takes. Without
        a prefix cache both read everything, and a short beginning of the text is the second.

        Args:
            rounds: how often; medians count.
            decode_ms: of a token, see `decoding`.

        Raises:
            EngineError: the engine fails.
        """
        read: list[float] = []
        waited: list[float] = []
        for _ in range(rounds):
            await self._grow()
            grown = await self._heard(1)
            again = await self._heard(1, of=self._growth if self._rereads else None)
            most = self.size - self._growth if self._rereads else self._growth
            more = (grown.evaluated or 0) - (again.evaluated or 0)
            each = max(0.0, 1000.0 * (grown.first_s - again.first_s) / (more if more > 0 else most))
            read.append(each)
            mine = self._growth if again.evaluated is None else again.evaluated
            waited.append(1000.0 * again.first_s - (each * mine if self._rereads else 0.0))
        request = max(0.0, statistics.median(waited) - decode_ms)
        return Speed(decode_ms, statistics.median(read), request, self.size, self._rereads)

    async def rollback(self) -> Rollback:
        """Write on, extend; drop the half of it and extend again; with `prefix` done before.

        Raises:
            EngineError: the engine fails.
        """
        if self._info.text_only:
            return Rollback("unknown", None, None, self.size)
        self._ids += (await self._heard(_WRITTEN)).ids
        extended = await self._heard(_WRITTEN)
        self._ids += extended.ids[: len(extended.ids) // 2]
        dropped = await self._heard(1)
        counts = extended.evaluated, dropped.evaluated
        cost = _cost(*counts, self.size) if len(extended.ids) > 1 else "unknown"
        return Rollback(cost, *counts, self.size)

    async def decoding(self, prompt: Prompt, tokens: int, rounds: int) -> list[Heard]:
        """The same short generation a few times.

        Raises:
            EngineError: the engine fails.
        """
        key = uuid.uuid4().hex
        hidden = self._info.text_only
        request = SegmentRequest(
            () if hidden else prompt.ids,
            tokens,
            _GREEDY,
            key,
            text=prompt.text if hidden else None,
            min_tokens=tokens,
        )
        try:
            return [await heard(self._engine, request) for _ in range(rounds)]
        finally:
            await self._engine.release(key)

    async def margins(self, ids: Sequence[int]) -> bool | None:
        """See `margins_are_raw`; None too where tokens are drafted or hidden.

        Raises:
            EngineError: the engine fails.
        """
        if self._info.drafts or self._info.text_only:
            return None
        key = uuid.uuid4().hex
        try:
            return await margins_are_raw(self._engine, ids, key)
        finally:
            await self._engine.release(key)

    async def release(self) -> None:
        """The engine may forget the text."""
        await self._engine.release(self._key)


def _as_slow(first: Heard, second: Heard) -> bool:
    """Whether a text that was read took as long when it was asked about again."""
    return SLOW_S < first.first_s <= 2.0 * second.first_s


def _cost(
    extended: int | None, dropped: int | None, size: int
) -> Literal["free", "costly", "unknown"]:
    """Half of the text is more than any server's cache block, and a costly roll-back reads all."""
    if extended is None or dropped is None or extended > size / 2:
        return "unknown"
    return "costly" if dropped - extended > size / 2 else "free"
