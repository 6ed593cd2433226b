"""Lost ids: what llama-server leaves out of a stream, with and without the vocabulary at hand."""

from __future__ import annotations

from typing import Any

import pytest

from relaygen._errors import EngineReplyError
from relaygen._types import Delta
from relaygen.engines._pieces import ids_of
from relaygen.engines._vocabulary import NORMAL, Vocabulary
from relaygen.engines._wire import Wire
from relaygen.engines.llama_server import LlamaServerEngine
from relaygen.text.utf8 import Utf8

from .replay import (
    Replay,
    Reply,
    answer,
    asked,
    collect,
    data_in,
    ids_in,
    load,
    playing,
    recorded,
    recorded_vocabulary,
    sse,
)

pytestmark = pytest.mark.anyio
VOCABULARY = recorded_vocabulary()
BYTES = {id: VOCABULARY.data(id) for id in range(len(VOCABULARY)) if VOCABULARY.data(id)}
A = 64


def detokenize(body: Any) -> Reply:
    data = b"".join(b"a" if id == A else BYTES[id] for id in body["tokens"])
    return answer({"content": data.decode(errors="replace")})


def tokenize(known: dict[str, list[int]]) -> Any:
    return lambda body: answer({"tokens": known.get(body["content"], [A])})


def chunks(*parts: tuple[str, list[int], int], why: str = "limit") -> Reply:
    events = [{"content": text, "tokens": ids, "tokens_predicted": n} for text, ids, n in parts]
    predicted = parts[-1][2] if parts else 0
    final = {"content": "", "tokens": [], "tokens_predicted": predicted, "stop": True}
    return sse(*events, {**final, "stop_type": why})


async def play(
    name: str, known: dict[str, list[int]], own: bool
) -> tuple[list[Delta], LlamaServerEngine, Replay]:
    streamed, whole = recorded(name), answer(load(name))
    async with playing(
        completion=lambda body: streamed if body["stream"] else whole,
        tokenize=tokenize(known),
        detokenize=detokenize,
    ) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY if own else None)
        expected = load(name)["tokens"]
        return await collect(engine, asked([1], len(expected))), engine, server


KNOWN = {
    " 🦄": [11162, 99, 226],
    " 🼼": [11162, 120, 120],
    " 🏴": [11162, 237, 112],
    "龘": [82912, 246],
}


@pytest.mark.parametrize("own", [True, False])
async def test_lost_ids_are_restored(own: bool) -> None:
    deltas, engine, server = await play("emoji", KNOWN, own)
    assert [*ids_in(deltas), 151645] == load("emoji")["tokens"]
    assert data_in(deltas).decode() == load("emoji")["content"]
    assert [delta.repaired for delta in deltas if delta.repaired] == [2, 2, 2]
    assert (engine.redrawn, engine.ambiguous) == (0, 0)
    for delta in deltas:  # a delta with repaired ids is one character: nobody can stop inside it
        decoder = Utf8()
        whole = [bool(decoder.feed(piece.data)) and decoder.whole for piece in delta.pieces]
        assert whole == [False] * (len(whole) - 1) + [True] * bool(whole)
    if own:
        assert [server.bodies("/tokenize"), server.bodies("/detokenize")] == [[], []]
        assert {piece.data for delta in deltas for piece in delta.pieces if piece.id == 11162} == {
            b" \xf0\x9f"
        }


async def test_only_the_last_id_of_a_character_has_candidates() -> None:
    async with playing(completion=recorded("emoji")) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        deltas = await collect(engine, asked([1], 40, top=2))
    repaired = next(delta for delta in deltas if delta.repaired)
    assert [len(piece.top) for piece in repaired.pieces] == [0, 0, 2]


@pytest.mark.parametrize("own", [True, False])
async def test_a_limit_inside_a_character(own: bool) -> None:
    """The last chunk counts an id that never came; it is generated again, without streaming."""
    streamed, once = recorded("rare"), {"tokens": [82912], "stop_type": "limit"}
    async with playing(
        completion=lambda body: streamed if body["stream"] else answer(once),
        tokenize=tokenize(KNOWN),
        detokenize=detokenize,
    ) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY if own else None)
        deltas = await collect(engine, asked([1], 16))
        body = server.bodies("/completion")[-1]
    expected = load("rare")["tokens"]
    assert body["prompt"] == [1, *expected[:-1]]
    assert (body["n_predict"], body["n_probs"], body["stream"]) == (1, 0, False)
    # Without the vocabulary the half character's bytes are unknown, so its id is not kept either.
    assert ids_in(deltas) == (expected if own else expected[:-1])
    assert sum(delta.repaired for delta in deltas) == 4
    assert (deltas[-1].end, engine.redrawn) == ("length", 1)


async def test_half_a_character_before_the_end_of_turn_is_dropped() -> None:
    final = {"content": "", "tokens": [], "tokens_predicted": 3, "stop": True, "stop_type": "eos"}
    stream = sse({"content": "a", "tokens": [A], "tokens_predicted": 1}, final)
    async with playing(completion=stream) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1]))
    assert ids_in(deltas) == [A]
    assert deltas[-1].end == "turn"


AMBIGUOUS = Vocabulary(
    "llama", [b" \xf0", b"\x9f\xa6", b" \xf0\x9f", b"\xa6", b"\x84"], [NORMAL] * 5
)


@pytest.mark.parametrize(
    ("likely", "ids", "ambiguous"),
    [([0, 1, 4], [0, 1], 0), ([2, 3, 4], [2, 3], 0), ([9], [2, 3], 1)],
)
async def test_several_splits(likely: list[int], ids: list[int], ambiguous: int) -> None:
    stream = chunks((" 🦄", [4], 3))
    async with playing(completion=stream, tokenize=answer({"tokens": likely})) as server:
        engine = LlamaServerEngine(server.url, vocabulary=AMBIGUOUS)
        deltas = await collect(engine, asked([1], 3))
    assert ids_in(deltas) == [*ids, 4]
    assert engine.ambiguous == ambiguous
    assert server.bodies("/tokenize") == [
        {"content": " 🦄", "add_special": False, "parse_special": False}
    ]


@pytest.mark.parametrize("own", [True, False])
async def test_what_cannot_be_split_is_generated_again(own: bool) -> None:
    """Bytes that are no UTF-8 arrive as U+FFFD: only a second, whole generation tells the ids."""
    streams = [chunks(("a", [A], 1), ("\ufffda", [A], 3)), chunks(("a", [A], 1), why="eos")]
    again = answer({"tokens": [11162, A], "stop_type": "limit"})
    async with playing(
        completion=lambda body: streams.pop(0) if body["stream"] else again,
        tokenize=tokenize({}),
        detokenize=detokenize,
    ) as server:
        text = [b""] * A + [b"a"] + [b"\xf0"] * 20_000
        vocabulary = Vocabulary("llama", text, [NORMAL] * len(text))
        engine = LlamaServerEngine(server.url, vocabulary=vocabulary if own else None)
        deltas = await collect(engine, asked([1], 20))
    assert ids_in(deltas) == [A, 11162, A, A]
    assert engine.redrawn == 2
    assert deltas[-1].end == "turn"
    sent = [(body["prompt"], body["n_predict"]) for body in server.bodies("/completion")]
    assert sent == [([1], 20), ([1, A], 2), ([1, A, 11162, A], 17)]


@pytest.mark.parametrize(
    ("again", "end", "ids"),
    [
        ({"tokens": [A, 151645], "stop_type": "eos"}, "turn", [A]),
        ({"tokens": [A, A], "stop_type": "limit"}, "length", [A, A]),
    ],
)
async def test_generating_again_may_end(again: Any, end: str, ids: list[int]) -> None:
    async with playing(
        completion=lambda body: chunks(("?", [A], 2)) if body["stream"] else answer(again)
    ) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        deltas = await collect(engine, asked([1], 2))
    assert ids_in(deltas) == ids
    assert deltas[-1].end == end


@pytest.mark.parametrize("again", [{"tokens": []}, {"content": "x"}, [], {"tokens": ["x"]}])
async def test_generating_again_fails(again: Any) -> None:
    async with playing(
        completion=lambda body: chunks(("?", [A], 2)) if body["stream"] else answer(again)
    ) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        with pytest.raises(EngineReplyError):
            await collect(engine, asked([1], 2))


async def test_an_id_that_is_not_in_the_file() -> None:
    async with playing(completion=chunks(("x", [10**6], 1))) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        with pytest.raises(EngineReplyError, match="1000000"):
            await collect(engine, asked([1], 1))


async def test_a_prompt_that_ends_inside_a_character() -> None:
    """The server then writes U+FFFD for each byte; the run's bytes come with its last token."""
    stream = chunks(("\ufffd", [99], 1), ("\ufffd", [226], 2), ("a", [A], 3), ("\ufffd", [99], 4))
    known = {11162: b" \xf0\x9f", 99: b"\xa6", 226: b"\x84"}
    answers = {
        (A,): "a",
        (A, 99): "a\ufffd",
        (A, 99, 226): "a\ufffd\ufffd",
        (A, 99, 226, A): "a??a",
    }
    async with playing(
        completion=stream,
        tokenize=answer({"tokens": [A]}),
        detokenize=lambda body: answer({"content": answers[tuple(body["tokens"])]}),
    ) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1, 11162], 4))
        assert ids_in(deltas) == [99, 226, A]  # the last one waits in vain
        own = Vocabulary("llama", [known.get(id, b"a") for id in range(11163)], [NORMAL] * 11163)
        deltas = await collect(LlamaServerEngine(server.url, vocabulary=own), asked([1, 11162], 4))
    assert data_in(deltas) == b"\xa6\x84a\xa6"


async def test_bytes_are_asked_once_per_id() -> None:
    stream = chunks(*[("\ufffd", [11162], n) for n in (1, 2)])
    async with playing(
        completion=stream,
        tokenize=answer({"tokens": [A]}),
        detokenize=lambda body: answer({"content": "a" + "x" * (len(body["tokens"]) - 1)}),
    ) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 2))
    assert data_in(deltas) == b"xx"
    assert server.bodies("/detokenize") == [{"tokens": [A]}, {"tokens": [A, 11162]}]


@pytest.mark.parametrize("reply", [{"content": 5}, {}, []])
async def test_detokenizing_fails(reply: Any) -> None:
    async with playing(completion=chunks(("\ufffd", [5], 1)), detokenize=answer(reply)) as server:
        with pytest.raises(EngineReplyError, match="without a text"):
            await collect(LlamaServerEngine(server.url), asked([1], 1))


async def test_a_detokenizer_that_rewrites() -> None:
    replies = [answer({"content": "a"}), answer({"content": "A!"})]
    async with playing(completion=chunks(("\ufffd", [5], 1)), detokenize=replies) as server:
        with pytest.raises(EngineReplyError, match="not understood"):
            await collect(LlamaServerEngine(server.url), asked([1], 1))


WIRE = Wire("http://127.0.0.1:1")


async def test_the_ids_of_an_answer() -> None:
    assert ids_of({"tokens": [3, 1]}, WIRE) == (3, 1)
    assert ids_of({"tokens": []}, WIRE) == ()


@pytest.mark.parametrize("wrong", [[3, True], [3, "1"], [3, None], [3, 1.0], "31", None])
async def test_what_are_no_ids(wrong: object) -> None:
    with pytest.raises(EngineReplyError, match="without token ids"):
        ids_of({"tokens": wrong}, WIRE)
