"""Makes the folders that ``make test-vllm`` serves: ``models.py FOLDER LARGE.gguf SMALL.gguf``.

Runs in vLLM's own environment. FOLDER gets

- ``tiny``: a random Qwen2 of two layers with the pair's tokenizer and chat template, for what a
  server does with tokens, whatever they say;
- ``small``: the embedded pair's small model, its quantized weights unpacked to float32, in which
  it can hardly be seen how tokens were batched;
- ``large``: the large one, as bfloat16, so that both together fit into 16 GB of memory.

A folder that is there is complete: it is made under another name and renamed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

EOS = [151645, 151643]
"""``<|im_end|>`` and ``<|endoftext|>``, which both end a turn of this family."""

VOCABULARY = 151936
"""Rows of the family's embedding; the last few hundred are no tokens."""


def tiny() -> PreTrainedModel:
    """A random model: its next tokens are uncertain, but not all alike, and hardly ever repeat."""
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        initializer_range=0.3,
        eos_token_id=EOS[0],
    )
    return Qwen2ForCausalLM(config)


def unpacked(file: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The weights of a GGUF file."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=dtype
    )
    # It is unpacked already, but still calls itself quantized, and would not be written.
    model.hf_quantizer.remove_quantization_config(model)
    return model


def make(folder: Path, file: Path, dtype: torch.dtype | None) -> None:
    """Write one model folder, unless it is there; without `dtype` the random model."""
    if folder.is_dir():
        return
    print(f"making {folder}", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    if not tokenizer.chat_template:
        raise SystemExit(f"{file} has no chat template")
    model = unpacked(file, dtype) if dtype else tiny()
    model.config.eos_token_id = EOS[0]
    model.generation_config = GenerationConfig(eos_token_id=EOS, pad_token_id=EOS[1])
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    part.rename(folder)


def main(folder: Path, large: Path, small: Path) -> None:
    """All three."""
    folder.mkdir(parents=True, exist_ok=True)
    make(folder / "tiny", small, None)
    make(folder / "small", small, torch.float32)
    make(folder / "large", large, torch.bfloat16)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
