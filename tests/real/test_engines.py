"""The adapters against the real server; the small model where one model is enough."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaygen._errors import EngineStartError, EngineUnreachableError
from relaygen._types import Conversation, Delta, Message, Sampling, SegmentRequest
from relaygen.engines._gguf import read_header
from relaygen.engines._margins import margins_are_raw
from relaygen.engines._vocabulary import UNUSED
from relaygen.engines.embedded import EmbeddedEngine
from relaygen.engines.llama_server import LlamaServerEngine
from tests.engines.replay import asked, collect, data_in, ids_in

pytestmark = [pytest.mark.models, pytest.mark.anyio]
RARE = "龘𠮷🦄༼🫠𓀀" * 3
UNCERTAIN = "The capital of France is a city with many inhabitants, and"


def key_of(engine: EmbeddedEngine) -> str:
    return engine._config.api_key


async def raw(engine: EmbeddedEngine, path: str, body: dict[str, Any]) -> Any:
    assert engine.server is not None
    headers = {"Authorization": f"Bearer {key_of(engine)}"}
    async with httpx.AsyncClient(base_url=engine.server.url, headers=headers) as client:
        return (await client.post(path, json=body, timeout=120)).json()


async def whole(engine: EmbeddedEngine, ids: Sequence[int], most: int) -> list[int]:
    """The server's own ids of a generation that is not streamed, which loses none."""
    body = {"prompt": list(ids), "n_predict": most, "temperature": 0, "return_tokens": True}
    reply = await raw(engine, "/completion", body)
    tokens: list[int] = reply["tokens"]
    return tokens[:-1] if reply["stop_type"] == "eos" else tokens


def chat(text: str) -> Conversation:
    return Conversation((Message("user", text),))


async def test_pair(large_engine: EmbeddedEngine, small_engine: EmbeddedEngine) -> None:
    infos = [await engine.info() for engine in (large_engine, small_engine)]
    assert infos[0].vocabulary == infos[1].vocabulary
    conversation = chat("What is 2 + 3? Be brief.")
    prompts = [await engine.render(conversation) for engine in (large_engine, small_engine)]
    assert prompts[0] == prompts[1]
    deltas = await collect(large_engine, asked(prompts[0].ids, 8))
    assert ids_in(deltas) == await whole(large_engine, prompts[0].ids, 8)
    assert "5" in data_in(deltas).decode()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("prompt", "most"),
    [("def fibonacci(n):\n    ", 10), (RARE, 18), ("🫠 = ", 8)],
)
async def test_streamed_ids_are_the_servers_own(
    small_engine: EmbeddedEngine, prompt: str, most: int, own: bool
) -> None:
    await small_engine.info()
    assert small_engine.server is not None
    engine = LlamaServerEngine(small_engine.server.url, api_key=key_of(small_engine))
    ids = await small_engine.tokenize(prompt)
    deltas = await collect(small_engine if own else engine, asked(ids, most))
    expected = await whole(small_engine, ids, most)
    assert ids_in(deltas) == expected[: len(ids_in(deltas))]
    assert len(expected) - len(ids_in(deltas)) in ((0,) if own else range(4))
    text = (await raw(small_engine, "/detokenize", {"tokens": ids_in(deltas)}))["content"]
    assert data_in(deltas).decode(errors="replace") == text
    if prompt == RARE:
        assert sum(delta.repaired for delta in deltas) > 3
    await engine.aclose()


async def test_every_end_of_a_rare_text(small_engine: EmbeddedEngine) -> None:
    """A limit inside a character: the server never sends those ids."""
    ids = await small_engine.tokenize(RARE)
    expected = await whole(small_engine, ids, 5)
    for most in range(1, 6):
        assert ids_in(await collect(small_engine, asked(ids, most))) == expected[:most]


async def test_bytes_that_are_no_text(small_engine: EmbeddedEngine) -> None:
    """Hot sampling over byte tokens: most of what comes is no UTF-8, and yet every id is known."""
    vocabulary = read_header(small_engine.path).vocabulary()
    assert vocabulary is not None
    odd = [id for id in range(len(vocabulary)) if vocabulary.data(id)[:1] >= b"\xc0"]
    bias = dict.fromkeys(random.Random(1).sample(odd, 300), 12.0)
    bias |= {id: 15.0 for byte in range(0x80, 0x100) for id in vocabulary.ids(bytes([byte]))}
    ids = await small_engine.tokenize("🦄")
    request = SegmentRequest(ids, 30, Sampling(1.5, 1.0, 0, 0.0, bias), "odd", seed=7)
    deltas = await collect(small_engine, request)
    await small_engine.release("odd")
    assert len(ids_in(deltas)) == 30
    assert data_in(deltas) == b"".join(vocabulary.data(id or 0) for id in ids_in(deltas))
    assert small_engine.server is not None
    assert small_engine.server.redrawn > 0


async def test_margins_are_raw(small_engine: EmbeddedEngine) -> None:
    ids = await small_engine.tokenize(UNCERTAIN)
    assert await margins_are_raw(small_engine, ids, "margins") is True
    await small_engine.release("margins")


async def test_vocabulary_against_detokenize(small_engine: EmbeddedEngine) -> None:
    await small_engine.info()
    vocabulary = read_header(small_engine.path).vocabulary()
    assert vocabulary is not None
    (anchor,) = await small_engine.tokenize("a")
    used = [id for id in range(len(vocabulary)) if vocabulary.type(id) != UNUSED]
    sample = [*used[-30:], *random.Random(0).sample(used, 1970)]
    for start in range(0, len(sample), 100):
        some = sample[start : start + 100]
        sent = [part for id in some for part in (anchor, id)]
        text = (await raw(small_engine, "/detokenize", {"tokens": sent}))["content"]
        expected = b"".join(b"a" + vocabulary.data(id) for id in some)
        assert text == expected.decode(errors="replace")


async def first(engine: EmbeddedEngine, request: SegmentRequest) -> Delta:
    stream = engine.stream(request)
    try:
        return await stream.__anext__()
    finally:
        await stream.aclose()


async def test_a_slot_keeps_its_conversation(small_engine: EmbeddedEngine) -> None:
    draw = random.Random(time.time_ns())
    mine, other = [tuple(draw.randrange(1000, 9000) for _ in range(100)) for _ in range(2)]
    assert (await first(small_engine, asked(mine, 4, session="mine"))).evaluated is not None
    await first(small_engine, asked(other, 4, session="other"))
    again = await first(small_engine, asked((*mine, 5, 6, 7), 4, session="mine"))
    assert (again.cached, again.evaluated) == (100, 3)
    for session in ("mine", "other"):
        await small_engine.release(session)


@pytest.mark.parametrize("prompt", [4, 1500])
async def test_an_abort_stops_the_server(small_engine: EmbeddedEngine, prompt: int) -> None:
    """Nothing is computed any more when the stream is closed; a long prompt is left half read."""
    await small_engine.info()  # starts it
    draw = random.Random(time.time_ns())
    ids = tuple(draw.randrange(1000, 9000) for _ in range(prompt))
    stream = small_engine.stream(asked(ids, 400, session="abort"))
    task = asyncio.ensure_future(stream.__anext__())
    await asyncio.wait({task}, timeout=0.5)
    task.cancel()
    await asyncio.wait({task})
    await stream.aclose()
    # The batch that is being read runs to its end first, which a slow machine takes seconds for;
    # 400 tokens more would take it longer than is waited here.
    for _ in range(40):
        busy = [slot for slot in await slots(small_engine) if slot["is_processing"]]
        if not busy:
            break
        await asyncio.sleep(0.25)
    assert not busy
    await small_engine.release("abort")


async def slots(engine: EmbeddedEngine) -> list[dict[str, Any]]:
    assert engine.server is not None
    headers = {"Authorization": f"Bearer {key_of(engine)}"}
    async with httpx.AsyncClient(base_url=engine.server.url, headers=headers) as client:
        found: list[dict[str, Any]] = (await client.get("/slots", timeout=120)).json()
        return found


async def test_the_context_ends(small_path: Path) -> None:
    engine = EmbeddedEngine(small_path, ctx=256)
    try:
        context = (await engine.info()).context
        newline = (await engine.tokenize("\n"))[0]
        sampling = Sampling(0.0, logit_bias={newline: 100.0})
        ids = (newline,) * (context - 3)
        deltas = await collect(engine, SegmentRequest(ids, 50, sampling, "s"))
        assert ids_in(deltas) == [newline] * 3
        assert deltas[-1].end == "context"
    finally:
        await engine.aclose()


async def test_killed(small_path: Path) -> None:
    engine = EmbeddedEngine(small_path, ctx=256)
    ids = await engine.tokenize(UNCERTAIN)
    stream = engine.stream(asked(ids, 100))
    await stream.__anext__()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(EngineUnreachableError, match="killed by SIGKILL"):
        _ = [delta async for delta in stream]
    with pytest.raises(EngineUnreachableError, match="has died"):
        await collect(engine, asked(ids))
    assert time.monotonic() - start < 2.0
    await engine.aclose()


async def test_a_model_that_is_cut_off(small_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    with small_path.open("rb") as file:
        path.write_bytes(file.read(20_000_000))
    with pytest.raises(EngineStartError, match="exit status 1") as caught:
        await EmbeddedEngine(path, ctx=256).info()
    assert "failed to load model" in str(caught.value)
    assert "\n" not in str(caught.value)
