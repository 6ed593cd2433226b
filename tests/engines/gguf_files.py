"""Writes GGUF headers by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def _string(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def value(given: Any) -> bytes:
    """A typed value: bytes are sent as they are, lists are of strings or of 32-bit integers."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, bool):
        return struct.pack("<I?", 7, given)
    if isinstance(given, int):
        return struct.pack("<II", 4, given)
    if isinstance(given, float):
        return struct.pack("<If", 6, given)
    if isinstance(given, str):
        return struct.pack("<I", 8) + _string(given.encode())
    if given and isinstance(given[0], int):
        return struct.pack("<IIQ", 9, 5, len(given)) + struct.pack(f"<{len(given)}i", *given)
    items = [each if isinstance(each, bytes) else each.encode() for each in given]
    return struct.pack("<IIQ", 9, 8, len(items)) + b"".join(map(_string, items))


def header(values: dict[str, Any], *, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    """The bytes of a file without tensors."""
    pairs = b"".join(_string(key.encode()) + value(each) for key, each in values.items())
    return magic + struct.pack("<IQQ", version, 0, len(values)) + pairs


def tiny(
    path: Path,
    tokens: Sequence[str | bytes] = ("a", "b"),
    types: Sequence[int] | None = (1, 1),
    *,
    model: str = "gpt2",
    **more: Any,
) -> Path:
    """A file with a vocabulary; `more` are other keys, ``__`` for a dot."""
    values: dict[str, Any] = {
        "general.architecture": "toy",
        "general.name": "Toy",
        "toy.context_length": 512,
        "toy.rope.freq_base": 1e6,
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": list(tokens),
    }
    if types is not None:
        values["tokenizer.ggml.token_type"] = list(types)
    values |= {
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }
    values |= {key.replace("__", "."): each for key, each in more.items()}
    path.write_bytes(header(values) + b"\0" * 32)
    return path
