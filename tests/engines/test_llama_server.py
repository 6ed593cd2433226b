from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relaygen._errors import (
    ContextLengthError,
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
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
from relaygen.engines.llama_server import LlamaServerEngine

from .replay import (
    RECORDINGS,
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
PROMPTS = load("prompts")
VOCABULARY = recorded_vocabulary()
REFUSED = "http://127.0.0.1:9"


def chunk(text: str, ids: list[int], predicted: int, **fields: Any) -> dict[str, Any]:
    return {"content": text, "tokens": ids, "tokens_predicted": predicted, "stop": False, **fields}


def last(predicted: int, why: str = "limit", **fields: Any) -> dict[str, Any]:
    return chunk("", [], predicted, **{"stop": True, "stop_type": why, **fields})


# The server's own facts.


async def test_info() -> None:
    async with playing() as server:
        engine = LlamaServerEngine(server.url + "/v1/", api_key="k", role="small")
        assert isinstance(engine, Engine)
        assert server.calls == []  # nothing at construction
        info = await engine.info()
        assert (info.model, info.context, info.slots) == ("small.gguf", 512, 2)
        assert info.vocabulary.startswith("probe:")
        assert await engine.info() is info
        assert {fields["authorization"] for fields in server.headers} == {"bearer k"}
        assert (await LlamaServerEngine(server.url).info()).vocabulary == info.vocabulary
        own = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        assert (await own.info()).vocabulary == VOCABULARY.fingerprint
    async with playing(props=answer({**load("props"), "build_info": "b11549-a1"})) as server:
        assert (await LlamaServerEngine(server.url).info()).version == "b11549-a1"


async def test_another_vocabulary_has_another_fingerprint() -> None:
    async with playing(tokenize=[answer({"tokens": [1]}), answer({"tokens": [2]})]) as server:
        first, second = [await LlamaServerEngine(server.url).info() for _ in range(2)]
    assert first.vocabulary != second.vocabulary


async def test_info_waits_while_the_model_is_loaded() -> None:
    loading = answer(load("loading"), 503)
    async with playing(health=[loading, loading, answer({"status": "ok"})]) as server:
        assert (await LlamaServerEngine(server.url).info()).context == 512
    async with playing(health=loading) as server:
        with pytest.raises(EngineUnreachableError, match="still loading"):
            await LlamaServerEngine(server.url, load_timeout=0.1).info()


async def test_wrong_key() -> None:
    async with playing(props=answer(load("unauthorized"), 401)) as server:
        with pytest.raises(EngineError, match="refused the API key") as caught:
            await LlamaServerEngine(server.url, role="large").info()
    assert "key" in caught.value.hint
    assert str(caught.value).startswith("large engine: ")


@pytest.mark.parametrize(
    "props", [answer({}), answer([]), answer({"x": 1}, 404), Reply([b"<html>\nhi</html>"])]
)
async def test_something_else_answers(props: Reply) -> None:
    async with playing(props=props) as server:
        with pytest.raises(EngineReplyError) as caught:
            await LlamaServerEngine(server.url).info()
    assert "\n" not in str(caught.value)


async def test_something_else_without_a_health_route() -> None:
    async with playing(health=answer({"detail": "Not Found"}, 404)) as server:
        with pytest.raises(EngineReplyError, match=r"404: .*Not Found"):
            await LlamaServerEngine(server.url).info()


async def test_nobody_answers() -> None:
    with pytest.raises(EngineUnreachableError, match="cannot be reached") as caught:
        await LlamaServerEngine(REFUSED).info()
    assert caught.value.retryable


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://", "http://host:port", ""])
async def test_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="not the address"):
        LlamaServerEngine(url)


# Prompts.


async def render(*messages: tuple[Any, str], prefill: str = "", **kwargs: Any) -> Any:
    def template(body: Any) -> Reply:
        name = "opened" if body["add_generation_prompt"] else "closed"
        return answer(load(f"template-{name}"))

    conversation = Conversation(tuple(Message(*each) for each in messages), prefill, kwargs)
    async with playing(apply_template=template) as server:
        prompt = await LlamaServerEngine(server.url).render(conversation)
    return prompt, server


async def test_render() -> None:
    prompt, server = await render(("system", "Be."), ("user", "Say hi."), enable_thinking=False)
    assert prompt.assistant == "<|im_start|>assistant\n"
    assert prompt.text == load("template-opened")["prompt"]
    assert prompt.ids == (1, 2, 3)
    sent = server.bodies("/apply-template")
    assert {body.pop("add_generation_prompt") for body in sent} == {False, True}
    assert (
        sent[0]
        == sent[1]
        == {
            "messages": [
                {"role": "system", "content": "Be."},
                {"role": "user", "content": "Say hi."},
            ],
            "chat_template_kwargs": {"enable_thinking": False},
        }
    )
    # As the server's chat route does: the template's BOS is left to the tokenizer.
    assert server.bodies("/tokenize") == [
        {"content": prompt.text, "add_special": True, "parse_special": True}
    ]


async def test_render_leaves_the_assistant_open() -> None:
    prompt, server = await render(
        ("user", "Say hi."), ("assistant", "Su"), ("assistant", "re"), prefill=", "
    )
    assert prompt.assistant == "<|im_start|>assistant\nSure, "
    assert prompt.text.endswith("<|im_start|>assistant\nSure, ")
    for body in server.bodies("/apply-template"):
        assert [each["role"] for each in body["messages"]] == ["user"]


async def test_render_where_the_template_rewrites_the_end() -> None:
    replies = [answer({"prompt": "User: x."}), answer({"prompt": "Assistant:"})]
    async with playing(apply_template=replies) as server:
        prompt = await LlamaServerEngine(server.url).render(Conversation((), "<think>"))
    assert prompt.assistant == "<think>"


async def test_what_reaches_the_template() -> None:
    call = ToolCall("c1", "f", '{"a": 1}')
    messages = (
        Message("assistant", "", tool_calls=(call,), reasoning="Look."),
        Message("tool", "3", tool_call_id="c1"),
    )
    tool = {"type": "function", "function": {"name": "f"}}
    async with playing(apply_template=answer(load("template-opened"))) as server:
        await LlamaServerEngine(server.url, model="m").render(Conversation(messages, tools=(tool,)))
    sent = server.bodies("/apply-template")[0]
    del sent["add_generation_prompt"]
    assert sent == {
        "model": "m",
        "messages": [
            {
                "role": "assistant",
                "content": "",
                "reasoning": "Look.",
                "reasoning_content": "Look.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": 1}'},
                    }
                ],
            },
            {"role": "tool", "content": "3", "tool_call_id": "c1"},
        ],
        "chat_template_kwargs": {},
        "tools": [tool],
    }


def chat(body: Any) -> Reply:
    """Like the server's: a final assistant message is always left open."""
    text = "".join(f"<{each['role']}>{each['content']}</>" for each in body["messages"])
    if body["messages"] and body["messages"][-1]["role"] == "assistant":
        return answer({"prompt": text.removesuffix("</>")})
    return answer({"prompt": text + ("<assistant>" if body["add_generation_prompt"] else "")})


async def test_a_turn_behind_a_final_assistant_message() -> None:
    messages = (Message("user", "Hi."), Message("assistant", "Yes."))
    conversation = Conversation(messages, "So", continue_final=False)
    async with playing(apply_template=chat) as server:
        prompt = await LlamaServerEngine(server.url).render(conversation)
    assert prompt.text == "<user>Hi.</><assistant>Yes.</><assistant>So"
    assert prompt.assistant == "<assistant>So"


async def test_a_template_that_cannot_open_a_turn_there() -> None:
    conversation = Conversation((Message("assistant", "Yes."),), continue_final=False)
    for template in (answer({"prompt": "same"}), lambda body: answer({"prompt": str(body)})):
        async with playing(apply_template=template) as server:
            with pytest.raises(EngineReplyError, match="cannot open a new turn") as caught:
                await LlamaServerEngine(server.url).render(conversation)
        assert "continue_final_message" in caught.value.hint


async def test_a_call_cannot_be_continued() -> None:
    message = Message("assistant", "", tool_calls=(ToolCall("a", "f", "{}"),))
    with pytest.raises(UsageError, match="cannot be continued"):
        await LlamaServerEngine(REFUSED).render(Conversation((message,)))


async def test_raw_prompts() -> None:
    async with playing() as server:
        engine = LlamaServerEngine(server.url)
        text = await engine.render(Conversation((), raw="Once"))
        assert (text.ids, text.text, text.assistant) == ((1, 2, 3), "Once", "Once")
        ids = await engine.render(Conversation((), raw=(7, 8)))
        assert (ids.ids, ids.text, ids.assistant) == ((7, 8), "<|end|>", "<|end|>")
    sent = {"content": "Once", "add_special": True, "parse_special": True}
    assert server.bodies("/tokenize") == [sent]


async def test_render_that_the_template_refuses() -> None:
    refusal = answer({"error": {"code": 500, "message": "roles must\nalternate"}}, 500)
    async with playing(apply_template=refusal) as server:
        with pytest.raises(EngineReplyError, match="roles must alternate"):
            await LlamaServerEngine(server.url).render(Conversation(()))


async def test_tokenize() -> None:
    async with playing() as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        assert await engine.tokenize("") == ()
        assert await engine.tokenize("</think>", special=True) == (1, 2, 3)
        sent = {"content": "</think>", "add_special": False, "parse_special": True}
        assert server.bodies("/tokenize") == [sent]


async def test_tokenize_drops_the_space_that_some_tokenizers_add() -> None:
    models = load("models")
    models["data"][0]["meta"]["vocab_type"] = 1
    ids = {"\n": [29871, 13], "\nSo": [29871, 13, 6295], "So": [1105]}
    async with playing(
        v1_models=answer({}), tokenize=lambda body: answer({"tokens": ids[body["content"]]})
    ) as server:
        server.routes["/v1/models"] = answer(models)
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        assert await engine.tokenize("So") == (6295,)


# Generations.


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize("own", [True, False])
async def test_the_end_of_turn_is_stripped(cut: int, own: bool) -> None:
    async with playing(completion=recorded("turn", cut)) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY if own else None)
        deltas = await collect(engine, asked(PROMPTS["hello"]))
    assert [*ids_in(deltas), 151645] == load("turn")["tokens"]
    assert data_in(deltas) == load("turn")["content"].encode()
    assert deltas[-1].end == "turn"
    assert (deltas[0].cached, deltas[0].evaluated) == (0, 35)
    assert deltas[-1].cached is None  # told once


async def test_everything_is_sent_explicitly() -> None:
    async with playing(completion=recorded("limit")) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        sampling = Sampling(0.6, 0.9, 7, 0.05, {13: -1.5})
        await collect(engine, SegmentRequest((5, 6), 6, sampling, "s", seed=3, top=2))
        await collect(engine, asked([5, 6], 6))
    full, bare = server.bodies("/completion")
    assert full == {
        "prompt": [5, 6],
        "n_predict": 6,
        "id_slot": 0,
        "cache_prompt": True,
        "return_tokens": True,
        "timings_per_token": True,
        "stream": True,
        "temperature": 0.6,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.05,
        "samplers": ["top_k", "top_p", "min_p", "temperature"],
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "dynatemp_range": 0.0,
        "mirostat": 0,
        "ignore_eos": False,
        "seed": 3,
        "logit_bias": [[13, -1.5]],
        "n_probs": 2,
        "post_sampling_probs": False,
    }
    assert (bare["seed"], bare["logit_bias"], "n_probs" in bare) == (-1, [], False)


async def test_a_fresh_request_takes_nothing_from_the_cache() -> None:
    async with playing(completion=recorded("limit")) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        await collect(engine, replace(asked([5, 6], 6), fresh=True))
    assert [sent["cache_prompt"] for sent in server.bodies("/completion")] == [False]


async def test_penalties() -> None:
    sampling = Sampling(presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.1)
    async with playing(completion=recorded("limit")) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        await collect(engine, SegmentRequest((5, 6), 6, sampling, "s"))
    (sent,) = server.bodies("/completion")
    assert sent["samplers"] == ["penalties", "top_k", "top_p", "min_p", "temperature"]
    assert sent["repeat_last_n"] == 8  # all of the text: the server's default is 64
    penalties = [sent[f"{name}_penalty"] for name in ("presence", "frequency")]
    assert [*penalties, sent["repeat_penalty"]] == [0.5, -0.5, 1.1]


@pytest.mark.parametrize(
    ("constraint", "field", "value"),
    [
        (Constraint("json_schema", {"a": 1}), "json_schema", {"a": 1}),
        (Constraint("json_object"), "json_schema", {"type": "object"}),
        (Constraint("grammar", 'root ::= "a"'), "grammar", 'root ::= "a"'),
        (Constraint("choice", ["a", 'b "\\\n']), "grammar", r'root ::= "a" | "b \"\\\n"'),
    ],
)
async def test_constraints(constraint: Constraint, field: str, value: object) -> None:
    async with playing(completion=recorded("limit")) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        await collect(engine, asked([1], 6, constraint=constraint, min_tokens=3))
    (sent,) = server.bodies("/completion")
    assert sent[field] == value
    assert sent["ignore_eos"] is False  # the grammar says where its text may end


async def test_a_constraint_that_it_does_not_know() -> None:
    async with playing() as server:
        with pytest.raises(EngineReplyError, match="'regex'") as caught:
            await collect(LlamaServerEngine(server.url), asked([1], constraint=Constraint("regex")))
    assert "choice" in caught.value.hint
    assert caught.value.refused


async def test_a_least_number_of_tokens() -> None:
    first = sse(chunk("a", [5], 1), chunk("b", [6], 2), last(2))
    rest = sse(chunk("c", [7], 1), chunk("", [8], 2), last(2, "eos"))
    async with playing(completion=[first, rest], detokenize=answer({"content": "|"})) as server:
        engine = LlamaServerEngine(server.url)
        deltas = await collect(engine, asked([1], 9, min_tokens=2, seed=7, stop_ids=(3,)))
    assert ids_in(deltas) == [5, 6, 7]
    assert deltas[-1].end == "turn"
    sent = server.bodies("/completion")
    assert [body["prompt"] for body in sent] == [[1], [1, 5, 6]]
    assert [body["ignore_eos"] for body in sent] == [True, False]
    assert [body["n_predict"] for body in sent] == [2, 7]
    assert [body["seed"] for body in sent] == [7, 9]  # not the same draws again


async def test_a_least_number_that_is_all() -> None:
    stream = sse(chunk("a", [5], 1), chunk("b", [6], 2), last(2))
    async with playing(completion=stream) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 2, min_tokens=5))
    assert (ids_in(deltas), deltas[-1].end) == ([5, 6], "length")
    assert len(server.bodies("/completion")) == 1


async def test_one_of_several_models() -> None:
    models = load("models")
    models["data"].append(models["data"][0] | {"id": "b/other"})
    async with playing(completion=recorded("limit")) as server:
        server.routes |= {
            "/v1/models": answer(models),
            "/props?model=b%2Fother": answer(load("props")),
        }
        engine = LlamaServerEngine(server.url, model="b/other", vocabulary=VOCABULARY)
        assert (await engine.info()).model == "b/other"
        await collect(engine, asked([1], 6))
        assert server.bodies("/completion")[0]["model"] == "b/other"
        server.routes["/props?model=c"] = answer(load("props"))
        with pytest.raises(EngineReplyError, match="does not serve c") as caught:
            await LlamaServerEngine(server.url, model="c").info()
        assert caught.value.hint.endswith(", b/other")


async def test_the_token_limit() -> None:
    async with playing(completion=recorded("limit")) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 6))
    assert len(ids_in(deltas)) == 6
    assert deltas[-1].end == "length"


async def test_no_tokens_asked_for() -> None:
    async with playing() as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 0))
    assert ids_in(deltas) == []
    assert server.bodies("/completion") == []


async def test_the_context_is_full() -> None:
    async with playing(completion=recorded("full")) as server:
        engine = LlamaServerEngine(server.url, vocabulary=VOCABULARY)
        deltas = await collect(engine, asked([100] * 508, 40))
        assert ids_in(deltas) == [198] * 4
        assert deltas[-1].end == "context"
        assert server.bodies("/completion")[0]["n_predict"] == 4
        assert (await collect(engine, asked([100] * 508, 4)))[-1].end == "length"


async def test_progress_and_pings_are_no_tokens() -> None:
    raw = (RECORDINGS / "progress.sse").read_bytes()
    async with playing(completion=sse(b": ping\n\n", raw, b":\n\n")) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([7039], 2))
    assert ids_in(deltas) == [2987, 279]
    assert (deltas[0].cached, deltas[0].evaluated) == (0, 1)


async def test_candidates() -> None:
    async with playing(completion=recorded("probs")) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked(PROMPTS["hello"], top=2))
    (piece,) = deltas[0].pieces
    assert [id for id, _ in piece.top] == [9707, 13048]
    assert piece.margin == pytest.approx(0.384, abs=1e-3)


async def test_candidates_that_the_server_does_not_have() -> None:
    entries = [{"id": 5, "top_logprobs": [{"id": 5, "logprob": 0.0}, {"id": 6, "logprob": None}]}]
    events = [chunk("a", [5], 1, completion_probabilities=entries), chunk("b", [6], 2), last(2)]
    async with playing(completion=sse(*events)) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 2, top=2))
    assert [piece.margin for delta in deltas for piece in delta.pieces] == [None, None]


@pytest.mark.parametrize(
    "entries", [[{"top_logprobs": []}], [7], [{"id": 5, "top_logprobs": [1]}], 3]
)
async def test_candidates_that_make_no_sense(entries: object) -> None:
    events = [chunk("a", [5], 1, completion_probabilities=entries), last(1)]
    async with playing(completion=sse(*events)) as server:
        with pytest.raises(EngineReplyError, match="candidates"):
            await collect(LlamaServerEngine(server.url), asked([1], 1, top=2))


async def test_control_tokens_inside_the_text_are_kept() -> None:
    events = [chunk("a", [5], 1), chunk("", [7], 2), chunk("b", [6], 3), chunk("", [7], 4), last(4)]
    detokenize = {5: "a", 6: "b", 7: "<|x|>"}
    async with playing(
        completion=sse(*events),
        tokenize=answer({"tokens": [5]}),
        detokenize=lambda body: answer(
            {"content": "".join(detokenize[id] for id in body["tokens"])}
        ),
    ) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 4))
    assert data_in(deltas) == b"a<|x|>b<|x|>"
    assert deltas[-1].end == "length"


async def test_an_older_server_times_only_the_last_chunk() -> None:
    timings = {"cache_n": 3, "prompt_n": 4}
    async with playing(completion=sse(chunk("a", [5], 1), last(1, timings=timings))) as server:
        first, end = await collect(LlamaServerEngine(server.url), asked([1], 1))
    assert (first.cached, first.evaluated) == (None, None)
    assert (end.cached, end.evaluated) == (3, 4)


# Speculative decoding.


async def test_drafts_are_told_with_the_tokens_and_none_is_told_twice() -> None:
    first, second = {"draft_n": 3}, {"draft_n": 6, "draft_n_accepted": 4}
    third = {"draft_n": 9, "draft_n_accepted": 4}
    stream = sse(
        chunk("a", [5], 1, timings={"cache_n": 0, "prompt_n": 2}),
        chunk("b", [6], 2, timings={**first, "draft_n_accepted": 2}),
        chunk("c", [7], 3, timings={**first, "draft_n_accepted": 2}),
        chunk("a", [5], 4, timings=second),
        chunk("", [151645], 5, timings=second),
        last(5, "eos", timings=third),
    )
    async with playing(completion=stream) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 9))
    told = [(each.drafted, each.accepted) for each in deltas]
    assert told == [(None, None), (3, 2), (None, None), (3, 2), (3, 0), (None, None)]
    assert (deltas[-1].end, ids_in(deltas)) == ("turn", [5, 6, 7, 5])


async def test_half_a_count_is_none() -> None:
    stream = sse(chunk("a", [5], 1, timings={"draft_n": 3}), last(1))
    async with playing(completion=stream) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 1))
    assert {each.drafted for each in deltas} == {None}


async def test_drafts_of_tokens_generated_once_more_count() -> None:
    # The text does not tell which two tokens the stream lost: they are asked for once more.
    lost = sse(chunk("龘", [7], 3, timings={"draft_n": 3, "draft_n_accepted": 2}))
    timings = {"draft_n": 2, "draft_n_accepted": 1}
    again = answer({"tokens": [5, 6, 7], "stop_type": "limit", "timings": timings})
    async with playing(completion=[lost, again]) as server:
        deltas = await collect(LlamaServerEngine(server.url), asked([1], 3))
    told = [(each.drafted, each.accepted) for each in deltas if each.drafted]
    assert told == [(3, 2), (2, 1)]
    assert sum(each.repaired for each in deltas) == 3


@pytest.mark.parametrize(
    ("route", "drafts"),
    [
        (answer([{"id": 0, "speculative": True}]), True),
        (answer([{"id": 0, "speculative": False}]), False),
        (answer([{"id": 0}, "?"]), False),
        (answer({"data": []}), False),
        (answer({"error": {"message": "not supported"}}, 501), False),
    ],
)
async def test_whether_it_drafts(route: Reply, drafts: bool) -> None:
    async with playing(slots=route) as server:
        assert (await LlamaServerEngine(server.url).info()).drafts is drafts


# Failures.


async def test_too_long_is_refused_before_it_is_sent() -> None:
    async with playing() as server:
        with pytest.raises(ContextLengthError, match="512 tokens, the context holds 512"):
            await collect(LlamaServerEngine(server.url), asked([1] * 512))
        assert server.bodies("/completion") == []


async def test_too_long_for_the_server() -> None:
    async with playing(completion=answer(load("overflow"), 400)) as server:
        with pytest.raises(ContextLengthError, match="600 tokens, the context holds 512") as caught:
            await collect(LlamaServerEngine(server.url), asked([1]))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("reply", "error", "retryable", "says"),
    [
        (answer(load("invalid"), 400), EngineReplyError, False, "Prompt contains invalid tokens"),
        (answer(load("loading"), 503), EngineReplyError, True, "Loading model"),
        (answer({"error": "busy"}, 429), EngineReplyError, True, "busy"),
        (Reply([b"<h1>Bad\nGateway</h1>"], 502), EngineReplyError, True, "502: <h1>Bad Gateway"),
        (sse({"error": {"code": 500, "message": "oh"}}), EngineReplyError, True, "500: oh"),
        (sse(b"data: {oops\n\n"), EngineReplyError, False, "no JSON"),
        (sse(b"data: 5\n\n"), EngineReplyError, False, "unusable event"),
        (sse({"content": "a"}), EngineReplyError, False, "without tokens"),
        (sse(chunk("a", [], 1)), EngineReplyError, False, "does not return token ids"),
        (sse(last(0, "word")), EngineReplyError, False, "stopped for the reason 'word'"),
        (sse(chunk("a", [5], 1)), EngineReplyError, True, "without its last chunk"),
        (sse(chunk("a", [5], 1), end="break"), EngineUnreachableError, True, "dropped the conn"),
        (sse(end="break"), EngineUnreachableError, True, "dropped the connection"),
    ],
)
async def test_bad_streams(
    reply: Reply, error: type[EngineError], retryable: bool, says: str
) -> None:
    async with playing(completion=reply) as server:
        with pytest.raises(error, match=says) as caught:
            await collect(LlamaServerEngine(server.url, role="large"), asked([1]))
    assert type(caught.value) is error
    assert caught.value.retryable is retryable
    assert caught.value.role == "large"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pings", [[], [b": ping\n\n"] * 10_000])
async def test_a_stalled_stream(pings: list[bytes]) -> None:
    """Pings come for longer than the test may take, and do not count."""
    reply = sse(chunk("a", [5], 1), *pings, pause=0.05, end="hang")
    async with playing(completion=reply) as server:
        engine = LlamaServerEngine(server.url, timeout=2.0)
        with pytest.raises(EngineUnreachableError, match="sent no token for 2 s"):
            await asyncio.wait_for(collect(engine, asked([1])), 30)


async def test_closing_the_stream_closes_the_connection() -> None:
    async with playing(completion=sse(chunk("a", [5], 1), end="hang")) as server:
        stream = LlamaServerEngine(server.url).stream(asked([1]))
        await stream.__anext__()
        assert not server.gone.is_set()
        await stream.aclose()
        await asyncio.wait_for(server.gone.wait(), 1.0)


async def test_cancelling_a_waiting_stream_closes_the_connection() -> None:
    async with playing(completion=sse(end="hang")) as server:
        stream = LlamaServerEngine(server.url).stream(asked([1]))
        task = asyncio.ensure_future(stream.__anext__())
        await asyncio.wait_for(server.begun.wait(), 5.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stream.aclose()
        await asyncio.wait_for(server.gone.wait(), 1.0)


# Slots and connections.


async def test_slots() -> None:
    async with playing(completion=recorded("limit")) as server:
        engine = LlamaServerEngine(server.url)
        for session in ("a", "b", "a", "c", "c"):
            await collect(engine, asked([1], 6, session=session))
        await engine.release("a")
        await engine.release("unknown")
        await collect(engine, asked([1], 6, session="c"))
    assert [body["id_slot"] for body in server.bodies("/completion")] == [0, 1, 0, -1, -1, 0]
    assert engine.slotless == 1


def slots(*busy: bool) -> Reply:
    return answer([{"id": n, "is_processing": each} for n, each in enumerate(busy)])


async def test_settled_waits_for_the_conversations_own_slot() -> None:
    async with playing(
        completion=recorded("limit"),
        slots=[slots(False), slots(True, True), slots(True, True), slots(False, True)],
    ) as server:
        engine = LlamaServerEngine(server.url)
        await collect(engine, asked([1], 6, session="a"))
        assert len(server.bodies("/slots")) == 1  # whether it drafts
        await engine.settled("a")
        assert len(server.bodies("/slots")) == 4


@pytest.mark.parametrize(
    "route", [answer({"error": {"message": "no"}}, 501), answer("?"), answer([])]
)
async def test_settled_never_raises(route: Reply) -> None:
    async with playing(completion=recorded("limit"), slots=route) as server:
        engine = LlamaServerEngine(server.url)
        await collect(engine, asked([1], 6, session="a"))
        await engine.settled("a")
        await engine.settled("unknown")
        assert len(server.bodies("/slots")) == 3


def test_more_than_one_event_loop() -> None:
    engine = LlamaServerEngine(REFUSED)

    async def once() -> None:
        with pytest.raises(EngineUnreachableError):
            await engine.info()

    async def close_twice() -> None:
        await engine.aclose()
        await engine.aclose()

    for _ in range(2):
        asyncio.run(once())
    asyncio.run(close_twice())


def test_recordings_name_no_machine() -> None:
    for path in filter(Path.is_file, RECORDINGS.iterdir()):
        text = path.read_text()
        assert "/" not in json.dumps([part for part in text.split('"') if part.endswith(".gguf")])
