from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen._errors import (
    ContextLengthError,
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
)
from relaygen._types import Constraint, Conversation, Delta, Message, Sampling, SegmentRequest
from relaygen.engines._margins import margins_are_raw
from relaygen.engines._scoring import Spelling
from relaygen.engines._sglang import NativeChunks, native_body, openai_body
from relaygen.engines.base import Engine
from relaygen.engines.detect import DetectedEngine
from relaygen.engines.sglang import SglangEngine
from relaygen.engines.vllm import VllmEngine

from .fake_sglang import TURN, WORDS, FakeSglang, encode, sglang_playing, shape
from .replay import Reply, answer, asked, collect, data_in, ids_in, sse
from .vllm_replay import vllm_playing

pytestmark = pytest.mark.anyio
PROMPT = (9, 11, 10)
BOTH = pytest.mark.parametrize("returns_ids", [True, False])
"""By ``/v1/completions``, and by ``/generate`` as of an older server."""


async def play(fake: FakeSglang, most: int = 100, **fields: Any) -> tuple[list[Delta], Any]:
    async with sglang_playing(fake) as server:
        engine = SglangEngine(server.url)
        deltas = await collect(engine, asked(PROMPT, most, **fields))
        await engine.aclose()
        return deltas, server


def sent(server: Any, path: str) -> Any:
    """The streamed request of this route."""
    (body,) = [each for each in server.bodies(path) if each.get("stream")]
    return body


# The server's own facts.


@BOTH
async def test_info(returns_ids: bool) -> None:
    async with sglang_playing(FakeSglang(returns_ids=returns_ids)) as server:
        engine = SglangEngine(server.url + "/v1/", api_key="k", role="small")
        assert isinstance(engine, Engine)
        assert isinstance(engine, Spelling)
        assert server.calls == []  # nothing at construction
        info = await engine.info()
        assert (info.model, info.context, info.kind, info.version) == (
            "tiny",
            512,
            "sglang",
            "0.5.23",
        )
        assert (info.stop_ids, info.text_only, info.experimental) == (True, False, True)
        assert await engine.info() is info
        assert {fields["authorization"] for fields in server.headers} == {"bearer k"}
        await engine.aclose()


async def test_it_is_found_by_asking() -> None:
    async with sglang_playing() as server:
        engine = DetectedEngine(server.url)
        assert (await engine.info()).kind == "sglang"
        assert isinstance(engine.engine, SglangEngine)
        await engine.aclose()


async def test_the_fingerprint_is_that_of_a_vllm_which_cuts_alike() -> None:
    tokens = answer({"tokens": [1, 2]})
    async with sglang_playing(**{"/tokenize": tokens}) as server:
        ours = await SglangEngine(server.url).info()
    async with vllm_playing(tokenize=tokens) as server:
        theirs = await VllmEngine(server.url).info()
    assert ours.vocabulary == theirs.vocabulary != ""


async def test_little_memory_makes_a_short_context() -> None:
    facts = shape("server_info") | {"max_req_input_len": 94}
    async with sglang_playing(**{"/server_info": answer(facts)}) as server:
        assert (await SglangEngine(server.url).info()).context == 100
    old = {"/server_info": answer({}, 404), "/get_server_info": answer(facts)}
    async with sglang_playing(**old) as server:
        assert (await SglangEngine(server.url).info()).context == 100


async def test_it_is_asked_again_until_it_is_ready() -> None:
    async with sglang_playing(**{"/ready": [Reply([b""], 503), Reply([b""])]}) as server:
        engine = SglangEngine(server.url)
        with pytest.raises(EngineUnreachableError, match="is not ready"):
            await engine.info()
        assert (await engine.info()).context == 512


async def test_wrong_key() -> None:
    async with sglang_playing(**{"/v1/models": answer(shape("unauthorized"), 401)}) as server:
        with pytest.raises(EngineError, match="refused the API key: Unauthorized"):
            await SglangEngine(server.url).info()


async def test_something_else_answers() -> None:
    async with sglang_playing(**{"/v1/models": answer({"data": [{"id": "x"}]})}) as server:
        with pytest.raises(EngineReplyError, match="does not answer as an SGLang server"):
            await SglangEngine(server.url).info()


async def test_a_server_without_a_tokenizer_route_is_told_what_to_do() -> None:
    missing = answer({"object": "error", "message": "Not Found", "type": "404", "code": 404}, 404)
    async with sglang_playing(**{"/tokenize": missing}) as server:
        with pytest.raises(EngineReplyError) as caught:
            await SglangEngine(server.url).info()
    assert "newer SGLang" in caught.value.hint


async def test_a_router_that_refuses_ids_is_asked_by_the_native_route() -> None:
    refusal = answer(shape("error_flat") | {"message": "prompt must be a string"}, 400)
    async with sglang_playing(**{"/v1/completions": refusal}) as server:
        deltas = await collect(SglangEngine(server.url), asked(PROMPT))
        assert data_in(deltas) == b"a"
        assert sent(server, "/generate")["input_ids"] == list(PROMPT)


# Prompts.


async def test_render() -> None:
    async with sglang_playing() as server:
        engine = SglangEngine(server.url)
        prompt = await engine.render(
            Conversation((Message("user", "Hi"),), template_kwargs={"enable_thinking": True})
        )
        assert prompt.ids == (9, 11, 10, 12)
        assert (prompt.text, prompt.assistant) == (
            "<|user|>Hi<|assistant|><think>",
            "<|assistant|><think>",
        )
        bodies = [each for each in server.bodies("/tokenize") if "messages" in each]
        assert [each["add_generation_prompt"] for each in bodies] == [False, True]
        assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": True}
        begun = await engine.render(Conversation((Message("user", "Hi"),), prefill="a"))
        assert begun.ids == (9, 11, 10, 12, 1)


async def test_an_old_server_gets_a_template() -> None:
    def tokenize(body: Any) -> Reply:
        return FakeSglang().tokenize(body) if "prompt" in body else refusal

    refusal = answer(shape("error_flat") | {"message": "Field required: prompt"}, 400)
    conversation = Conversation((Message("user", "Hi"),))
    async with sglang_playing(**{"/tokenize": tokenize}) as server:
        with pytest.raises(EngineReplyError) as caught:
            await SglangEngine(server.url).render(conversation)
        assert "--template" in caught.value.hint
        source = "<|user|>{{ messages[0].content }}{% if add_generation_prompt %}a{% endif %}"
        prompt = await SglangEngine(server.url, template=source).render(conversation)
        assert (prompt.ids, prompt.assistant) == ((9, 11, 1), "a")
        assert server.bodies("/tokenize")[-1]["add_special_tokens"] is True


async def test_special_tokens_are_plain_text_unless_asked_for() -> None:
    async with sglang_playing() as server:
        engine = SglangEngine(server.url)
        assert await engine.tokenize("<think>a", special=True) == (12, 1)
        assert 12 not in await engine.tokenize("<think>a")
        assert await engine.tokenize("") == ()


async def test_bytes_of_ids() -> None:
    async with sglang_playing() as server:
        assert await SglangEngine(server.url).data([2, 6, 7]) == (b" So", b" \xf0", b"\x9f\xa6\x84")


# Generations.


@BOTH
@pytest.mark.parametrize("burst", [1, 3, 100])
async def test_the_end_of_turn_is_stripped(returns_ids: bool, burst: int) -> None:
    deltas, server = await play(FakeSglang([1, 2, 3, TURN], returns_ids, burst=burst))
    assert ids_in(deltas) == [1, 2, 3]
    assert data_in(deltas) == b"a So x"
    assert deltas[-1].end == "turn"
    assert server.bodies("/abort_request") == []  # nothing was left to abort


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("burst", [1, 2, 5])
async def test_the_native_route_tells_each_token_once(incremental: bool, burst: int) -> None:
    fake = FakeSglang([1, 2, 3, 4, 5, TURN], False, incremental, burst=burst)
    deltas, _ = await play(fake, top=2)
    assert ids_in(deltas) == [1, 2, 3, 4, 5]
    for piece in (each for delta in deltas for each in delta.pieces):
        assert piece.id is not None
        assert [id for id, _ in piece.top] == [piece.id, piece.id + 1]
        assert piece.margin == pytest.approx(0.7616, abs=1e-4)


async def test_candidates_come_by_the_native_route() -> None:
    deltas, server = await play(FakeSglang([1, TURN]), top=1)
    body = sent(server, "/generate")
    assert (body["return_logprob"], body["top_logprobs_num"]) == (True, 1)
    assert body["logprob_start_len"] == -1
    assert [len(piece.top) for delta in deltas for piece in delta.pieces] == [1]
    deltas, server = await play(FakeSglang([1, TURN]))
    assert server.bodies("/generate") == []
    assert sent(server, "/v1/completions")["return_token_ids"] is True


@BOTH
async def test_a_hint_keeps_its_id(returns_ids: bool) -> None:
    deltas, _ = await play(FakeSglang([1, 2, 3], returns_ids), stop_ids=(2, 5))
    assert (ids_in(deltas), deltas[-1].end) == ([1, 2], "hint")


@BOTH
async def test_no_hint_before_the_least_length(returns_ids: bool) -> None:
    deltas, _ = await play(FakeSglang([1, 2, TURN], returns_ids), stop_ids=(2,), min_tokens=1)
    assert (ids_in(deltas), deltas[-1].end) == ([1, 2], "turn")


@BOTH
async def test_the_token_limit(returns_ids: bool) -> None:
    deltas, _ = await play(FakeSglang([1, 2, 3], returns_ids), most=2)
    assert (ids_in(deltas), deltas[-1].end) == ([1, 2], "length")
    deltas, server = await play(FakeSglang(returns_ids=returns_ids), most=0)
    assert (ids_in(deltas), deltas[-1].end) == ([], "length")
    assert server.bodies("/generate") == []


async def test_the_context_is_full() -> None:
    async with sglang_playing(FakeSglang([1] * 600)) as server:
        engine = SglangEngine(server.url)
        deltas = await collect(engine, asked([1] * 500, 50))
        assert sent(server, "/v1/completions")["max_tokens"] == 10  # what the server leaves
        assert (len(ids_in(deltas)), deltas[-1].end) == (10, "context")
        calls = len(server.calls)
        with pytest.raises(ContextLengthError, match="506 tokens, the context holds 512"):
            await collect(engine, asked([1] * 506))
        assert len(server.calls) == calls


@pytest.mark.parametrize("name", ["error_flat", "error_native"])
async def test_what_the_server_says_of_a_long_prompt(name: str) -> None:
    refusal = answer(shape(name), 400)
    async with sglang_playing(**{"/generate": refusal}) as server:
        with pytest.raises(ContextLengthError) as caught:
            await collect(SglangEngine(server.url), asked(PROMPT, top=1))
        assert "--context-length" in caught.value.hint


@BOTH
async def test_bytes_are_never_learned_from_the_text(returns_ids: bool) -> None:
    """Inside a character the server shows the space before it, and then the character alone."""
    async with sglang_playing(FakeSglang([6, 7, 1, TURN], returns_ids)) as server:
        engine = SglangEngine(server.url)
        assert data_in(await collect(engine, asked(PROMPT))) == " 🦄a".encode()
        server.routes["/v1/completions"] = FakeSglang([6, 8, TURN]).completions
        server.routes["/generate"] = FakeSglang([6, 8, TURN]).generate
        assert data_in(await collect(engine, asked(PROMPT))) == " 🦅".encode()
        asked_then = len(server.bodies("/detokenize"))
        await collect(engine, asked(PROMPT))
        assert len(server.bodies("/detokenize")) == asked_then  # once per run of ids


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=9),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_grouping_gives_the_same_tokens(ids: list[int], burst: int, incremental: bool) -> None:
    fake = FakeSglang([*ids, TURN], incremental=incremental, burst=burst)
    body = native_body(SegmentRequest(PROMPT, 100, Sampling(), "s", top=1), 100, "r")
    parts = fake.generate({**body, "input_ids": PROMPT}).parts
    events = [json.loads(each[6:]) for each in parts if each != b"data: [DONE]\n\n"]
    chunks = NativeChunks()
    made = [chunks.chunk(each)["choices"][0] for each in events]
    assert [id for each in made for id in each["token_ids"]] == [*ids, TURN]
    tops = [row for each in made for row in each["logprobs"]["top_logprobs"]]
    assert [next(iter(row)) for row in tops] == [f"token_id:{id}" for id in (*ids, TURN)]
    assert [each["finish_reason"] for each in made] == [None] * (len(made) - 1) + ["stop"]


# Counts.


async def test_the_native_route_tells_the_cached_prefix_with_the_first_token() -> None:
    async with sglang_playing(FakeSglang([1, 2], returns_ids=False, hangs=True)) as server:
        engine = SglangEngine(server.url)
        stream = engine.stream(asked(PROMPT))
        delta = await stream.__anext__()
        await stream.aclose()
        await engine.aclose()
    assert (delta.cached, delta.evaluated) == (2, 1)  # although it is broken off
    deltas, _ = await play(FakeSglang([1, 2, TURN], returns_ids=False))
    assert [each.cached for each in deltas if each.cached is not None] == [2]  # once


@pytest.mark.parametrize(("report", "cached"), [(True, 2), (False, None)])
async def test_the_other_route_needs_a_flag_for_it(report: bool, cached: int | None) -> None:
    deltas, _ = await play(FakeSglang([1, 2, TURN], cache_report=report))
    assert [each.cached for each in deltas] == [None] * (len(deltas) - 1) + [cached]


@BOTH
async def test_what_was_drafted_is_told_behind_the_last_token(returns_ids: bool) -> None:
    deltas, _ = await play(FakeSglang([1, 2, TURN], returns_ids, drafts=True))
    assert (deltas[-1].drafted, deltas[-1].accepted) == (6, 3)
    deltas, _ = await play(FakeSglang([1, 2, TURN], returns_ids))
    assert (deltas[-1].drafted, deltas[-1].accepted) == (None, None)


# What is sent.


def request(**fields: Any) -> SegmentRequest:
    return SegmentRequest((1,), 9, fields.pop("sampling", Sampling()), "s", **fields)


def test_every_sampling_field_is_sent() -> None:
    sampling = Sampling(
        0.7, 0.8, 5, 0.1, {3: -100.0}, presence_penalty=0.2, frequency_penalty=0.3,
        repetition_penalty=1.1,
    )  # fmt: skip
    wanted = request(sampling=sampling, seed=7, min_tokens=2)
    same = {
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 5,
        "min_p": 0.1,
        "logit_bias": {"3": -100.0},
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
        "ignore_eos": False,
    }
    native = native_body(wanted, 9, "r")
    assert native["sampling_params"] == same | {
        "max_new_tokens": 9,
        "min_new_tokens": 2,
        "sampling_seed": 7,
    }
    plain = openai_body(wanted, "m", 9, "r")
    assert plain.items() >= (same | {"max_tokens": 9, "min_tokens": 2, "seed": 7}).items()
    assert not set(plain) & {"max_new_tokens", "min_new_tokens", "sampling_seed"}
    assert (native["rid"], plain["rid"], plain["model"]) == ("r", "r", "m")


def test_no_limit_on_candidates_is_minus_one() -> None:
    assert (
        native_body(request(sampling=Sampling(top_k=0)), 9, "r")["sampling_params"]["top_k"] == -1
    )


@pytest.mark.parametrize(
    ("constraint", "fields"),
    [
        (Constraint("json_schema", {"type": "array"}), {"json_schema": '{"type": "array"}'}),
        (Constraint("json_object"), {"json_schema": '{"type": "object"}'}),
        (Constraint("regex", "a+"), {"regex": "a+"}),
        (Constraint("choice", ['"a"', "b"]), {"ebnf": 'root ::= "\\"a\\"" | "b"'}),
        (Constraint("grammar", "root ::= x"), {"ebnf": "root ::= x"}),
    ],
)
def test_constraints(constraint: Constraint, fields: dict[str, Any]) -> None:
    wanted = request(constraint=constraint)
    names = {"json_schema", "regex", "ebnf"}
    for body in (
        native_body(wanted, 9, "r")["sampling_params"],
        openai_body(wanted, "m", 9, "r"),
    ):
        assert {name: body[name] for name in names & set(body)} == fields


# Breaking off.


@BOTH
async def test_closing_aborts_by_an_id_of_its_own(returns_ids: bool) -> None:
    async with sglang_playing(FakeSglang([1, 2, 3], returns_ids, hangs=True)) as server:
        engine = SglangEngine(server.url)
        for _ in range(2):
            stream = engine.stream(asked(PROMPT))
            await stream.__anext__()
            await stream.aclose()
        await engine.aclose()  # waits for the aborts
        path = "/v1/completions" if returns_ids else "/generate"
        rids = [each["rid"] for each in server.bodies(path) if each.get("stream")]
        assert [each["rid"] for each in server.bodies("/abort_request")] == rids
    # A prefix would do for the server: of one length none is that of another.
    assert len(set(rids)) == 2
    assert {len(rid) for rid in rids} == {32}


async def test_a_cancelled_stream_is_aborted_before_its_first_token() -> None:
    async with sglang_playing(FakeSglang([], hangs=True)) as server:
        engine = SglangEngine(server.url)
        await engine.info()
        reading = asyncio.ensure_future(collect(engine, asked(PROMPT)))
        await server.begun.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await engine.aclose()
        assert len(server.bodies("/abort_request")) == 1


async def test_an_abort_that_is_refused_disturbs_nobody() -> None:
    refusal = answer(shape("unauthorized"), 401)
    fake = FakeSglang([1, 2], hangs=True)
    async with sglang_playing(fake, **{"/abort_request": refusal}) as server:
        engine = SglangEngine(server.url)
        stream = engine.stream(asked(PROMPT))
        await stream.__anext__()
        await stream.aclose()
        await engine.aclose()
        await engine.aclose()
        assert len(server.bodies("/abort_request")) == 1


# Margins.


@pytest.mark.parametrize("raw", [True, False])
async def test_candidates_that_follow_the_temperature_are_noticed(raw: bool) -> None:
    async with sglang_playing(FakeSglang([1] * 10, raw=raw)) as server:
        assert await margins_are_raw(SglangEngine(server.url), PROMPT, "s") is raw


# Nonsense.


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"output_ids": [1], "meta_info": {}},
        {"output_ids": [], "meta_info": {"finish_reason": None, "completion_tokens": 2}},
        {"output_ids": 5, "meta_info": {"finish_reason": None, "completion_tokens": 1}},
        {"output_ids": [1], "meta_info": {"finish_reason": "x", "completion_tokens": 1}},
    ],
)
async def test_a_native_event_that_makes_no_sense(event: Any) -> None:
    reply = sse(event, b"data: [DONE]\n\n")
    async with sglang_playing(FakeSglang(returns_ids=False), **{"/generate": reply}) as server:
        with pytest.raises(EngineReplyError, match="without output_ids or meta_info"):
            await collect(SglangEngine(server.url), asked(PROMPT))


@pytest.mark.parametrize(
    ("status", "retryable", "refused"),
    [(None, True, False), (400, False, True), (503, True, False)],
)
async def test_the_server_gives_up(status: int | None, retryable: bool, refused: bool) -> None:
    event = shape("generate_event")
    why = shape("finish_abort") | {"status_code": status, "message": "out of\nmemory"}
    event["meta_info"]["finish_reason"] = why
    reply = sse(event, b"data: [DONE]\n\n")
    async with sglang_playing(FakeSglang(returns_ids=False), **{"/generate": reply}) as server:
        with pytest.raises(EngineReplyError, match="gave the request up: out of memory") as caught:
            await collect(SglangEngine(server.url), asked(PROMPT))
    assert (caught.value.retryable, caught.value.refused) == (retryable, refused)


async def test_an_error_inside_a_stream() -> None:
    reply = sse(shape("error_stream"), b"data: [DONE]\n\n")
    async with sglang_playing(FakeSglang(returns_ids=False), **{"/generate": reply}) as server:
        with pytest.raises(EngineReplyError, match="answered 400: top_k must be") as caught:
            await collect(SglangEngine(server.url), asked(PROMPT))
    assert caught.value.refused


@BOTH
async def test_a_stream_without_its_end(returns_ids: bool) -> None:
    fake = FakeSglang([1, 2, 3], returns_ids, hangs=True)

    def broken(body: Any) -> Reply:
        if not body.get("stream"):
            return fake.completions(body)
        made = fake.completions(body) if "prompt" in body else fake.generate(body)
        return Reply([*made.parts, b"data: [DONE]\n\n"], kind=made.kind)

    async with sglang_playing(fake, **{"/v1/completions": broken, "/generate": broken}) as server:
        with pytest.raises(EngineReplyError, match="without its last chunk"):
            await collect(SglangEngine(server.url), asked(PROMPT))


def test_the_words_of_the_fake_are_cut_as_they_are_written() -> None:
    for id, data in WORDS.items():
        if id not in (6, 7, 8):
            assert encode(data.decode()) == [id]
