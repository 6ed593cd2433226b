from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from relaygen._errors import (
    ContextLengthError,
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
    MissingExtraError,
    UsageError,
)
from relaygen._types import (
    Constraint,
    Conversation,
    Message,
    Sampling,
    SegmentRequest,
    ToolCall,
)
from relaygen.engines.base import Engine
from relaygen.engines.completions import CompletionsEngine
from relaygen.mock import MockConfig, serving

from .replay import Replay, Reply, answer, collect, data_in, ids_in, load, playing, recorded
from .vllm_replay import chunks

pytestmark = pytest.mark.anyio
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}\n"
    "<{{ m.role }}>{{ m.content }}\n"
    "{%- for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments|tojson }}]"
    "{%- endfor %}</>{% endfor %}"
    "{%- if tools %}{{ tools|tojson }}{% endif %}"
    "{%- if add_generation_prompt %}<assistant>{{ '<think>' if thinking }}{% endif %}"
)


@asynccontextmanager
async def completing(reply: Reply | None = None, **card: Any) -> AsyncIterator[Replay]:
    models = {"data": [{"id": "tiny", "max_model_len": 512} | card]}
    async with playing() as server:
        server.routes = {
            "/v1/models": answer(models),
            "/v1/completions": reply or recorded("vllm/text"),
        }
        yield server


def asked(text: str | None, most: int = 100, **fields: Any) -> SegmentRequest:
    return SegmentRequest((), most, Sampling(temperature=0.0), "s", text=text, **fields)


def chunk(text: Any, why: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": why}], **fields}


async def read(engine: CompletionsEngine, into: list[bytes]) -> None:
    """The pieces of a stream as they come."""
    async for delta in engine.stream(asked("x")):
        into += [piece.data for piece in delta.pieces]


# The server's own facts.


async def test_info() -> None:
    async with completing() as server:
        engine = CompletionsEngine(server.url, api_key="k")
        assert isinstance(engine, Engine)
        assert server.calls == []
        info = await engine.info()
        assert (info.model, info.context, info.kind) == ("tiny", 512, "completions")
        assert (info.text_only, info.stop_ids, info.vocabulary) == (True, False, "")
        assert await engine.info() is info
        assert (await CompletionsEngine(server.url, context=99).info()).context == 99


@pytest.mark.parametrize(
    ("card", "context"),
    [({"context_length": 7}, 7), ({"meta": {"n_ctx": 8}}, 8), ({"max_context_length": 9}, 9)],
)
async def test_where_the_context_is_told(card: dict[str, Any], context: int) -> None:
    async with completing(max_model_len=None, **card) as server:
        assert (await CompletionsEngine(server.url).info()).context == context


@pytest.mark.parametrize("card", [{}, {"meta": 3}, {"n_ctx": "8"}, {"context_length": 0}])
async def test_a_context_that_is_not_told(card: dict[str, Any]) -> None:
    async with completing(max_model_len=None, **card) as server:
        with pytest.raises(UsageError, match="does not tell how many tokens") as caught:
            await CompletionsEngine(server.url).info()
    assert "context" in caught.value.hint


async def test_no_such_model() -> None:
    async with completing() as server:
        with pytest.raises(EngineReplyError, match="does not serve x") as caught:
            await CompletionsEngine(server.url, model="x").info()
        assert caught.value.hint == "it serves tiny"
        server.routes["/v1/models"] = answer({"data": [{"id": f"m{n}"} for n in range(99)]})
        with pytest.raises(EngineReplyError, match="does not serve x") as caught:
            await CompletionsEngine(server.url, model="x").info()
        assert caught.value.hint.endswith("m8, m9")
        server.routes["/v1/models"] = answer({"data": [7]})
        with pytest.raises(EngineReplyError, match="lists no models"):
            await CompletionsEngine(server.url).info()


async def test_a_context_that_makes_no_sense() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        CompletionsEngine("http://host", context=0)


async def test_it_hides_its_tokens() -> None:
    with pytest.raises(EngineReplyError, match="hides its tokens"):
        await CompletionsEngine("http://host").tokenize("a")


# Prompts.


def engine(template: str | None = TEMPLATE) -> CompletionsEngine:
    return CompletionsEngine("http://host", template=template)


async def test_render() -> None:
    messages = (Message("system", "Be."), Message("user", "Hi <b>."))
    prompt = await engine().render(Conversation(messages, "So", {"thinking": True}))
    assert prompt.ids == ()
    assert prompt.text == "<system>Be.</><user>Hi <b>.</><assistant><think>So"
    assert prompt.assistant == "<assistant><think>So"


async def test_a_final_assistant_message() -> None:
    messages = (Message("user", "Hi."), Message("assistant", "Yes"))
    prompt = await engine().render(Conversation(messages))
    assert prompt.text == "<user>Hi.</><assistant>Yes"
    prompt = await engine().render(Conversation(messages, continue_final=False))
    assert prompt.text == "<user>Hi.</><assistant>Yes</><assistant>"


async def test_tools_reach_the_template() -> None:
    calls = (ToolCall("1", "f", '{"city": "Łódź"}'), ToolCall("2", "g", "oops"))
    messages = (Message("assistant", "", tool_calls=calls), Message("tool", "3"))
    prompt = await engine().render(Conversation(messages, tools=({"name": "f"},)))
    assert '[f {"city": "Łódź"}][g "oops"]' in prompt.text
    assert '[{"name": "f"}]<assistant>' in prompt.text


async def test_raw_prompts() -> None:
    prompt = await engine(None).render(Conversation((), raw="Once"))
    assert (prompt.ids, prompt.text, prompt.assistant) == ((), "Once", "Once")
    with pytest.raises(UsageError, match="takes texts"):
        await engine(None).render(Conversation((), raw=(1, 2)))


async def test_no_template() -> None:
    with pytest.raises(UsageError, match="no chat template") as caught:
        await engine(None).render(Conversation((Message("user", "Hi"),)))
    assert "--template" in caught.value.hint


@pytest.mark.parametrize(
    ("template", "error", "says"),
    [
        ("{% if %}", UsageError, "wrong in line 1"),
        ("{{ raise_exception('roles must\nalternate') }}", EngineReplyError, "must alternate"),
        ("{{ messages[0].content + 3 }}", EngineReplyError, "refuses the conversation"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", EngineReplyError, "unsafe"),
    ],
)
async def test_bad_templates(template: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        await engine(template).render(Conversation((Message("user", "Hi"),)))
    assert "\n" not in str(caught.value)


async def test_without_jinja2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match="jinja2"):
        await engine().render(Conversation((Message("user", "Hi"),)))


# Generations.


async def test_a_recorded_stream() -> None:
    async with completing() as server:
        deltas = await collect(CompletionsEngine(server.url), asked("Hi. Hi. Hi. ", 6))
    assert set(ids_in(deltas)) == {None}
    assert data_in(deltas).decode() == " Hexatrigesimal_MAIL Bray提前 Termin yür"
    assert deltas[-1].end == "length"
    assert (deltas[-1].cached, deltas[-1].evaluated) == (0, 7)
    assert server.bodies("/v1/completions") == [
        {
            "model": "tiny",
            "prompt": "Hi. Hi. Hi. ",
            "max_tokens": 6,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "top_p": 0.95,
            "top_k": 20,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
        }
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("So, that's it.", ["So", ",", " that", "'", "s", " it", "."]),
        ("a  b\n\n c", ["a", "  ", "b", "\n\n ", "c"]),
        (" <think>\n", [" <", "think", ">", "\n"]),
        ("提前 né 🦄", ["提前", " né", " 🦄"]),
        ("", []),
    ],
)
async def test_pieces_are_words(text: str, words: list[str]) -> None:
    async with completing(chunks(chunk(text), chunk("", "stop"))) as server:
        deltas = await collect(CompletionsEngine(server.url), asked("x"))
    pieces = [piece.data.decode() for delta in deltas for piece in delta.pieces]
    assert "".join(pieces) == text
    assert pieces == words
    assert deltas[-1].end == "turn"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a\ud83e", "\udd84b"], "a🦄b"),
        (["a\ud83e", "b"], "a\ufffdb"),
        (["a\ud83e"], "a\ufffd"),
        (["\udd84"], "\ufffd"),
    ],
)
async def test_halves_of_characters(texts: list[str], expected: str) -> None:
    events = [chunk(text) for text in texts]
    async with completing(chunks(*events, chunk("", "length"))) as server:
        deltas = await collect(CompletionsEngine(server.url), asked("x"))
    assert data_in(deltas).decode() == expected


async def test_what_else_is_sent() -> None:
    schema = {"type": "object"}
    async with completing() as server:
        for constraint in (Constraint("json_schema", schema), Constraint("json_object")):
            request = asked("x", 6, seed=3, min_tokens=9, constraint=constraint)
            await collect(CompletionsEngine(server.url), request)
        with pytest.raises(EngineReplyError, match="'regex'") as caught:
            await collect(CompletionsEngine(server.url), asked("x", constraint=Constraint("regex")))
        first, second = server.bodies("/v1/completions")
    assert (first["seed"], first["min_tokens"]) == (3, 6)
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    assert (first["response_format"], second["response_format"]) == (form, {"type": "json_object"})
    assert "json_object" in caught.value.hint
    assert caught.value.refused


async def test_the_context() -> None:
    async with completing(max_model_len=10) as server:
        engine = CompletionsEngine(server.url)
        deltas = await collect(engine, asked("a b c d", 100))
        assert server.bodies("/v1/completions")[0]["max_tokens"] == 6
        assert deltas[-1].end == "context"
        with pytest.raises(ContextLengthError, match="10 tokens"):
            await collect(engine, asked("a b c d e f g h i j"))
        assert (await collect(engine, asked("a", 0)))[-1].end == "length"
        with pytest.raises(EngineReplyError, match="takes texts"):
            await collect(engine, asked(None))


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (answer(load("vllm/too-long"), 400), ContextLengthError, "maximum context length"),
        (chunks(chunk("a")), EngineReplyError, "without a finish reason"),
        (chunks(chunk("a", "content_filter")), EngineReplyError, "the reason 'content_filter'"),
        (chunks(chunk(None)), EngineReplyError, "without a text"),
        (chunks({"choices": [3]}), EngineReplyError, "without a text"),
        (
            Reply([b"data: {}\n\n"], kind="text/event-stream", end="break"),
            EngineUnreachableError,
            "dropped",
        ),
    ],
)
async def test_bad_streams(reply: Reply, error: type[EngineError], says: str) -> None:
    async with completing(reply) as server:
        with pytest.raises(error, match=says) as caught:
            await collect(CompletionsEngine(server.url, role="small"), asked("x"))
    assert caught.value.role == "small"


@pytest.mark.parametrize("why", ["abort", "error"])
async def test_a_server_that_gives_up_may_be_asked_again(why: str) -> None:
    async with completing(chunks(chunk("a"), chunk("", why))) as server:
        with pytest.raises(EngineReplyError, match=f"the reason '{why}'") as caught:
            await collect(CompletionsEngine(server.url), asked("x"))
    assert caught.value.retryable


async def test_what_came_before_a_failure_is_kept() -> None:
    """In one packet with it; and a server that has begun cannot call the request invalid."""
    failure = {"error": {"message": "oh", "code": 400}}
    parts = chunks(chunk("a b"), failure).parts
    whole = Reply([b"".join(parts)], kind="text/event-stream")
    found: list[bytes] = []
    async with completing(whole) as server:
        with pytest.raises(EngineReplyError, match="400: oh") as caught:
            await read(CompletionsEngine(server.url), found)
    assert found == [b"a", b" b"]
    assert (caught.value.retryable, caught.value.refused) == (True, False)
    async with completing(chunks(failure)) as server:
        with pytest.raises(EngineReplyError, match="400: oh") as caught:
            await collect(CompletionsEngine(server.url), asked("x"))
    assert (caught.value.retryable, caught.value.refused) == (False, True)


async def test_a_useless_chunk_does_not_take_the_text_before_it_along() -> None:
    whole = Reply([b"".join(chunks(chunk("a"), chunk(None)).parts)], kind="text/event-stream")
    found: list[bytes] = []
    async with completing(whole) as server:
        with pytest.raises(EngineReplyError, match="without a text"):
            await read(CompletionsEngine(server.url), found)
    assert found == [b"a"]


async def test_nothing_follows_the_finish_reason() -> None:
    """The end is told although the stream stays open, long before anything times out."""
    parts = [*chunks(chunk("a", "stop")).parts[:1]]
    async with completing(Reply(parts, kind="text/event-stream", end="hang")) as server:
        engine = CompletionsEngine(server.url, timeout=3600.0)
        deltas = await asyncio.wait_for(collect(engine, asked("x")), 60)
        await engine.aclose()
    assert (data_in(deltas), deltas[-1].end) == (b"a", "turn")


async def test_a_break_behind_the_finish_reason_is_no_failure() -> None:
    parts = [*chunks(chunk("a", "stop")).parts[:1]]
    async with completing(Reply(parts, kind="text/event-stream", end="break")) as server:
        deltas = await collect(CompletionsEngine(server.url), asked("x"))
    assert (data_in(deltas), deltas[-1].end) == (b"a", "turn")


async def test_with_the_mock() -> None:
    with serving(MockConfig(match="text", token_ms=0.2)) as url:
        engine = CompletionsEngine(
            url,
            template="<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant\n",
        )
        prompt = await engine.render(Conversation((Message("user", "Add 17 and 25."),)))
        deltas = await collect(engine, asked(prompt.text, 1000))
        assert data_in(deltas).decode()
        assert json.dumps(deltas[-1].end) == '"turn"'
        await engine.aclose()
