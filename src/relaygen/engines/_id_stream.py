"""Deltas from the event stream of a completion with token ids."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from .._errors import EngineError, EngineReplyError
from .._types import Delta, End, Piece
from ._events import Events
from ._openai import IdReader
from ._replies import taken

Event = dict[str, Any]


async def read_deltas(
    events: Events,
    reader: IdReader,
    *,
    cut: bool,
    chunk: Callable[[Event], Event] | None = None,
    role: str = "",
) -> AsyncGenerator[Delta, None]:
    """Read a stream to its end, with what follows the last token; closing it breaks it off.

    Args:
        events: the stream.
        reader: makes the pieces.
        cut: fewer tokens were asked of the server than were wanted, for lack of context.
        chunk: makes a chunk of OpenAI's form with vLLM's fields from an event.
        role: for error messages.

    Raises:
        EngineUnreachableError: reset or stalled.
        EngineReplyError: an event that makes no sense, or a stream without its last chunk.
    """
    pieces: list[Piece] = []
    told = False
    try:
        while batch := await events.read():
            pieces = []
            try:
                await _read(reader, map(chunk, batch) if chunk else batch, pieces)
            except EngineError:
                if pieces:  # they came before the failure
                    yield Delta(tuple(pieces))
                raise
            if reader.finished:  # the last tokens come with the end: nothing is left to abort
                await _usage(events, reader, chunk)
                break
            if pieces and not told and reader.cached is not None:
                told = True
                yield Delta(tuple(pieces), cached=reader.cached, evaluated=reader.evaluated)
            elif pieces:
                yield Delta(tuple(pieces))
    except EngineReplyError as error:
        if reader.begun:
            taken(error)
        raise
    finally:
        events.close()
    if not reader.finished:
        raise EngineReplyError(
            "the stream stopped without its last chunk", role=role, retryable=True
        )
    end: End = "turn" if reader.turn else "hint" if reader.hint else "length"
    if end == "length" and cut:
        end = "context"
    yield Delta(
        tuple(pieces),
        end,
        cached=None if told else reader.cached,
        evaluated=None if told else reader.evaluated,
        drafted=reader.drafted,
        accepted=reader.accepted,
    )


async def _usage(events: Events, reader: IdReader, chunk: Callable[[Event], Event] | None) -> None:
    """What follows the last tokens; nothing of it is needed."""
    events.hasten()
    with contextlib.suppress(EngineError):
        while batch := await events.read():
            await _read(reader, map(chunk, batch) if chunk else batch, [])
        await events.drain()


async def _read(reader: IdReader, batch: Iterable[Event], found: list[Piece]) -> None:
    """Add the pieces of some chunks."""
    for chunk in batch:
        piece = reader.quick(chunk)
        if piece is not None:
            found.append(piece)
        else:
            found += await reader.read(chunk)
