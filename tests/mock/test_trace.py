from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from relaygen import UsageError
from relaygen.mock import Trace, load_trace, trace_names


def test_the_shipped_traces_think_and_answer() -> None:
    assert trace_names() == ("long", "short")
    for name in trace_names():
        trace = load_trace(name)
        assert trace.thinking
        assert trace.text.startswith("<think>\n")
        assert all(trace.text.partition("</think>\n\n"))
        assert trace.starts[-1] == len(trace.data)


def test_the_short_one_holds_what_is_hard() -> None:
    trace = load_trace("short")
    assert 100 <= len(trace.tokens) <= 150
    partial = 0
    for token in trace.tokens:
        try:
            token.decode()
        except UnicodeDecodeError:
            partial += 1
    assert partial >= 4  # emoji over several tokens
    assert any(len(token) > len(token.decode(errors="ignore")) for token in trace.tokens)
    assert "\ufffd" not in trace.text


def test_the_long_one_is_long() -> None:
    assert len(load_trace("long").tokens) >= 2000


def test_a_trace_survives_its_file(tmp_path: Path) -> None:
    trace = load_trace("short")
    path = tmp_path / "trace.json"
    path.write_text(trace.dump(), "utf-8")
    assert load_trace(path) == trace
    assert load_trace(str(path)) == trace


def test_bytes_are_written_in_base_64(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    tokens = ["a", {"b64": base64.b64encode(b"\xf0\x9f").decode()}]
    path.write_text(json.dumps({"tokens": tokens}))
    trace = load_trace(path)
    assert trace.tokens == (b"a", b"\xf0\x9f")
    assert not trace.thinking


def test_a_split_trace_has_the_same_text_in_other_tokens() -> None:
    trace = load_trace("long")
    split = trace.split()
    assert split.data == trace.data
    assert len(split.tokens) > len(trace.tokens)
    assert b"</think>" in split.tokens
    assert max(len(t) for t in split.tokens if b"think" not in t) < max(map(len, trace.tokens))


def test_of_takes_texts() -> None:
    assert Trace.of(["<think>", "\n", "a"]).thinking
    assert not Trace.of(["a", b"b"]).thinking


@pytest.mark.parametrize("tokens", [(), (b"a", b"")])
def test_a_trace_has_tokens(tokens: tuple[bytes, ...]) -> None:
    with pytest.raises(UsageError, match="has no tokens"):
        Trace("none", tokens)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"tokens": 3}', '{"tokens": [3]}', '{"tokens": [{"b64": "!"}]}']
)
def test_a_file_that_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no trace file") as raised:
        load_trace(path)
    assert "tokens" in raised.value.hint


def test_a_missing_file_is_named_with_the_shipped_traces(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file") as raised:
        load_trace(tmp_path / "none.json")
    assert "long, short" in raised.value.hint
