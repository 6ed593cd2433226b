"""The adapter against a real server of a random model: what becomes of tokens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from relaygen._errors import ContextLengthError, EngineError
from relaygen._types import (
    Constraint,
    Conversation,
    Message,
    Sampling,
    SegmentRequest,
    ToolCall,
)
from relaygen.engines._margins import margins_are_raw
from relaygen.engines.vllm import VllmEngine
from tests.engines.replay import asked, collect, data_in, ids_in

from .servers import BLOCK, CONTEXT, KEY, Server, kill_core, serving
from .vocabulary import Vocabulary

pytestmark = [pytest.mark.vllm, pytest.mark.anyio]
IM_END, END_OF_TEXT, NEWLINE = 151645, 151643, 198
BYTE_80 = 222
"""A token that continues a character, and is none."""
RARE = "🦄𓀀é龘𠮷"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASKED = (Message("system", "Be brief."), Message("user", "Is it cold in Oslo?"))
BEGUN = (*ASKED, Message("assistant", "Well,\n "))
CALLED = (
    *ASKED,
    Message("assistant", "", tool_calls=(ToolCall("c1", "weather", '{"city": "Oslo"}'),)),
    Message("tool", "-3", tool_call_id="c1"),
)


async def direct(server: Server, path: str, body: dict[str, Any] | None = None) -> Any:
    """The server's own answer."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=120) as client:
        reply = await (client.get(path) if body is None else client.post(path, json=body))
        assert reply.status_code == 200, reply.text
        return reply.json() if "json" in reply.headers["content-type"] else reply.text


async def whole(server: Server, ids: Sequence[int], most: int, **fields: Any) -> list[int]:
    """The ids of a greedy generation that is not streamed."""
    body = {"prompt": list(ids), "max_tokens": most, "temperature": 0, "return_token_ids": True}
    reply = await direct(server, "/v1/completions", {**body, **fields})
    found: list[int] = reply["choices"][0]["token_ids"]
    return found


async def ids_of(server: Server, text: str) -> list[int]:
    body = {"prompt": text, "add_special_tokens": False}
    found: list[int] = (await direct(server, "/tokenize", body))["tokens"]
    return found


def biased(*ids: int, temperature: float = 0.0) -> Sampling:
    """Nearly nothing but these."""
    return Sampling(temperature, 1.0, 0, 0.0, dict.fromkeys(ids, 100.0))


def request(ids: Sequence[int], most: int, sampling: Sampling, **fields: Any) -> SegmentRequest:
    return SegmentRequest(tuple(ids), most, sampling, "s", seed=7, **fields)


async def test_info(tiny: VllmEngine, tiny_server: Server) -> None:
    info = await tiny.info()
    assert (info.model, info.context, info.kind) == ("tiny", CONTEXT, "vllm")
    assert info.stop_ids
    assert not info.text_only
    again = VllmEngine(tiny_server.url, api_key=KEY)
    assert info.vocabulary == (await again.info()).vocabulary != ""
    await again.aclose()


async def test_a_wrong_key(tiny_server: Server) -> None:
    engine = VllmEngine(tiny_server.url, api_key="wrong")
    with pytest.raises(EngineError, match=r"(?i)key"):
        await engine.info()
    await engine.aclose()


def openai(message: Message) -> dict[str, Any]:
    """A message as a client of the chat route writes it."""
    calls = [
        {
            "id": each.id,
            "type": "function",
            "function": {"name": each.name, "arguments": each.arguments},
        }
        for each in message.tool_calls
    ]
    extra: dict[str, Any] = {"tool_calls": calls} if calls else {}
    extra |= {"tool_call_id": message.tool_call_id} if message.tool_call_id else {}
    return {"role": message.role, "content": message.content, **extra}


@pytest.mark.parametrize(
    ("conversation", "fields"),
    [
        (Conversation(ASKED[1:]), {}),
        (Conversation(ASKED), {}),
        (Conversation(BEGUN), {"continue_final_message": True, "add_generation_prompt": False}),
        (Conversation(BEGUN, continue_final=False), {}),
        (Conversation((*BEGUN, *ASKED[1:])), {}),
        (Conversation(ASKED, tools=(TOOL,)), {"tools": [TOOL], "tool_choice": "none"}),
        (Conversation(CALLED, tools=(TOOL,)), {"tools": [TOOL], "tool_choice": "none"}),
        (
            Conversation(ASKED, template_kwargs={"documents": []}),
            {"chat_template_kwargs": {"documents": []}},
        ),
    ],
)
async def test_render_is_what_the_chat_route_does(
    tiny: VllmEngine, tiny_server: Server, conversation: Conversation, fields: dict[str, Any]
) -> None:
    prompt = await tiny.render(conversation)
    body = {"messages": list(map(openai, conversation.messages)), "max_tokens": 1}
    reply = await direct(
        tiny_server, "/v1/chat/completions", {**body, "return_token_ids": True, **fields}
    )
    assert list(prompt.ids) == reply["prompt_token_ids"]
    text = (await direct(tiny_server, "/detokenize", {"tokens": list(prompt.ids)}))["prompt"]
    assert prompt.text == text
    begun = BEGUN[-1].content if fields.get("continue_final_message") else ""
    assert prompt.assistant == "<|im_start|>assistant\n" + begun
    assert text.endswith(prompt.assistant)


async def test_render_with_a_prefill(tiny: VllmEngine, tiny_server: Server) -> None:
    plain = await tiny.render(Conversation(ASKED))
    opened = await tiny.render(Conversation(ASKED, prefill="<think>\n"))
    assert opened.text == plain.text + "<think>\n"
    assert opened.assistant == plain.assistant + "<think>\n"
    assert list(opened.ids) == await ids_of(tiny_server, opened.text)


async def test_render_of_a_text(tiny: VllmEngine, tiny_server: Server) -> None:
    text = f"<|im_start|>x\n{RARE}"
    prompt = await tiny.render(Conversation((), raw=text))
    body = {"prompt": text, "max_tokens": 1, "return_token_ids": True}
    reply = await direct(tiny_server, "/v1/completions", body)
    assert list(prompt.ids) == reply["choices"][0]["prompt_token_ids"]
    assert prompt.text == prompt.assistant == text
    ids = (124373, 222)  # the first half of a character
    assert (await tiny.render(Conversation((), raw=ids))).ids == ids


async def test_tokenize(tiny: VllmEngine, tiny_server: Server, vocabulary: Vocabulary) -> None:
    for text in ("", " x", f"Hi.\n\n {RARE}"):
        ids = await tiny.tokenize(text)
        assert list(ids) == await ids_of(tiny_server, text)
        assert vocabulary.text(ids) == text.encode()
    marked = "a <|im_end|>\n<tool_call>"
    assert IM_END in await tiny.tokenize(marked, special=True)
    plain = await tiny.tokenize(marked)  # the server knows no such thing
    assert max(plain) < END_OF_TEXT
    assert vocabulary.text(plain) == marked.encode()


async def test_streamed_ids_are_the_servers_own(
    tiny: VllmEngine, tiny_server: Server, vocabulary: Vocabulary
) -> None:
    prompt = (await tiny.render(Conversation(ASKED))).ids
    deltas = await collect(tiny, asked(prompt, 120))
    assert ids_in(deltas) == await whole(tiny_server, prompt, 120)
    assert len(deltas) > 5
    assert seen(data_in(deltas)) == seen(vocabulary.text(ids_in(deltas)))
    assert deltas[-1].end == "length"


def seen(data: bytes) -> str:
    """As a reader sees it.

    How many marks stand for bytes that are no text is left open, and the beginning of a character
    is not written before its end.
    """
    return re.sub("\ufffd+", "\ufffd", data.decode(errors="replace")).rstrip("\ufffd")


async def test_whatever_is_drawn(tiny: VllmEngine, vocabulary: Vocabulary) -> None:
    """Bytes that are no text, and characters in pieces, beside the rarest tokens."""
    odd = [id for id, data in vocabulary.data.items() if id < END_OF_TEXT and data[:1] >= b"\x80"]
    bias = dict.fromkeys(odd[::97], 8.0) | dict.fromkeys(range(94, 256), 12.0)
    deltas = await collect(tiny, request([NEWLINE], 300, Sampling(2.0, 1.0, 0, 0.0, bias)))
    ids = ids_in(deltas)
    assert len(ids) == 300
    assert len(set(ids)) > 100
    assert "\ufffd" in vocabulary.text(ids).decode(errors="replace")
    assert seen(data_in(deltas)) == seen(vocabulary.text(ids))


@pytest.mark.parametrize("most", range(1, 13))
async def test_a_text_of_rare_characters_in_many_requests(
    tiny: VllmEngine, vocabulary: Vocabulary, most: int
) -> None:
    """Cut anywhere, then token by token: as a whole it is the text."""
    choice = Constraint("choice", [RARE])
    whole = ids_in(await collect(tiny, asked([NEWLINE], 40, constraint=choice)))
    assert vocabulary.text(whole) == RARE.encode()
    assert len(whole) > most - 1
    deltas = await collect(tiny, asked([NEWLINE], most, constraint=choice))
    assert ids_in(deltas) == whole[:most]
    written = data_in(deltas)
    assert vocabulary.text(whole[:most]).startswith(written)
    for place in range(most, len(whole)):
        ids = [NEWLINE, *(id for id in whole[:place] if id is not None)]
        deltas = await collect(tiny, request(ids, 1, biased(whole[place] or 0)))
        assert ids_in(deltas) == whole[place : place + 1]
        written += data_in(deltas)
    assert written.decode() == RARE


async def test_a_prompt_that_ends_inside_a_character(
    tiny: VllmEngine, vocabulary: Vocabulary
) -> None:
    """Its end is written with what completes it; what the server writes is the whole prompt."""
    prompt = (await tiny.render(Conversation(ASKED))).ids
    (*half, last) = await tiny.tokenize("𓀀")
    assert (last, len(half)) == (BYTE_80, 2)
    deltas = await collect(tiny, request((*prompt, *half), 3, biased(BYTE_80)))
    assert ids_in(deltas) == [BYTE_80] * 3
    assert seen(data_in(deltas)) == "𓀀"


@pytest.mark.parametrize("id", [IM_END, END_OF_TEXT])
async def test_the_end_of_the_turn(tiny: VllmEngine, id: int) -> None:
    deltas = await collect(tiny, request([NEWLINE], 20, biased(id)))
    assert (ids_in(deltas), deltas[-1].end) == ([], "turn")
    deltas = await collect(tiny, request([NEWLINE], 20, biased(id), min_tokens=3))
    assert (len(ids_in(deltas)), deltas[-1].end) == (3, "turn")
    assert id not in ids_in(deltas)


async def test_a_hint(tiny: VllmEngine) -> None:
    wanted = (271, NEWLINE)
    deltas = await collect(tiny, request([9707], 20, biased(NEWLINE), stop_ids=wanted))
    assert (ids_in(deltas), deltas[-1].end, data_in(deltas)) == ([NEWLINE], "hint", b"\n")
    # vLLM would forbid the ids until then, but a hint must not change what is written.
    deltas = await collect(
        tiny, request([9707], 20, biased(NEWLINE), stop_ids=wanted, min_tokens=4)
    )
    assert ids_in(deltas)[0] == NEWLINE
    deltas = await collect(tiny, request([9707], 20, biased(IM_END), stop_ids=wanted))
    assert (ids_in(deltas), deltas[-1].end) == ([], "turn")
    many = tuple(range(1000, 1300))  # there is no limit as there is for stop strings
    deltas = await collect(tiny, request([9707], 5, biased(1299), stop_ids=many))
    assert (ids_in(deltas), deltas[-1].end) == ([1299], "hint")


SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["S", "M"]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        (Constraint("regex", "[0-9]{3}-[a-c]"), "[0-9]{3}-[a-c]"),
        (Constraint("choice", ["yes", "no"]), "yes|no"),
        (Constraint("grammar", 'root ::= "ab" | "cd"'), "ab|cd"),
        (Constraint("json_schema", SCHEMA), r'\{"ok":(true|false),"size":"[SM]"\}'),
        (Constraint("json_object"), r"\{.*"),
    ],
)
async def test_a_constraint(
    tiny: VllmEngine, tiny_server: Server, constraint: Constraint, pattern: str
) -> None:
    # Else a random model fills the blanks that JSON allows.
    parts = ("{", '"', "ok", ":", "true", ",", "size", "S", "}")
    wished = [id for part in parts for id in await ids_of(tiny_server, part)]
    sampling = biased(*wished) if constraint.kind.startswith("json") else Sampling(1.0)
    deltas = await collect(tiny, request([NEWLINE], 60, sampling, constraint=constraint))
    text = data_in(deltas).decode()
    assert re.fullmatch(pattern, text, re.DOTALL), text
    assert deltas[-1].end == "turn" or constraint.kind == "json_object"


async def test_a_constraint_that_is_none(tiny: VllmEngine) -> None:
    """vLLM refuses it only after it has opened the stream."""
    with pytest.raises(EngineError, match=r"(?s)\[0-9"):
        await collect(tiny, asked([NEWLINE], 5, constraint=Constraint("regex", "[0-9")))
    assert len(ids_in(await collect(tiny, asked([NEWLINE], 2)))) == 2


async def test_margins(tiny: VllmEngine) -> None:
    prompt = (await tiny.render(Conversation(ASKED))).ids
    assert await margins_are_raw(tiny, prompt, "margins") is True
    deltas = await collect(tiny, request(prompt, 20, Sampling(2.0, 1.0, 0), top=2))
    pieces = [piece for delta in deltas for piece in delta.pieces]
    assert all(len(piece.top) == 2 for piece in pieces)
    assert all(piece.top[0][1] >= piece.top[1][1] for piece in pieces)
    assert any(piece.id not in dict(piece.top) for piece in pieces)  # drawn from far behind
    assert not any(
        piece.top for delta in await collect(tiny, asked(prompt, 3)) for piece in delta.pieces
    )


async def test_the_best_candidate_is_what_greedy_takes(tiny: VllmEngine) -> None:
    prompt = (await tiny.render(Conversation(ASKED))).ids
    for delta in await collect(tiny, asked(prompt, 40, top=3)):
        for piece in delta.pieces:
            assert len(piece.top) == 3
            assert piece.id == piece.top[0][0]


async def test_a_seed_repeats_and_another_does_not(tiny: VllmEngine) -> None:
    drawn = [
        ids_in(await collect(tiny, SegmentRequest((NEWLINE,), 10, Sampling(1.0), "s", seed=seed)))
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


async def test_the_context_ends(tiny: VllmEngine) -> None:
    for size in (CONTEXT, CONTEXT + 100):
        with pytest.raises(ContextLengthError, match=str(CONTEXT)):
            await collect(tiny, asked([100] * size, 5))
    for left, most, end in ((12, 50, "context"), (12, 12, "length"), (1, 1, "length")):
        deltas = await collect(tiny, request([100] * (CONTEXT - left), most, biased(NEWLINE)))
        assert (len(ids_in(deltas)), deltas[-1].end) == (min(most, left), end)
    many = CONTEXT + 1000  # alone more than the server would take
    deltas = await collect(tiny, request([100] * (CONTEXT - 20), many, biased(NEWLINE)))
    assert (len(ids_in(deltas)), deltas[-1].end) == (20, "context")


async def test_the_prefix_cache_is_seen(tiny: VllmEngine) -> None:
    prompt = [*range(2000, 2100)]
    told = []
    for _ in range(2):
        deltas = await collect(tiny, asked(prompt, 2))
        told.append([(each.cached, each.evaluated) for each in deltas if each.cached is not None])
    whole_blocks = len(prompt) // BLOCK * BLOCK
    assert told == [[(0, 100)], [(whole_blocks, 100 - whole_blocks)]]


async def test_many_at_once(tiny: VllmEngine, vocabulary: Vocabulary) -> None:
    """More streams than the server takes at a time; each is its own."""
    prompts = [[1000 + number] * 5 for number in range(12)]
    alone = [await collect(tiny, request(ids, 30, biased(ids[0]))) for ids in prompts]
    together = await asyncio.gather(
        *(collect(tiny, request(ids, 30, biased(ids[0]))) for ids in prompts)
    )
    for one, other, ids in zip(alone, together, prompts, strict=True):
        assert ids_in(one) == ids_in(other) == ids[:1] * 30
        assert data_in(other) == vocabulary.text(ids_in(other))


async def test_a_server_that_dies() -> None:
    """Its computing process is killed in mid-stream: an error, never a regular end."""
    with serving("tiny") as server:
        engine = VllmEngine(server.url, api_key=KEY)
        await engine.info()
        task = asyncio.ensure_future(collect(engine, request([NEWLINE], 1900, biased(NEWLINE))))
        await asyncio.sleep(0.2)  # of several seconds
        kill_core(server)
        with pytest.raises(EngineError) as caught:
            await task
        assert "\n" not in str(caught.value)
        with pytest.raises(EngineError):
            await collect(engine, asked([NEWLINE], 5))
        await engine.aclose()
