"""Real generations over vLLM: the embedded pair's weights, unpacked."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from relaygen import Generation, LargeOnly, Limits, RandomPolicy, Relay
from relaygen._types import Constraint, Conversation, Message, Sampling, SegmentRequest
from relaygen.engines.vllm import VllmEngine
from relaygen.policies import Policy
from tests.engines.replay import asked, collect, data_in

from .servers import Server
from .test_engine import direct
from .vocabulary import Vocabulary

pytestmark = [pytest.mark.vllm, pytest.mark.anyio]
GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0)
QUESTIONS = (
    "Natalia sold 48 clips in April and half as many in May. How many in all? Explain briefly.",
    "Explain in four sentences why the sky is blue.",
)
NEAR_TIE = 0.001
"""Much less than with quantized weights: what is left is the rounding of float32."""


async def generate(
    large: VllmEngine, small: VllmEngine, question: str, policy: Policy | str, most: int
) -> Generation:
    relay = Relay(large, small)
    return await relay.agenerate(
        question, policy=policy, sampling=GREEDY, limits=Limits(max_tokens=most), seed=1
    )


def check(generation: Generation, vocabulary: Vocabulary) -> None:
    """The kept ids are the text, byte for byte; the counts add up."""
    assert vocabulary.text(generation.ids) == generation.text.encode()
    usage = generation.usage
    assert usage.large_tokens + usage.small_tokens + usage.inserted_tokens == len(generation.ids)
    assert "".join(segment.text for segment in generation.segments) == generation.text


async def margin_at(engine: VllmEngine, ids: tuple[int, ...]) -> float:
    request = SegmentRequest(ids, 1, GREEDY, "margin", top=2)
    async with aclosing(engine.stream(request)) as deltas:
        pieces = [piece async for delta in deltas for piece in delta.pieces]
    assert pieces[0].margin is not None
    return pieces[0].margin


async def compare(
    alone: Generation, relayed: Generation, engine: VllmEngine, question: str
) -> list[str]:
    """Nothing, or the first divergence, which must be a near-tie of the model's best two."""
    one, two = alone.ids, relayed.ids
    if one == two:
        return []
    at = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
    assert at is not None, "one text is a beginning of the other"
    prompt = await engine.render(Relay(engine, engine).task(question).conversation)
    kept = tuple(id for id in one[:at] if id is not None)
    margin = await margin_at(engine, prompt.ids + kept)
    assert margin < NEAR_TIE, f"{question!r} diverges at token {at} with a margin of {margin:.4f}"
    return [f"{question[:40]!r}: token {at}, margin {margin:.5f}"]


async def test_self_relay_identity(
    small: VllmEngine, twin: VllmEngine, vocabulary: Vocabulary
) -> None:
    """One model in both roles writes what it writes alone."""
    handoffs, diverged = 0, []
    for question in QUESTIONS:
        alone = await generate(small, twin, question, LargeOnly(), 120)
        check(alone, vocabulary)
        for policy in ("relay", RandomPolicy(0.5)):
            relayed = await generate(small, twin, question, policy, 120)
            check(relayed, vocabulary)
            handoffs += relayed.usage.handoffs
            diverged += await compare(alone, relayed, small, question)
    print(f"{handoffs} hand-offs; near-ties: {diverged or 'none'}")
    assert handoffs >= 10


async def test_json_of_a_real_model(small: VllmEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"country": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["country", "people"],
        "additionalProperties": False,
    }
    text = "Where is Oslo, and how many people live there? Answer as JSON."
    prompt = await small.render(Conversation((Message("user", text),)))
    constraint = Constraint("json_schema", schema)
    deltas = await collect(small, asked(prompt.ids, 60, constraint=constraint))
    assert deltas[-1].end == "turn"
    found = json.loads(data_in(deltas))
    assert found["country"] == "Norway"
    assert isinstance(found["people"], int)


async def counters(server: Server) -> dict[str, float]:
    """The server's own metrics, summed by name."""
    found: dict[str, float] = {}
    for line in (await direct(server, "/metrics")).splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("vllm:"):
            short = name.split("{")[0].removeprefix("vllm:")
            found[short] = found.get(short, 0) + float(value)
    return found


async def test_an_abort_stops_the_server(small: VllmEngine, small_server: Server) -> None:
    """Not seen with the random model, which is done before the server looks at its connections."""
    before = await counters(small_server)
    prompt = (await small.render(Conversation((Message("user", QUESTIONS[1]),)))).ids
    async with aclosing(small.stream(asked(prompt, 400))) as stream:
        await stream.__anext__()
    for _ in range(200):
        after = await counters(small_server)
        if not after["num_requests_running"]:
            break
        await asyncio.sleep(0.05)
    assert after["num_requests_running"] == after["num_requests_waiting"] == 0
    assert after["request_success_total"] == before["request_success_total"]
    assert 0 < after["generation_tokens_total"] - before["generation_tokens_total"] < 50


async def test_the_pair_is_one(large: VllmEngine, small: VllmEngine) -> None:
    infos = [await engine.info() for engine in (large, small)]
    assert infos[0].vocabulary == infos[1].vocabulary != ""
    conversation = Conversation((Message("user", "What is 2 + 3? Be brief."),))
    prompts = [await engine.render(conversation) for engine in (large, small)]
    assert prompts[0] == prompts[1]
    assert "5" in data_in(await collect(large, asked(prompts[0].ids, 8))).decode()


async def test_a_relayed_chat(large: VllmEngine, small: VllmEngine, vocabulary: Vocabulary) -> None:
    generation = await generate(large, small, QUESTIONS[0], "relay", 250)
    check(generation, vocabulary)
    assert generation.finish == "stop"
    assert "72" in generation.answer
    assert generation.usage.handoffs >= 2
    assert {segment.role for segment in generation.segments} == {"large", "small"}
