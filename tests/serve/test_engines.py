from __future__ import annotations

from pathlib import Path

import pytest

from relaygen._errors import UsageError
from relaygen.engines.detect import DetectedEngine
from relaygen.serve._engines import AFFINITY, EngineOptions, client_keys, engine_at, headers


def test_an_engine_from_its_options(tmp_path: Path) -> None:
    key, template = tmp_path / "key", tmp_path / "chat.jinja"
    key.write_text("# of the large one\nsk-engine\n")
    template.write_text("{{ messages }}")
    options = EngineOptions(
        large_model="big",
        large_engine="completions",
        large_context=1000,
        large_timeout=7,
        large_key_file=key,
        template=template,
        engine_header=("X-A: {session}",),
    )
    engine = engine_at("http://gpu:1/v1", "large", options, {})
    assert isinstance(engine, DetectedEngine)
    assert engine.url == "http://gpu:1"
    assert (engine._kind, engine._model, engine._context) == ("completions", "big", 1000)
    assert engine._template == "{{ messages }}"
    assert engine._options == {
        "api_key": "sk-engine",
        "timeout": 7,
        "first_timeout": 600.0,
        "connect_timeout": 10.0,
        "headers": {"X-A": "{session}"},
        "ca": None,
        "proxy": None,
        "role": "large",
    }


def test_a_small_engine_that_does_not_begin_is_given_up_early() -> None:
    engine = engine_at("http://gpu:1", "small", EngineOptions(small_timeout=3), {})
    assert isinstance(engine, DetectedEngine)
    assert (engine._options["first_timeout"], engine._options["timeout"]) == (3, 3)
    assert engine._options["headers"] == headers(AFFINITY)


def test_keys_of_engines_are_apart() -> None:
    env = {"RELAYGEN_SERVE_LARGE_KEY": "a", "RELAYGEN_SERVE_SMALL_KEY": ""}
    large = engine_at("http://gpu:1", "large", EngineOptions(), env)
    small = engine_at("http://gpu:1", "small", EngineOptions(), env)
    assert isinstance(large, DetectedEngine)
    assert isinstance(small, DetectedEngine)
    assert (large._options["api_key"], small._options["api_key"]) == ("a", None)


def test_a_key_file_holds_one(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("a\nb\n")
    with pytest.raises(UsageError, match="2 keys"):
        engine_at("http://gpu:1", "large", EngineOptions(large_key_file=file), {})
    with pytest.raises(UsageError, match="cannot read"):
        engine_at("http://gpu:1", "large", EngineOptions(large_key_file=tmp_path), {})
    with pytest.raises(UsageError, match="cannot read"):
        engine_at("http://gpu:1", "large", EngineOptions(ca=tmp_path / "none"), {})
    with pytest.raises(UsageError, match="holds no certificates"):
        engine_at("http://gpu:1", "large", EngineOptions(ca=file), {})


def test_client_keys_come_from_both_places(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# two\n\n sk-1 \nsk-2\n")
    assert client_keys(None, {}) == ()
    assert client_keys(file, {}) == ("sk-1", "sk-2")
    env = {"RELAYGEN_SERVE_API_KEYS": "sk-3, sk-1"}
    assert client_keys(file, env) == ("sk-3", "sk-1", "sk-2")
    file.write_text("# none\n")
    with pytest.raises(UsageError, match="holds no key"):
        client_keys(file, {})
    assert client_keys(None, {"RELAYGEN_SERVE_API_KEYS": ""}) == ()
    with pytest.raises(UsageError, match="holds no key"):
        client_keys(None, {"RELAYGEN_SERVE_API_KEYS": " , "})


def test_headers() -> None:
    assert headers(["X-Session-ID: {session}", "x-user:me: too"]) == {
        "X-Session-ID": "{session}",
        "x-user": "me: too",
    }


@pytest.mark.parametrize(
    "line",
    ["X-A", ": b", "X A: b", "X-Ä: b", "X-A: b\nX-B: c", "X-A: ü", "Authorization: x", "HOST: x",
     "X-Conversation-Id: {session}"],
)  # fmt: skip
def test_headers_that_are_none_or_not_to_be_set(line: str) -> None:
    with pytest.raises(UsageError):
        headers([line])
