"""Teacher forcing through each engine, on replies in the documented shapes."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from relaygen._errors import (
    ContextLengthError,
    EngineReplyError,
    MissingExtraError,
    ModelNotFoundError,
)
from relaygen.engines._scoring import (
    UNKNOWN,
    Expected,
    Scoring,
    Spelling,
    expected,
    parse_llama_scores,
    parse_sglang_scores,
    parse_vllm_scores,
)
from relaygen.engines.embedded import EmbeddedEngine
from relaygen.engines.llama_server import LlamaServerEngine
from relaygen.engines.sglang import SglangEngine
from relaygen.engines.transformers_local import TransformersScorer
from relaygen.engines.vllm import VllmEngine

from .fake_sglang import sglang_playing
from .replay import answer, playing
from .vllm_replay import vllm_playing

pytestmark = pytest.mark.anyio


async def scored(engine: Any, ids: Sequence[int], start: int) -> list[Expected]:
    scoring: Scoring = engine
    assert isinstance(scoring, Scoring)
    found = [each async for each in scoring.score(ids, start, "s")]
    await engine.release("s")
    return found


def entry(*ranked: tuple[int, int, float]) -> dict[str, Any]:
    return {
        str(id): {"logprob": math.log(p), "rank": rank, "decoded_token": f"t{id}"}
        for id, rank, p in ranked
    }


PROMPT_LOGPROBS = [
    None,
    entry((11, 1, 0.7), (5, 2, 0.2)),
    entry((12, 40, 0.01), (8, 1, 0.6), (9, 2, 0.3)),  # the prompt token is neither of the two
    entry((13, 2, 0.4), (7, 1, 0.5)),
]
MARGINS = [0.5, 0.3, 0.1]


def near(found: list[Expected], margins: Sequence[float], top: Sequence[int]) -> None:
    assert [each[0] for each in found] == pytest.approx(margins)
    assert [each[1] for each in found] == list(top)


async def test_vllm_scores_in_one_request() -> None:
    reply = {"choices": [{"prompt_logprobs": PROMPT_LOGPROBS, "text": "x"}]}
    async with vllm_playing(**{"v1/completions": answer(reply)}) as server:
        engine = VllmEngine(server.url)
        near(await scored(engine, [10, 11, 12, 13], 1), MARGINS, [11, 8, 7])
        near(await scored(engine, [10, 11, 12, 13], 3), MARGINS[2:], [7])
        assert (await scored(engine, [10, 11, 12, 13], 0))[0] == UNKNOWN
        assert await scored(engine, [10, 11, 12, 13], 4) == []
        sent = server.bodies("/v1/completions")
        with pytest.raises(ContextLengthError):
            await scored(engine, range(512), 3)
        await engine.aclose()
    assert len(sent) == 3
    assert sent[0]["prompt"] == [10, 11, 12, 13]
    assert (sent[0]["prompt_logprobs"], sent[0]["max_tokens"]) == (2, 1)
    assert not sent[0].get("stream")


@pytest.mark.parametrize(
    "reply", [{}, {"choices": [{"prompt_logprobs": None}]}, 3, {"choices": []}]
)
def test_vllm_without_log_probabilities(reply: Any) -> None:
    with pytest.raises(EngineReplyError):
        parse_vllm_scores(reply, 4, 1)


def test_vllm_with_as_many_entries_as_ids_only() -> None:
    with pytest.raises(EngineReplyError):
        parse_vllm_scores({"choices": [{"prompt_logprobs": PROMPT_LOGPROBS}]}, 5, 1)
    alone = {
        "choices": [
            {"prompt_logprobs": [None, entry((1, 1, 0.9)), entry((3, 7, 0.1), (2, 1, 0.5))]}
        ]
    }
    assert parse_vllm_scores(alone, 3, 1) == [(None, 1), (None, 2)]


def probabilities(*best: tuple[int, float]) -> dict[str, Any]:
    top = [{"id": id, "token": "x", "bytes": [120], "logprob": math.log(p)} for id, p in best]
    return {"completion_probabilities": [{"id": 64, "logprob": -9.0, "top_logprobs": top}]}


async def test_llama_server_scores_position_by_position() -> None:
    replies = [answer(probabilities((7, p), (8, 0.1))) for p in (0.6, 0.4, 0.2)]
    async with playing(completion=replies, tokenize=answer({"tokens": [64]})) as server:
        engine = LlamaServerEngine(server.url)
        near(await scored(engine, [10, 11, 12, 13, 14], 2), [0.5, 0.3, 0.1], [7, 7, 7])
        sent = server.bodies("/completion")
        assert [each["prompt"] for each in sent] == [[10, 11], [10, 11, 12], [10, 11, 12, 13]]
        for each in sent:
            assert (each["n_predict"], each["n_probs"]) == (1, 2)
            assert each["logit_bias"] == [[64, 1000]]  # its entry is never dropped
            assert each["id_slot"] == sent[0]["id_slot"] >= 0
        # Nothing of what another text left in the slot.
        assert [each["cache_prompt"] for each in sent] == [False, True, True]
        assert await scored(engine, [10], 0) == [UNKNOWN]
        with pytest.raises(ContextLengthError):
            await scored(engine, range(1 << 20), 3)
        await engine.aclose()


@pytest.mark.parametrize("reply", [{}, {"completion_probabilities": []}, [], None])
def test_llama_server_without_probabilities(reply: Any) -> None:
    with pytest.raises(EngineReplyError):
        parse_llama_scores(reply)


def test_one_candidate_has_no_margin() -> None:
    assert expected([]) == UNKNOWN
    assert expected([(3, -0.1)]) == (None, 3)
    assert expected([(3, 1e-9), (4, -math.inf)]) == (1.0, 3)


def test_sglang_by_its_documented_shape() -> None:
    best = [[[math.log(0.2), 5, None], [math.log(0.7), 4, None]], [[math.log(0.9), 6, None]]]
    reply = {"meta_info": {"input_top_logprobs": [None, *best]}}
    found = parse_sglang_scores(reply, size=5, start=3)
    near(found[:1], [0.5], [4])
    assert found[1:] == [(None, 6)]
    for wrong in ({}, {"meta_info": {"input_top_logprobs": [*best, None]}}):
        with pytest.raises(EngineReplyError):
            parse_sglang_scores(wrong, size=5, start=3)
    with pytest.raises(EngineReplyError):
        parse_sglang_scores(reply, size=5, start=4)


async def test_sglang_scores_in_one_request() -> None:
    ids = [10, 11, 12, 13]
    async with sglang_playing() as server:
        engine = SglangEngine(server.url)
        near(await scored(engine, ids, 1), [math.tanh(1)] * 3, ids[1:])
        near(await scored(engine, ids, 3), [math.tanh(1)], [13])
        assert (await scored(engine, ids, 0))[0] == UNKNOWN
        assert len(await scored(engine, ids, 0)) == 4
        assert await scored(engine, ids, 4) == []
        assert await scored(engine, ids[:1], 0) == [UNKNOWN]
        sent = server.bodies("/generate")
        with pytest.raises(ContextLengthError):
            await scored(engine, range(506), 3)  # six tokens stay free
        await engine.aclose()
    assert [each["logprob_start_len"] for each in sent] == [0, 2, 0, 0]
    assert sent[0]["input_ids"] == ids
    assert (sent[0]["return_logprob"], sent[0]["top_logprobs_num"]) == (True, 2)
    assert sent[0]["sampling_params"] == {"max_new_tokens": 1, "temperature": 0.0}


async def test_the_bytes_of_ids() -> None:
    async with vllm_playing() as server:
        engine = VllmEngine(server.url)
        assert isinstance(engine, Spelling)
        rare = [172, 253, 99]  # the beginning of a character of four bytes
        data = await engine.data([64, *rare[:1]])
        assert data[0] == b"a"
        assert len(data) == 2
        await engine.aclose()


def test_the_embedded_engine_scores_and_spells() -> None:
    assert {"score", "data"} <= set(vars(EmbeddedEngine))


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        TransformersScorer(tmp_path / "none")


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is there")
async def test_a_missing_torch_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match="torch"):
        await scored(TransformersScorer(tmp_path), [1, 2], 1)


async def test_transformers_in_chunks_of_any_size(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = transformers.Qwen2ForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    ids = [(7 * n + n * n) % 97 for n in range(40)]
    with torch.inference_mode():
        shares = torch.softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)
    best = torch.topk(shares, 2)
    margins = (best.values[:, 0] - best.values[:, 1]).tolist()
    for chunk in (1, 7, 39, 256):
        scorer = TransformersScorer(tmp_path, device="cpu", chunk=chunk)
        for start in (1, 8, 30, 39):
            found = await scored(scorer, ids, start)
            assert [each[0] for each in found] == pytest.approx(margins[start - 1 : -1], abs=1e-5)
            assert [each[1] for each in found] == best.indices[start - 1 : -1, 0].tolist()
        assert (await scored(scorer, ids[:3], 0))[0] == UNKNOWN
        with pytest.raises(ContextLengthError):
            await scored(scorer, [1] * 64, 1)
