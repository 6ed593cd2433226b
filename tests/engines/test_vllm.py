from __future__ import annotations

import asyncio
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
    Piece,
    Sampling,
    SegmentRequest,
    ToolCall,
)
from relaygen.engines.base import Engine
from relaygen.engines.llama_server import LlamaServerEngine
from relaygen.engines.vllm import VllmEngine
from relaygen.mock import MockConfig, serving

from .replay import (
    Reply,
    answer,
    asked,
    collect,
    data_in,
    ids_in,
    load,
    playing,
    recorded,
)
from .vllm_replay import CHAT, RECORDED, choices, chunk, chunks, detokenize, tokenize, vllm_playing

pytestmark = pytest.mark.anyio
A_ID = 64
REFUSED = "http://127.0.0.1:9"
CONVERSATION = (Message("system", "Be brief."), Message("user", "Say hi."))
TOOL: dict[str, Any] = RECORDED["tokenize-chat-tools"]["body"]["tools"][0]


def recorded_ids(name: str) -> list[int]:
    return [id for choice in choices(name) for id in choice["token_ids"]]


# The server's own facts.


async def test_info() -> None:
    async with vllm_playing() as server:
        engine = VllmEngine(server.url + "/v1/", api_key="k", role="small")
        assert isinstance(engine, Engine)
        assert server.calls == []  # nothing at construction
        info = await engine.info()
        assert (info.model, info.context, info.kind) == ("tiny", 512, "vllm")
        assert (info.stop_ids, info.text_only) == (True, False)
        assert info.version == load("vllm/version")["version"]
        assert await engine.info() is info
        assert {fields["authorization"] for fields in server.headers} == {"bearer k"}
        assert info.vocabulary == (await VllmEngine(server.url).info()).vocabulary != ""


async def test_another_vocabulary_has_another_fingerprint() -> None:
    async with vllm_playing(tokenize=[answer({"tokens": [1]}), answer({"tokens": [2]})]) as server:
        first, second = [await VllmEngine(server.url).info() for _ in range(2)]
    assert first.vocabulary != second.vocabulary


async def test_the_fingerprint_is_that_of_a_llama_server_which_cuts_alike() -> None:
    async with vllm_playing(tokenize=answer({"tokens": [1, 2]})) as server:
        ours = await VllmEngine(server.url).info()
    async with playing(tokenize=answer({"tokens": [1, 2]})) as server:
        theirs = await LlamaServerEngine(server.url).info()
    assert ours.vocabulary == theirs.vocabulary


async def test_a_model_by_name() -> None:
    cards = [{"id": "a", "max_model_len": 8}, {"id": "/models/b", "max_model_len": 9}]
    async with vllm_playing(**{"/v1/models": answer({"data": cards})}) as server:
        engine = VllmEngine(server.url, model="/models/b")
        info = await engine.info()
        assert (info.model, info.context) == ("b", 9)
        assert server.bodies("/tokenize")[0]["model"] == "/models/b"
        with pytest.raises(EngineReplyError, match="does not serve c") as caught:
            await VllmEngine(server.url, model="c").info()
    assert caught.value.hint == "it serves a, /models/b"


async def test_it_is_asked_again_until_it_answers() -> None:
    async with vllm_playing(health=[Reply([b""], 503), Reply([b""])]) as server:
        engine = VllmEngine(server.url)
        with pytest.raises(EngineUnreachableError, match="is not ready") as caught:
            await engine.info()
        assert caught.value.retryable
        assert (await engine.info()).context == 512


async def test_wrong_key() -> None:
    refusal = answer(load("vllm/unauthorized"), 401)
    async with vllm_playing(**{"/v1/models": refusal}) as server:
        with pytest.raises(EngineError, match="refused the API key: Unauthorized") as caught:
            await VllmEngine(server.url, role="large").info()
    assert "key" in caught.value.hint


@pytest.mark.parametrize("models", [{}, {"data": []}, {"data": [{"id": "x"}]}, {"data": [1]}, []])
async def test_something_else_answers(models: Any) -> None:
    async with vllm_playing(**{"/v1/models": answer(models)}) as server:
        with pytest.raises(EngineReplyError, match="does not answer as a vLLM server"):
            await VllmEngine(server.url).info()


async def test_nobody_answers() -> None:
    with pytest.raises(EngineUnreachableError, match="cannot be reached"):
        await VllmEngine(REFUSED).info()


# Prompts.


async def render(conversation: Conversation) -> Any:
    texts = {
        tuple(CHAT): load("vllm/detokenize")["prompt"],
        tuple(load("vllm/tokenize-chat-closed")["tokens"]): load("vllm/detokenize")[
            "prompt"
        ].removesuffix("<|im_start|>assistant\n"),
    }
    async with vllm_playing(
        detokenize=lambda body: answer({"prompt": texts.get(tuple(body["tokens"]), "?")})
    ) as server:
        return await VllmEngine(server.url).render(conversation), server


async def test_render() -> None:
    prompt, _ = await render(Conversation(CONVERSATION))
    assert list(prompt.ids) == CHAT
    assert prompt.text == load("vllm/detokenize")["prompt"]
    assert prompt.assistant == "<|im_start|>assistant\n"


async def test_what_reaches_the_template() -> None:
    call = ToolCall("c1", "weather", '{"city": "Oslo"}')
    messages = (
        Message("user", "Is it cold in Oslo?"),
        Message("assistant", "", tool_calls=(call,), reasoning="Look."),
        Message("tool", "-3", tool_call_id="c1", name="weather"),
    )
    conversation = Conversation(messages, "", {"enable_thinking": False}, tools=(TOOL,))
    _, server = await render(conversation)
    sent = [body for body in server.bodies("/tokenize") if "messages" in body]
    assert {body.pop("add_generation_prompt") for body in sent} == {False, True}
    recorded_call = RECORDED["tokenize-chat-called"]["body"]["messages"][1]
    reasoning = {"reasoning": "Look.", "reasoning_content": "Look."}
    assert sent[0] == {
        "model": "tiny",
        "messages": [
            {"role": "user", "content": "Is it cold in Oslo?"},
            {**recorded_call, **reasoning},
            {"role": "tool", "content": "-3", "tool_call_id": "c1", "name": "weather"},
        ],
        "chat_template_kwargs": {"enable_thinking": False},
        "tools": [TOOL],
    }


@pytest.mark.parametrize("same", [True, False])
async def test_a_final_assistant_message_is_left_open(same: bool) -> None:
    begun = Conversation((*CONVERSATION, Message("assistant", "Well,")), prefill=" ")
    text = load("vllm/detokenize")["prompt"]

    def cut(body: Any) -> Reply:
        if body.get("prompt") == text:
            return answer({"tokens": CHAT if same else [1]})
        known = {text + "Well, ": [*CHAT, 5, 6], "Well, ": [7, 8], "\na": [9, A_ID], "\n": [9]}
        found = known.get(body.get("prompt", ""))
        return answer({"tokens": found}) if found else tokenize(body)

    async with vllm_playing(tokenize=cut, detokenize=answer({"prompt": text})) as server:
        prompt = await VllmEngine(server.url).render(begun)
    # Cut as one text where that is how the server cuts the first part, else one behind the other.
    assert list(prompt.ids) == [*CHAT, *([5, 6] if same else [7, 8])]
    assert prompt.text == text + "Well, "
    assert prompt.assistant.endswith("Well, ")


async def test_a_final_assistant_message_that_is_closed() -> None:
    behind = (*CONVERSATION, Message("assistant", "Well,\n "))
    prompt, _ = await render(Conversation(behind, continue_final=False))
    assert list(prompt.ids) == load("vllm/tokenize-chat-behind")["tokens"]


async def test_a_call_cannot_be_continued() -> None:
    message = Message("assistant", "", tool_calls=(ToolCall("a", "f", "{}"),))
    with pytest.raises(UsageError, match="cannot be continued"):
        await VllmEngine(REFUSED).render(Conversation((message,)))


async def test_raw_prompts() -> None:
    async with vllm_playing() as server:
        engine = VllmEngine(server.url)
        text = await engine.render(Conversation((), raw="Once"))
        assert (text.ids, text.text, text.assistant) == ((A_ID,), "Once", "Once")
        sent = {"model": "tiny", "prompt": "Once", "add_special_tokens": True}
        assert server.bodies("/tokenize")[-1] == sent
        ids = await engine.render(Conversation((), raw=(A_ID, 198)))
        assert (ids.ids, ids.text, ids.assistant) == ((A_ID, 198), "a\n", "a\n")


async def test_a_template_that_refuses() -> None:
    refusal = answer(load("vllm/tokenize-chat-missing"), 400)

    def route(body: Any) -> Reply:
        return refusal if "messages" in body else tokenize(body)

    async with vllm_playing(tokenize=route) as server:
        with pytest.raises(EngineReplyError, match="400: 12 validation errors") as caught:
            await VllmEngine(server.url).render(Conversation(CONVERSATION))
    assert not caught.value.retryable
    assert "\n" not in str(caught.value)


async def test_tokenize_as_a_continuation() -> None:
    ids = {"\n": [1], "\na": [1, 2], "a": [3, 2], "\nSo": [1, 5], "So": [6]}

    def spaced(body: Any) -> Reply:
        assert body["add_special_tokens"] is False
        return answer({"tokens": ids.get(body["prompt"], [9])})

    async with vllm_playing(tokenize=spaced) as server:
        engine = VllmEngine(server.url)
        assert await engine.tokenize("") == ()
        assert await engine.tokenize("So") == (5,)  # without the space that is put before a text


async def test_special_tokens_are_plain_text_unless_asked_for() -> None:
    ids = {"a <x> b": [1, 2, 3], "<x>": [2], "<y>": [4, 5], "a <": [6], "x> b <y>": [7], "\n": [8]}

    def route(body: Any) -> Reply:
        text = body["prompt"]
        return answer({"tokens": [8, 9] if text == "\na" else ids.get(text, [9])})

    async with vllm_playing(tokenize=route) as server:
        engine = VllmEngine(server.url)
        assert await engine.tokenize("a <x> b", special=True) == (1, 2, 3)
        assert await engine.tokenize("a <x> b <y>") == (6, 7)
        asked_for = [body["prompt"] for body in server.bodies("/tokenize")]
        assert await engine.tokenize("a <x> b <y>") == (6, 7)
        again = [body["prompt"] for body in server.bodies("/tokenize")][len(asked_for) :]
    assert again == ["a <", "x> b <y>"]  # each marker is looked at once


# Generations.


async def play(name: str, ids: list[int] | None = None, most: int = 100, **fields: Any) -> Any:
    cut = fields.pop("cut", 0)
    async with vllm_playing(completions=recorded(f"vllm/{name}", cut)) as server:
        engine = VllmEngine(server.url)
        deltas = await collect(engine, asked(ids or CHAT, most, **fields))
        return deltas, server


@pytest.mark.parametrize("cut", [0, 1, 7, 400])
async def test_the_end_of_turn_is_stripped(cut: int) -> None:
    deltas, _ = await play("turn", cut=cut, min_tokens=3)
    assert ids_in(deltas) == recorded_ids("turn")[:-1]
    assert data_in(deltas) == b' ="";\nadoado'
    assert deltas[-1].end == "turn"
    assert (deltas[-1].cached, deltas[-1].evaluated) == (0, 19)


@pytest.mark.parametrize("name", ["turn-at-once", "turn-other"])
async def test_a_turn_without_a_word(name: str) -> None:
    deltas, _ = await play(name)
    assert (ids_in(deltas), deltas[-1].end) == ([], "turn")


async def test_a_hint_keeps_its_id() -> None:
    deltas, server = await play("hint", stop_ids=(198, 271))
    assert ids_in(deltas) == recorded_ids("hint")
    assert deltas[-1].pieces[-1].id == 198  # with the end, so nobody aborts
    assert data_in(deltas) == b' ="";\nado\n'
    assert deltas[-1].end == "hint"
    assert server.bodies("/v1/completions")[0]["stop_token_ids"] == [198, 271]
    deltas, _ = await play("hint-at-once", stop_ids=(198,))
    assert (ids_in(deltas), deltas[-1].end) == ([198], "hint")


async def test_the_token_limit() -> None:
    deltas, _ = await play("length", most=6)
    assert ids_in(deltas) == recorded_ids("length")
    assert data_in(deltas).decode() == ' ="";\nadoado军训 más Infant'
    assert deltas[-1].end == "length"


async def test_no_tokens_asked_for() -> None:
    deltas, server = await play("length", most=0)
    assert (ids_in(deltas), deltas[-1].end) == ([], "length")
    assert server.bodies("/v1/completions") == []


async def test_the_context_is_full() -> None:
    deltas, server = await play("context", [100] * 500, 50)
    assert server.bodies("/v1/completions")[0]["max_tokens"] == 12
    assert data_in(deltas).decode() == "ตรวจสอบ" * 12  # not what the first chunk's text holds
    assert deltas[-1].end == "context"
    deltas, _ = await play("context", [100] * 500, 12)
    assert deltas[-1].end == "length"


async def test_the_cached_prefix() -> None:
    deltas, _ = await play("long-cached", CHAT * 5, 6)
    assert (deltas[-1].cached, deltas[-1].evaluated) == (64, 31)
    assert {delta.cached for delta in deltas[:-1]} <= {None}


async def test_a_hidden_cache_is_not_an_empty_one() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "prompt_tokens_details": None}}
    async with vllm_playing(completions=chunks(chunk([10], "+", "length"), usage)) as server:
        deltas = await collect(VllmEngine(server.url), asked([A_ID], 1))
    assert (deltas[-1].cached, deltas[-1].evaluated) == (None, None)


async def test_what_was_drafted_is_told_behind_the_last_token() -> None:
    counts = {"num_draft_tokens": 12, "num_accepted_draft_tokens": 5, "num_spec_steps": 4}
    for metrics, told in (
        ({"speculative_decoding": counts}, (12, 5)),
        ({"speculative_decoding": None}, (None, None)),
        ({"time_to_first_token_ms": 3.0}, (None, None)),
        (None, (None, None)),
    ):
        after: dict[str, Any] = {
            "choices": [],
            "usage": {"prompt_tokens": 1},
            "metrics": metrics,
        }
        async with vllm_playing(completions=chunks(chunk([10], "+", "length"), after)) as server:
            deltas = await collect(VllmEngine(server.url), asked([A_ID], 1))
        assert (deltas[-1].drafted, deltas[-1].accepted) == told


@pytest.mark.parametrize("cut", [0, 5])
async def test_characters_of_several_tokens(cut: int) -> None:
    deltas, _ = await play("rare", cut=cut)
    assert ids_in(deltas) == recorded_ids("rare")[:-1]
    assert data_in(deltas).decode() == "🦄𓀀é龘𠮷" * 2
    assert not any(piece.data == b"" for delta in deltas for piece in delta.pieces)


async def test_an_unfinished_character_writes_nothing_yet() -> None:
    deltas, _ = await play("rare-cut", most=3)
    assert ids_in(deltas) == [172, 253, 99]
    assert data_in(deltas) == b""


async def test_a_character_that_the_prompt_began() -> None:
    deltas, _ = await play("rare-begun", [*CHAT, 124373], 4)
    assert ids_in(deltas) == [222] * 4
    assert data_in(deltas).decode() == "𓀀"  # the other two begin no character


async def test_bursts() -> None:
    deltas, _ = await play("burst", most=9)
    assert ids_in(deltas) == recorded_ids("burst")
    assert data_in(deltas).decode() == ' ="";\nadoado军训 más Infantwheel.Desc'


async def test_bytes_are_learned_from_the_text() -> None:
    events = [chunk([10], "+"), chunk([11], "b"), chunk([12], "c"), chunk([11], "b", "length")]
    known = {A_ID: "a", 10: "+"}

    def once(body: Any) -> Reply:
        return answer({"prompt": "".join(known[id] for id in body["tokens"])})

    async with vllm_playing(completions=chunks(*events), detokenize=once) as server:
        engine = VllmEngine(server.url)
        for _ in range(2):
            deltas = await collect(engine, asked([A_ID], 4))
            assert data_in(deltas) == b"+bcb"
        # The first text of a stream is not trusted, so its token was asked for: once.
        assert [body["tokens"] for body in server.bodies("/detokenize")] == [[A_ID], [A_ID, 10]]


@pytest.mark.parametrize("tidy", [True, False])
async def test_a_server_that_tidies_spaces_up(tidy: bool) -> None:
    """As Llama 3's tokenizer is set to: `` .`` and ``.`` look alike then."""
    texts = {A_ID: "a", 1: " .", 2: ".", 3: " n't", 4: "?!"}
    ids = {text: id for id, text in texts.items()}

    def back(body: Any) -> Reply:
        text = "".join(texts[id] for id in body["tokens"])
        return answer({"prompt": text.replace(" .", ".").replace(" n't", "n't") if tidy else text})

    def cut(body: Any) -> Reply:
        rest = body["prompt"].removeprefix("a")
        return answer({"tokens": [A_ID, *([ids[rest]] if rest in ids else [])]})

    one = chunks(chunk([1, 2, 3, 4, 1], "?", "length"))
    async with vllm_playing(completions=one, detokenize=back, tokenize=cut) as server:
        deltas = await collect(VllmEngine(server.url), asked([A_ID], 5))
    assert data_in(deltas) == b" .. n't?! ."


async def test_a_token_that_is_no_character() -> None:
    """The server writes nothing as long as its text ends badly; four tokens are enough to wait."""
    events = [chunk([10], "+"), *[chunk([99], "")] * 5, chunk([10], "\ufffd" * 5 + "+", "length")]
    async with vllm_playing(completions=chunks(*events)) as server:
        deltas = await collect(VllmEngine(server.url), asked([A_ID], 7))
    assert ids_in(deltas) == [10, 99, 99, 99, 99, 99, 10]
    assert data_in(deltas).decode() == "+" + "\ufffd" * 5 + "+"


async def test_candidates() -> None:
    deltas, server = await play("sampled", most=6, top=2)
    first = deltas[0].pieces[0]
    assert first.id == 59201
    assert len(first.top) == 2
    assert first.id not in dict(first.top)  # drawn, but not of the two best
    assert first.top[0][1] > first.top[1][1]
    body = server.bodies("/v1/completions")[0]
    assert (body["logprobs"], body["return_tokens_as_token_ids"]) == (2, True)


async def test_margins_do_not_depend_on_the_temperature() -> None:
    margins = []
    for name in ("margin-warm", "margin-cool"):
        deltas, _ = await play(name, most=1, top=2)
        margins.append(deltas[0].pieces[0].margin)
    assert margins[0] == pytest.approx(margins[1])


async def test_margins_of_a_character_of_several_tokens() -> None:
    deltas, _ = await play("rare", top=2)
    assert all(len(piece.top) == 2 for delta in deltas for piece in delta.pieces)


@pytest.mark.parametrize("entry", [[{"x": -1.0}], [{"token_id:5": "y"}], [1], [{}, {}], 3])
async def test_candidates_that_make_no_sense(entry: Any) -> None:
    event = chunk([10], "+", logprobs={"top_logprobs": entry})
    async with vllm_playing(completions=chunks(event)) as server:
        with pytest.raises(EngineReplyError, match="candidates"):
            await collect(VllmEngine(server.url), asked([A_ID], 1, top=2))


async def test_everything_is_sent_explicitly() -> None:
    sampling = Sampling(0.6, 0.9, 7, 0.05, {13: -1.5}, 0.5, -0.5, 1.1)
    form = Constraint("regex", "[0-9]")
    async with vllm_playing(completions=recorded("vllm/length")) as server:
        engine = VllmEngine(server.url)
        request = SegmentRequest((5, 6), 6, sampling, "s", 3, 2, None, 2, (9,), form)
        await collect(engine, request)
        await collect(engine, asked([5, 6, 7], 6))
        ids = [fields["x-request-id"] for fields in server.headers if "x-request-id" in fields]
    full, bare = server.bodies("/v1/completions")
    always = {
        "model": "tiny",
        "max_tokens": 6,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "include_stop_str_in_output": True,
        "ignore_eos": False,
    }
    assert full == {
        **always,
        "prompt": [5, 6],
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.05,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "logit_bias": {"13": -1.5},
        "min_tokens": 2,  # and no stop ids: the server would forbid them until then
        "seed": 3,
        "logprobs": 2,
        "return_tokens_as_token_ids": True,
        "structured_outputs": {"regex": "[0-9]"},
    }
    assert bare == {
        **always,
        "prompt": [5, 6, 7],
        "temperature": 0.0,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_tokens": 0,
    }
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("name", "constraint", "text"),
    [
        ("form-json", Constraint("json_schema", {"type": "object"}), '{"ok":true,"size":"S"}'),
        ("form-object", Constraint("json_object"), None),
        ("form-regex", Constraint("regex", "[0-9]{3}-[a-c]"), None),
        ("form-choice", Constraint("choice", ["yes", "no"]), None),
        ("form-grammar", Constraint("grammar", 'root ::= "ab" | "cd"'), None),
    ],
)
async def test_constraints(name: str, constraint: Constraint, text: str | None) -> None:
    deltas, server = await play(name, most=30, constraint=constraint)
    asked_then = RECORDED[name]["body"]["structured_outputs"]
    sent = server.bodies("/v1/completions")[0]["structured_outputs"]
    assert list(sent) == list(asked_then)
    if name != "form-json":
        assert sent == asked_then
    if text:
        assert data_in(deltas).decode() == text


# Failures.


async def test_too_long_is_refused_before_it_is_sent() -> None:
    async with vllm_playing() as server:
        with pytest.raises(ContextLengthError, match="512 tokens, the context holds 512"):
            await collect(VllmEngine(server.url), asked([1] * 512))
        assert server.bodies("/v1/completions") == []


@pytest.mark.parametrize(
    ("reply", "error", "retryable", "says"),
    [
        (answer(load("vllm/too-long"), 400), ContextLengthError, False, "maximum context length"),
        (answer(load("vllm/no-such-model"), 404), EngineReplyError, False, "404: The model"),
        (answer(load("vllm/form-unknown"), 400), EngineReplyError, False, "400: You must use one"),
        (recorded("vllm/no-such-id"), EngineReplyError, False, "400: Token id 999999 is out of"),
        (recorded("vllm/dead"), EngineReplyError, True, "500: EngineCore encountered an issue"),
        (answer({"error": "busy"}, 429), EngineReplyError, True, "429: busy"),
        (answer({"message": "flat"}, 500), EngineReplyError, True, "500: flat"),
        (Reply([b"<h1>Bad\nGateway</h1>"], 502), EngineReplyError, True, "502: <h1>Bad Gateway"),
        (chunks(b"data: {oops\n\n"), EngineReplyError, False, "no JSON"),
        (chunks(b"data: 5\n\n"), EngineReplyError, False, "unusable event"),
        (chunks({"choices": [{"text": "a"}]}), EngineReplyError, False, "without token_ids"),
        (chunks(chunk([1.5], "a")), EngineReplyError, False, "without token_ids"),  # type: ignore[list-item]
        (chunks(chunk([10], "+", "abort")), EngineReplyError, True, "the reason 'abort'"),
        (chunks(chunk([10], "+", "stop", stop_reason="x")), EngineReplyError, False, "'stop'"),
        (chunks(chunk([10], "+")), EngineReplyError, True, "without its last chunk"),
        (chunks(chunk([10], "+"), end="break"), EngineReplyError, True, "without its last chunk"),
        (recorded("vllm/text"), EngineReplyError, False, "without token_ids"),
    ],
)
async def test_bad_streams(
    reply: Reply, error: type[EngineError], retryable: bool, says: str
) -> None:
    async with vllm_playing(completions=reply) as server:
        with pytest.raises(error, match=says) as caught:
            await collect(VllmEngine(server.url, role="large"), asked([A_ID]))
    assert type(caught.value) is error
    assert caught.value.retryable is retryable
    assert caught.value.role == "large"
    assert "\n" not in str(caught.value)


async def test_tokens_before_an_error_are_given() -> None:
    async with vllm_playing(completions=recorded("vllm/dead")) as server:
        stream = VllmEngine(server.url).stream(asked(CHAT))
        assert (await stream.__anext__()).pieces == (Piece(98737, b' ="";\n'),)
        with pytest.raises(EngineReplyError, match="EngineCore"):
            await stream.__anext__()


async def test_a_break_behind_the_last_token_is_no_failure() -> None:
    reply = Reply(
        [f"data: {line}\n\n".encode() for line in ['{"choices":[]}']],
        kind="text/event-stream",
        end="break",
    )
    last = chunks(chunk([10], "+", "length")).parts[0]
    async with vllm_playing(
        completions=Reply([last, *reply.parts], kind="text/event-stream", end="break")
    ) as server:
        deltas = await collect(VllmEngine(server.url), asked([A_ID], 1))
    assert (ids_in(deltas), deltas[-1].end) == ([10], "length")


async def test_closing_the_stream_closes_the_connection() -> None:
    async with vllm_playing(completions=chunks(chunk([10], "+"), end="hang")) as server:
        server.routes["/v1/completions"] = Reply(
            [chunks(chunk([10], "+")).parts[0]], kind="text/event-stream", end="hang"
        )
        stream = VllmEngine(server.url).stream(asked([A_ID]))
        await stream.__anext__()
        assert not server.gone.is_set()
        await stream.aclose()
        await asyncio.wait_for(server.gone.wait(), 5.0)


async def test_a_server_that_detokenizes_nothing() -> None:
    async with vllm_playing(
        completions=chunks(chunk([10], "+")), detokenize=answer({"text": "?"})
    ) as server:
        with pytest.raises(EngineReplyError, match="without a text"):
            await collect(VllmEngine(server.url), asked([A_ID]))


# With the mock engine, which has routes, caches and timing of its own.


async def test_a_whole_conversation_with_the_mock() -> None:
    with serving(MockConfig(show_cached=True, token_ms=0.2)) as url:
        engine, other = VllmEngine(url), VllmEngine(url)
        assert (await engine.info()).vocabulary == (await other.info()).vocabulary
        prompt = await engine.render(Conversation((Message("user", "Add 17 and 25."),)))
        whole = await collect(engine, asked(prompt.ids, 1000))
        text = data_in(whole)
        assert whole[-1].end == "turn"
        # In parts, by another engine that has learned nothing yet, the text is the same.
        ids, parts = list(prompt.ids), b""
        for _ in range(1000):
            deltas = await collect(other, asked(ids, 7))
            ids += [id for id in ids_in(deltas) if id is not None]
            parts += data_in(deltas)
            if deltas[-1].end == "turn":
                break
        assert parts == text
        assert deltas[-1].cached
        await engine.aclose()
        await other.aclose()


def test_detokenize_is_the_recorded_servers() -> None:
    assert detokenize({"tokens": [124373, 222]}).parts == answer(load("vllm/detokenize-part")).parts
