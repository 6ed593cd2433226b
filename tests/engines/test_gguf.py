from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen._errors import ModelNotFoundError, NotGGUFError
from relaygen.engines._gguf import read_header

from .gguf_files import header, tiny


def test_metadata(tmp_path: Path) -> None:
    found = read_header(tiny(tmp_path / "m.gguf"))
    assert (found.name, found.architecture, found.context_length) == ("Toy", "toy", 512)
    assert found.version == 3
    assert found.get("tokenizer.ggml.add_bos_token") is False
    assert found.get("toy.rope.freq_base") == 1e6
    assert found.get("tokenizer.ggml.tokens") is None


def test_metadata_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header({}, version=2))
    found = read_header(str(path))
    assert (found.name, found.architecture, found.context_length) == ("", "", None)
    assert found.vocabulary() is None


@pytest.mark.parametrize("kind", range(13))
def test_every_kind_of_value(kind: int, tmp_path: Path) -> None:
    code = "BbHhIif?__QqdX"[kind]
    raw = struct.pack("<I", kind) + (b"" if code == "_" else struct.pack(f"<{code}", 1))
    if kind == 8:
        raw += struct.pack("<Q", 1) + b"1"
    if kind == 9:
        raw += struct.pack("<IQ", 10, 2) + b"\0" * 16
    path = tmp_path / "m.gguf"
    path.write_bytes(header({"before": 5, "key": raw, "after": "x"}))
    found = read_header(path)
    assert found.get("key") in (1, "1", None)
    assert (found.get("before"), found.get("after")) == (5, "x")


def test_vocabulary(tmp_path: Path) -> None:
    vocabulary = read_header(tiny(tmp_path / "m.gguf", ["Ġa", "<end>"], [1, 3])).vocabulary()
    assert vocabulary is not None
    assert [vocabulary.data(id) for id in range(2)] == [b" a", b"<end>"]
    assert vocabulary.controls(1)


def test_vocabulary_without_types(tmp_path: Path) -> None:
    vocabulary = read_header(tiny(tmp_path / "m.gguf", ["a", "b"], None)).vocabulary()
    assert vocabulary is not None
    assert [vocabulary.type(id) for id in range(2)] == [1, 1]


def test_vocabulary_of_an_unknown_kind(tmp_path: Path) -> None:
    assert read_header(tiny(tmp_path / "m.gguf", model="rwkv")).vocabulary() is None


@pytest.mark.parametrize(
    "types", [struct.pack("<IIQ", 9, 10, 2) + b"\0" * 16, [1], struct.pack("<IIQ", 9, 5, 0)]
)
def test_damaged_types(types: Any, tmp_path: Path) -> None:
    path = tiny(tmp_path / "m.gguf", tokenizer__ggml__token_type=types)
    with pytest.raises(NotGGUFError, match="type"):
        read_header(path).vocabulary()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "does not begin with GGUF"),
        (b"GGU", "does not begin with GGUF"),
        (b"PK\x03\x04 a zip file", "does not begin with GGUF"),
        (header({}, version=1), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 10**9), "damaged"),
        (header({"a": struct.pack("<I", 99)}), "value type 99"),
        (header({"a": struct.pack("<I", 8) + struct.pack("<Q", 2**63)}), "cut off"),
        (header({"a": struct.pack("<IIQ", 9, 4, 2**62)}), "cut off"),
        (header({"a": struct.pack("<IIQ", 9, 8, 2**62)}), "cut off"),
        (header({"a": struct.pack("<IIQ", 9, 8, 1) + struct.pack("<Q", 2**40)}), "cut off"),
        (header({"a": struct.pack("<IIQ", 9, 9, 1)}), "array of type 9"),
        (header({}).replace(struct.pack("<Q", 0), struct.pack("<Q", 1)) + b"\1" + b"\0" * 7 + b"\xff" * 9, "damaged"),
    ],
)  # fmt: skip
def test_damaged_files(raw: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with pytest.raises(NotGGUFError, match=says) as caught:
        read_header(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_every_cut(tmp_path: Path) -> None:
    path = tiny(tmp_path / "m.gguf")
    raw = path.read_bytes()[:-32]
    for size in range(len(raw)):
        path.write_bytes(raw[:size])
        with pytest.raises(NotGGUFError):
            read_header(path)


@settings(deadline=None)  # it writes files
@given(st.binary(max_size=200))
def test_any_rubbish(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes) -> None:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    path.write_bytes(header({"a": 1, "b": rubbish}))
    try:
        read_header(path).vocabulary()
    except NotGGUFError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_missing_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(ModelNotFoundError, match="cannot be read"):
        read_header(tmp_path)
    path = tiny(tmp_path / "m.gguf")
    path.chmod(0)
    if not os.access(path, os.R_OK):  # the superuser may read everything
        with pytest.raises(ModelNotFoundError, match="cannot be read: Permission denied"):
            read_header(path)


def test_nothing_is_kept_of_what_was_not_asked_for(tmp_path: Path) -> None:
    """Of 150,000 tokens and merges the header knows where they are, and makes no objects."""
    count = 150_000
    tokens = [f"token{id}" for id in range(count)]
    path = tiny(tmp_path / "m.gguf", tokens, [1] * count, tokenizer__ggml__merges=["a b"] * count)
    tracemalloc.start()
    try:
        found = read_header(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < count
    vocabulary = found.vocabulary()
    assert vocabulary is not None
    assert len(vocabulary) == count
