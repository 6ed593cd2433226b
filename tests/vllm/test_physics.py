"""``benchmarks/gpu_physics.py`` on the CPU, and its model against that of transformers."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from relaygen.cli import main

from .servers import PYTHON

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

SAME = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from _random_model import SHAPES, build, forward, make_room, mask_of

torch.manual_seed(0)
shape = SHAPES["tiny"][0]
theirs = Qwen3ForCausalLM(Qwen3Config(
    vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.inner,
    num_hidden_layers=shape.layers, num_attention_heads=shape.heads, head_dim=shape.head,
    num_key_value_heads=shape.groups, tie_word_embeddings=shape.tied, rms_norm_eps=1e-6,
    rope_parameters={{"rope_type": "default", "rope_theta": 1e6}},
)).eval()
ours = build(shape, device="cpu", dtype=torch.float32, length=32)
make_room(ours, 2, 32)
wide, narrow = shape.heads * shape.head, shape.groups * shape.head
ids = torch.randint(shape.vocabulary, (2, 20))
with torch.inference_mode():
    theirs.model.embed_tokens.weight.copy_(ours.embedding)
    theirs.lm_head.weight.copy_(ours.head)
    for mine, layer in zip(ours.layers, theirs.model.layers):
        query, key, value = mine.qkv.split([wide, narrow, narrow])
        layer.self_attn.q_proj.weight.copy_(query)
        layer.self_attn.k_proj.weight.copy_(key)
        layer.self_attn.v_proj.weight.copy_(value)
        layer.self_attn.o_proj.weight.copy_(mine.out)
        gate, up = mine.gate_up.chunk(2)
        layer.mlp.gate_proj.weight.copy_(gate)
        layer.mlp.up_proj.weight.copy_(up)
        layer.mlp.down_proj.weight.copy_(mine.down)
    want = theirs(ids).logits
    for start, end in ((0, 7), (7, 19), (19, 20)):
        mask = mask_of(ours, end - start, start)
        got = forward(ours, ids[:, start:end], start, mask)
        torch.testing.assert_close(got, want[:, end - 1], atol=1e-4, rtol=1e-4)
assert sum(each.numel() for each in theirs.parameters()) == shape.parameters
"""


def python(*args: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    made = subprocess.run(
        [str(PYTHON), *args],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr


@pytest.mark.vllm
def test_the_random_model_is_a_qwen3() -> None:
    """Read in three parts, it says what transformers says of the whole."""
    python("-c", SAME)


def test_the_real_shapes_have_the_sizes_of_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """32.8 and 1.7 billion parameters, as the models' pages on the hub say."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    large, small = importlib.import_module("_random_model").SHAPES["qwen3"]
    assert large.parameters == pytest.approx(32.8e9, rel=0.005)
    assert small.parameters == pytest.approx(1.72e9, rel=0.005)


@pytest.mark.vllm
def test_measured_on_the_cpu_and_read_by_plan(tmp_path: Path) -> None:
    out = tmp_path / "physics.json"
    options = ["--shapes", "tiny", "--device", "cpu", "--dtype", "float32", "--runs", "3"]
    options += ["--steps", "2", "--contexts", "32,64", "--batches", "1,2", "--tokens", "1,8,32"]
    python(str(BENCHMARKS / "gpu_physics.py"), *options, "--out", str(out))
    made = json.loads(out.read_text("utf-8"))
    assert {(row["role"], row["context"], row["batch"]) for row in made["decode"]} == {
        (role, context, batch)
        for role in ("large", "small")
        for context in (32, 64)
        for batch in (1, 2)
    }
    assert len(made["catch_up"]) == len(made["handoff"]) == 3 * len(made["decode"])
    assert made["skipped"] == []
    assert made["setting"]["graphs"] is False
    assert made["environment"]["torch"]
    assert any("HTTP" in line for line in made["not_measured"])
    for row in (*made["decode"], *made["catch_up"], *made["handoff"]):
        assert 0 < row["low"] <= row["ms"] <= row["high"]
    asked = ["plan", "--costs", str(out), "--utilization", "0.7", "--segment-tokens", "15"]
    told = CliRunner().invoke(main, [*asked, "--context", "64", "--json"])
    assert told.exit_code == 0, told.stderr
    inputs = json.loads(told.stdout)["inputs"]
    first = next(row for row in made["decode"] if (row["context"], row["batch"]) == (64, 1))
    assert inputs["large_ms"] == {"value": first["ms"], "from": "physics.json"}
