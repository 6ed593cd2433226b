from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relaygen._errors import EngineError, EngineReplyError, EngineUnreachableError, UsageError
from relaygen._types import Conversation, Message
from relaygen.engines.base import Engine
from relaygen.engines.completions import CompletionsEngine
from relaygen.engines.detect import DetectedEngine
from relaygen.engines.llama_server import LlamaServerEngine
from relaygen.engines.sglang import SglangEngine
from relaygen.engines.vllm import VllmEngine

from .fake_sglang import sglang_playing, shape
from .raw_server import raw
from .replay import Reply, answer, asked, collect, data_in, load, playing, recorded
from .vllm_replay import CHAT, vllm_playing

pytestmark = pytest.mark.anyio
CARD = answer({"data": [{"id": "m", "max_model_len": 99}]})
NOTHING = answer({"detail": "Not Found"}, 404)


async def test_vllm() -> None:
    async with vllm_playing(**{"/v1/completions": recorded("vllm/turn")}) as server:
        engine = DetectedEngine(server.url, role="large", api_key="k")
        assert isinstance(engine, Engine)
        assert (server.calls, engine.engine) == ([], None)
        assert (await engine.info()).kind == "vllm"
        assert isinstance(engine.engine, VllmEngine)
        assert server.headers[-1]["authorization"] == "bearer k"
        asked_then = len(server.calls)
        assert (await engine.info()).context == 512
        assert len(server.calls) == asked_then  # found out once
        assert data_in(await collect(engine, asked(CHAT))) == b' ="";\nadoado'
        assert await engine.tokenize("") == ()
        await engine.release("s")
        await engine.aclose()
        await engine.aclose()


async def test_a_stream_may_come_first() -> None:
    async with vllm_playing(**{"/v1/completions": recorded("vllm/turn")}) as server:
        deltas = await collect(DetectedEngine(server.url), asked(CHAT))
    assert data_in(deltas) == b' ="";\nadoado'


async def test_llama_server() -> None:
    async with playing() as server:
        engine = DetectedEngine(server.url)
        assert (await engine.info()).kind == "llama-server"
        assert isinstance(engine.engine, LlamaServerEngine)


async def test_a_llama_server_that_is_loading() -> None:
    loading = answer(load("loading"), 503)
    async with playing(health=[loading, answer({})]) as server:
        server.routes["/props"] = [loading, answer(load("props"))]
        assert (await DetectedEngine(server.url).info()).kind == "llama-server"


async def test_a_plain_server() -> None:
    async with playing() as server:
        server.routes = {"/v1/models": CARD}
        engine = DetectedEngine(server.url, template="{{ messages[0].content }}!", context=5)
        info = await engine.info()
        assert (info.kind, info.context) == ("completions", 5)
        assert isinstance(engine.engine, CompletionsEngine)
        prompt = await engine.render(Conversation((Message("user", "Hi"),)))
        assert prompt.text == "Hi!"


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
async def test_sglang(path: str) -> None:
    async with sglang_playing(**{"/model_info": NOTHING}) as server:
        server.routes[path] = answer(shape("model_info"))
        engine = DetectedEngine(server.url, template="{{ messages[0].content }}a")
        assert (await engine.info()).kind == "sglang"
        assert isinstance(engine.engine, SglangEngine)
        prompt = await engine.render(Conversation((Message("user", "Hi"),)))
        assert prompt.text == "Hia"
        assert (await DetectedEngine(server.url, kind="completions").info()).model == "tiny"


@pytest.mark.parametrize(
    "reply", [NOTHING, Reply([b"<h1>Hello</h1>"]), answer([1]), answer({"data": 3})]
)
async def test_something_else_answers(reply: Reply) -> None:
    async with playing() as server:
        server.routes = dict.fromkeys(("/", "/props", "/version", "/v1/models"), reply)
        with pytest.raises(EngineReplyError) as caught:
            await DetectedEngine(server.url, role="small").info()
    assert str(caught.value) == (
        f"small engine: {server.url} is no inference server: "
        "it has none of /props, /version and /v1/models"
    )
    assert "without a path" in caught.value.hint


async def test_wrong_key() -> None:
    refusal = answer(load("vllm/unauthorized"), 401)
    async with playing() as server:
        server.routes = dict.fromkeys(("/props", "/version", "/v1/models"), refusal)
        with pytest.raises(EngineError, match="refused the API key"):
            await DetectedEngine(server.url).info()


async def test_it_may_come_up_later() -> None:
    async with raw() as gone:
        url = gone.url
    engine = DetectedEngine(url, role="large")
    for _ in range(2):
        with pytest.raises(EngineUnreachableError, match="cannot be reached") as caught:
            await engine.info()
        assert caught.value.retryable
    async with playing() as server:
        server.routes = {"/v1/models": CARD}
        late = await asyncio.start_server(server.serve, "127.0.0.1", int(url.rpartition(":")[2]))
        async with late:
            assert (await engine.info()).model == "m"


async def test_a_kind_that_is_given_is_not_looked_for() -> None:
    async with vllm_playing() as server:
        await DetectedEngine(server.url, kind="vllm").info()
        assert not {"/props", "/model_info"} & {path for path, _ in server.calls}


async def test_many_ask_at_once() -> None:
    async with vllm_playing() as server:
        engine = DetectedEngine(server.url)
        infos = await asyncio.gather(*[engine.info() for _ in range(5)])
        assert len({id(info) for info in infos}) == 1
        assert [path for path, _ in server.calls].count("/props") == 1


@pytest.mark.parametrize(
    "options", [{"kind": "ollama"}, {"url": "host:1"}, {"proxy": "x"}, {"headers": {"a b": ""}}]
)
async def test_what_makes_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        DetectedEngine(**{"url": "http://host", **options})


async def test_calls_at_the_same_time_share_one_meeting() -> None:
    async with raw(b"") as server:  # which never answers
        engine = DetectedEngine(server.url, timeout=0.4)
        met = await asyncio.gather(*(engine.info() for _ in range(5)), return_exceptions=True)
        assert [type(each) for each in met] == [EngineUnreachableError] * 5
        assert server.connections == 1
        await engine.aclose()


async def test_a_call_that_is_given_up_does_not_break_off_the_meeting() -> None:
    async with vllm_playing() as server:
        engine = DetectedEngine(server.url)
        asking = asyncio.ensure_future(engine.info())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert (await engine.info()).kind == "vllm"
        assert server.calls.count(server.calls[0]) == 1  # it went on
        await engine.aclose()
