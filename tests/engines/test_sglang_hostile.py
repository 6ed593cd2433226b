"""What an SGLang server may do to a stream. Nothing hangs, no token is lost or comes twice, and an
error is one line that says whether to try again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from relaygen._errors import (
    ContextLengthError,
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
)
from relaygen._types import Piece
from relaygen.engines._sglang import NativeChunks
from relaygen.engines.sglang import SglangEngine

from .fake_sglang import EVENTS, TURN, FakeSglang, sglang_playing, shape
from .replay import Replay, Reply, answer, asked, collect, data_in, ids_in, sse

pytestmark = pytest.mark.anyio
PROMPT = (9, 11, 10)
DONE = b"data: [DONE]\n\n"
BOTH = pytest.mark.parametrize("returns_ids", [True, False])
"""By ``/v1/completions``, and by ``/generate`` as of an older server."""

Event = dict[str, Any]
Change = Callable[[list[Event]], list[Any]]


def changed(fake: FakeSglang, change: Change, **fields: Any) -> dict[str, Any]:
    """Both streaming routes with other events: objects, or bytes as they are."""

    def route(play: Callable[[Any], Reply]) -> Callable[[Any], Reply]:
        def answered(body: Any) -> Reply:
            reply = play(body)
            if not body.get("stream"):
                return reply
            events = [json.loads(part[6:]) for part in reply.parts if part != DONE]
            return sse(*change(events), **fields)

        return answered

    return {"/v1/completions": route(fake.completions), "/generate": route(fake.generate)}


def with_end(*behind: Any, keep: int) -> Change:
    """The first events, and others behind them."""
    return lambda events: [*events[:keep], *behind, DONE]


async def read(engine: SglangEngine, **fields: Any) -> tuple[list[Piece], EngineError | None]:
    """What came of a stream, and how it failed."""
    pieces: list[Piece] = []
    try:
        async with aclosing(engine.stream(asked(PROMPT, **fields))) as deltas:
            async for delta in deltas:
                pieces += delta.pieces
    except EngineError as error:
        return pieces, error
    return pieces, None


async def failed(
    server: Replay, **fields: Any
) -> tuple[list[int | None], EngineReplyError | EngineUnreachableError]:
    """The ids that came before a failure."""
    engine = SglangEngine(server.url, role="small")
    pieces, error = await read(engine, **fields)
    await engine.aclose()
    assert isinstance(error, (EngineReplyError, EngineUnreachableError))
    assert str(error).startswith("small engine: ")
    assert "\n" not in str(error)
    return [piece.id for piece in pieces], error


# Streams that are cut.


@BOTH
@pytest.mark.parametrize("keep", [0, 1, 2, 3])
async def test_a_broken_connection(returns_ids: bool, keep: int) -> None:
    fake = FakeSglang([1, 2, 3, TURN], returns_ids)
    routes = changed(fake, lambda events: events[:keep], end="break")
    async with sglang_playing(fake, **routes) as server:
        ids, error = await failed(server)
        assert ids == [1, 2, 3][:keep]
        assert isinstance(error, EngineUnreachableError)
        assert error.retryable
        assert len(server.bodies("/abort_request")) == 1


@BOTH
@pytest.mark.parametrize("size", [1, 7, 64])
async def test_events_cut_anywhere(returns_ids: bool, size: int) -> None:
    fake = FakeSglang([6, 7, 1, 6, 8, TURN], returns_ids)

    def cut(events: list[Event]) -> list[bytes]:
        whole = b"".join(f"data: {json.dumps(each)}\r\n\r\n".encode() for each in events) + DONE
        return [whole[start : start + size] for start in range(0, len(whole), size)]

    async with sglang_playing(fake, **changed(fake, cut)) as server:
        deltas = await collect(SglangEngine(server.url), asked(PROMPT))
    assert ids_in(deltas) == [6, 7, 1, 6, 8]
    assert data_in(deltas) == " 🦄a 🦅".encode()


@BOTH
async def test_nothing_follows_the_last_token(returns_ids: bool) -> None:
    """The end is told although the stream stays open, long before anything times out."""
    fake = FakeSglang([1, 2, TURN], returns_ids)
    routes = changed(fake, lambda events: events[: 3 if returns_ids else None], end="hang")
    async with sglang_playing(fake, **routes) as server:
        engine = SglangEngine(server.url, timeout=3600.0)
        deltas = await asyncio.wait_for(collect(engine, asked(PROMPT)), 60)
        assert (ids_in(deltas), deltas[-1].end) == ([1, 2], "turn")
        await engine.aclose()


async def test_a_restart() -> None:
    fake = FakeSglang([1, 2, TURN])
    routes = changed(fake, lambda events: events[:1], end="break")
    async with sglang_playing(fake, **routes) as server:
        engine = SglangEngine(server.url)
        pieces, error = await read(engine)
        assert [piece.id for piece in pieces] == [1]
        assert isinstance(error, EngineUnreachableError)
        port = int(server.url.rpartition(":")[2])
    pieces, error = await read(engine)
    assert pieces == []
    assert error is not None
    assert error.retryable
    assert "cannot be reached" in str(error)
    async with sglang_playing(fake) as server:
        again = await asyncio.start_server(server.serve, "127.0.0.1", port)
        async with again:
            assert ids_in(await collect(engine, asked(PROMPT))) == [1, 2]
            await engine.aclose()


# What says little or too much.


@BOTH
@pytest.mark.parametrize("bare", [False, True])
async def test_events_without_tokens(returns_ids: bool, bare: bool) -> None:
    """Before, between and behind; a text alone may come without the list of ids."""
    fake = FakeSglang([1, 2, TURN], returns_ids, incremental=True)

    def idle(event: Event) -> Event:
        event = json.loads(json.dumps(event))
        if returns_ids:
            event["choices"][0] |= {"token_ids": [], "finish_reason": None}
            return event
        del event["output_ids"]
        if not bare:
            event["output_ids"] = []
        event["meta_info"]["finish_reason"] = None
        return event

    def change(events: list[Event]) -> list[Any]:
        first = idle(events[0])
        if not returns_ids:
            first["meta_info"]["completion_tokens"] = 0
        return [first, b": ping\n\n", events[0], idle(events[0]), events[1], b"\n", *events[2:]]

    async with sglang_playing(fake, **changed(fake, change)) as server:
        deltas = await collect(SglangEngine(server.url), asked(PROMPT))
    assert (ids_in(deltas), deltas[-1].end) == ([1, 2], "turn")


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("burst", [1, 2, 3, 9])
@BOTH
async def test_characters_split_over_events(
    returns_ids: bool, burst: int, incremental: bool
) -> None:
    fake = FakeSglang([1, 6, 7, 6, 8, 2, TURN], returns_ids, incremental, burst=burst)
    async with sglang_playing(fake) as server:
        deltas = await collect(SglangEngine(server.url), asked(PROMPT))
    assert ids_in(deltas) == [1, 6, 7, 6, 8, 2]
    assert data_in(deltas) == "a 🦄 🦅 So".encode()


def none_of_them(meta: Event) -> None:
    del meta["output_top_logprobs"]


def too_few(meta: Event) -> None:
    meta["output_top_logprobs"] = meta["output_top_logprobs"][1:]


def no_rows(meta: Event) -> None:
    meta["output_top_logprobs"] = [None] * meta["completion_tokens"]


@pytest.mark.parametrize("lose", [none_of_them, too_few, no_rows])
async def test_candidates_that_are_missing(lose: Callable[[Event], None]) -> None:
    fake = FakeSglang([1, 2, 3, TURN], burst=2)

    def change(events: list[Event]) -> list[Any]:
        for event in events:
            lose(event["meta_info"])
        return [*events, DONE]

    async with sglang_playing(fake, **changed(fake, change)) as server:
        pieces, error = await read(SglangEngine(server.url), top=2)
    assert error is None
    assert [piece.id for piece in pieces] == [1, 2, 3]
    assert {piece.margin for piece in pieces} == {None}


async def test_a_candidate_without_a_number() -> None:
    fake = FakeSglang([1, TURN])

    def change(events: list[Event]) -> list[Any]:
        events[0]["meta_info"]["output_top_logprobs"][0][1][0] = None
        return [*events, DONE]

    async with sglang_playing(fake, **changed(fake, change)) as server:
        pieces, error = await read(SglangEngine(server.url), top=2)
    assert error is None
    assert [[id for id, _ in piece.top] for piece in pieces] == [[1]]


@BOTH
async def test_ids_that_are_missing(returns_ids: bool) -> None:
    fake = FakeSglang([1, 2, TURN], returns_ids)

    def change(events: list[Event]) -> list[Any]:
        (events[1]["choices"][0] if returns_ids else events[1]).pop(
            "token_ids" if returns_ids else "output_ids"
        )
        return [*events, DONE]

    async with sglang_playing(fake, **changed(fake, change)) as server:
        ids, error = await failed(server)
    assert ids == [1]
    assert not error.retryable
    assert "SGLang" in error.hint


@BOTH
async def test_a_useless_event_does_not_take_the_tokens_before_it_along(returns_ids: bool) -> None:
    fake = FakeSglang([1, 2, TURN], returns_ids)

    def change(events: list[Event]) -> list[bytes]:
        useless = {"choices": [3]} if returns_ids else {"meta_info": 3}
        return [b"".join(sse(*events[:2], useless).parts)]  # in one packet

    async with sglang_playing(fake, **changed(fake, change)) as server:
        ids, error = await failed(server)
    assert ids == [1, 2]
    assert not error.retryable


async def test_the_prompt_comes_back_cut_otherwise() -> None:
    fake = FakeSglang([1, 2, TURN])

    def change(events: list[Event]) -> list[Any]:
        events[0]["choices"][0]["prompt_token_ids"] = [1000] * 2000
        return [*events, DONE]

    async with sglang_playing(fake, **changed(fake, change)) as server:
        assert ids_in(await collect(SglangEngine(server.url), asked(PROMPT))) == [1, 2]


def native(ids: list[int], count: int, tops: list[Any]) -> Event:
    event: Event = shape("generate_event")
    event["output_ids"] = ids
    event["meta_info"] |= {"completion_tokens": count, "output_top_logprobs": tops}
    return event


def row(id: int) -> list[list[Any]]:
    return [[-0.1, id, None]]


@pytest.mark.parametrize(
    "second",
    [
        native([1, 2, 3], 3, [row(1), row(2), row(3)]),
        native([2, 3], 3, [row(2), row(3)]),
        native([2, 3], 3, [row(1), row(2), row(3)]),  # before the candidates were cut as well
        native([1, 2, 3, 4], 3, [row(1), row(2), row(3), row(4)]),  # a list that has grown since
    ],
)
def test_lists_of_all_tokens_or_of_the_new_ones(second: Event) -> None:
    chunks = NativeChunks()
    found = [chunks.chunk(each)["choices"][0] for each in (native([1], 1, [row(1)]), second)]
    assert [each["token_ids"] for each in found] == [[1], [2, 3]]
    tops = [list(each) for each in found[1]["logprobs"]["top_logprobs"]]
    assert tops == [["token_id:2"], ["token_id:3"]]


@pytest.mark.parametrize("second", [native([2], 3, []), native([1], 0, [])])
def test_lists_that_hold_neither(second: Event) -> None:
    chunks = NativeChunks("large")
    chunks.chunk(native([1], 1, []))
    with pytest.raises(EngineReplyError, match=r"^large engine: an event without output_ids"):
        chunks.chunk(second)


# The server gives up.


@BOTH
async def test_somebody_aborts_the_request(returns_ids: bool) -> None:
    """Without a status, as after a request to abort all of them."""
    fake = FakeSglang([1, 2, 3, TURN], returns_ids)

    def change(events: list[Event]) -> list[Any]:
        if returns_ids:
            events[2]["choices"][0] |= {"token_ids": [], "finish_reason": "abort"}
        else:
            events[2] = {
                "text": "a",
                "output_ids": [2],
                "meta_info": {"id": "RID", "finish_reason": shape("finish_abort")},
            }
        return [*events[:3], DONE]

    async with sglang_playing(fake, **changed(fake, change)) as server:
        ids, error = await failed(server)
    assert ids == [1, 2]
    assert isinstance(error, EngineReplyError)
    assert (error.retryable, error.refused) == (True, False)
    assert "abort" in str(error).lower()


@BOTH
@pytest.mark.parametrize("flat", [False, True])
async def test_an_error_behind_tokens_is_the_servers_own(returns_ids: bool, flat: bool) -> None:
    """SGLang calls every failure of a stream a bad request."""
    fake = FakeSglang([1, 2, 3, TURN], returns_ids)
    event = shape("error_event")
    routes = changed(fake, with_end(event["error"] if flat else event, keep=2))
    async with sglang_playing(fake, **routes) as server:
        ids, error = await failed(server)
    assert ids == [1, 2]
    assert isinstance(error, EngineReplyError)
    assert "lost the scheduler" in str(error)
    assert (error.retryable, error.refused) == (True, False)


@BOTH
async def test_an_error_before_tokens_refuses_the_request(returns_ids: bool) -> None:
    fake = FakeSglang([1, TURN], returns_ids)
    routes = changed(fake, with_end(shape("error_event"), keep=0))
    async with sglang_playing(fake, **routes) as server:
        ids, error = await failed(server)
    assert ids == []
    assert isinstance(error, EngineReplyError)
    assert (error.retryable, error.refused) == (False, True)


async def test_the_scheduler_finds_the_prompt_too_long() -> None:
    event = shape("generate_event")
    event["meta_info"]["finish_reason"] = shape("finish_abort") | {
        "message": "Input length (600 tokens) exceeds the maximum allowed length (506 tokens).",
        "status_code": 400,
    }
    routes = changed(FakeSglang(), with_end(event, keep=0))
    async with sglang_playing(FakeSglang(), **routes) as server:
        with pytest.raises(ContextLengthError, match="small engine: Input length") as caught:
            await collect(SglangEngine(server.url, role="small"), asked(PROMPT, top=1))
    assert "--context-length" in caught.value.hint


@BOTH
async def test_the_model_fails(returns_ids: bool) -> None:
    """SGLang tells numbers that are none as if a stop string had matched."""
    fake = FakeSglang([1, TURN], returns_ids)

    def change(events: list[Event]) -> list[Any]:
        if returns_ids:
            events[1]["choices"][0]["matched_stop"] = "NaN happened"
        else:
            events[1]["meta_info"]["finish_reason"]["matched"] = "NaN happened"
        return [*events, DONE]

    async with sglang_playing(fake, **changed(fake, change)) as server:
        ids, error = await failed(server)
    assert ids == [1]
    assert "'NaN happened'" in str(error)


@pytest.mark.parametrize("status", [408, 429, 503])
@BOTH
async def test_a_busy_server(returns_ids: bool, status: int) -> None:
    fake = FakeSglang(returns_ids=returns_ids)
    refusal = answer(shape("error_flat") | {"message": "queue is full", "code": status}, status)

    def route(body: Any) -> Reply:
        return refusal if body.get("stream") else fake.completions(body)

    async with sglang_playing(fake, **dict.fromkeys(EVENTS, route)) as server:
        ids, error = await failed(server)
    assert ids == []
    assert error.retryable
    assert "queue is full" in str(error)


async def test_an_adapter_is_no_model() -> None:
    models = shape("models")
    models["data"].append(shape("lora"))
    async with sglang_playing(**{"/v1/models": answer(models)}) as server:
        assert (await SglangEngine(server.url).info()).model == "tiny"
        with pytest.raises(EngineReplyError, match="poet is a LoRA adapter") as caught:
            await SglangEngine(server.url, model="poet").info()
    assert "merged" in caught.value.hint
