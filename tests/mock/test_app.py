"""The routes besides generation."""

from __future__ import annotations

import builtins
import re
from typing import Any

import pytest

from relaygen import MissingExtraError, UsageError
from relaygen.mock import MockConfig, make_app

from .support import HEAD, TRACE, body, engine


def test_models_health_and_version() -> None:
    with engine(model="m", context=1234) as client:
        (model,) = client.get("/v1/models")["data"]
        assert (model["id"], model["max_model_len"]) == ("m", 1234)
        for path in ("/health", "/ping"):
            response = client.http.get(path)
            assert (response.status_code, response.content) == (200, b"")
        assert client.get("/version")["version"].startswith("0.")
        assert client.http.get("/nowhere").status_code == 404
        assert client.http.get("/v1/completions").status_code == 405


def test_tokenize_and_detokenize() -> None:
    with engine() as client:
        got = client.post("/tokenize", {"prompt": " need a", "return_token_strs": True})
        assert got["count"] == len(got["tokens"]) == len(got["token_strs"])
        assert got["max_model_len"] == 40_960
        assert got["token_strs"][0] == "Ġneed"
        assert client.post("/detokenize", {"tokens": got["tokens"]}) == {"prompt": " need a"}
        assert client.post("/tokenize", {"prompt": "a"})["token_strs"] is None
        half = client.post("/detokenize", {"tokens": [0xF0, 0x9F]})
        assert half["prompt"] == "\ufffd"
        for path in ("/tokenize", "/detokenize"):
            assert client.http.post(path, json={}).status_code == 400
            assert client.http.post(path, content=b"{").status_code == 400


def test_a_conversation_is_rendered() -> None:
    with engine() as client:
        sent: dict[str, Any] = {"messages": [{"role": "user", "content": "How much?"}]}
        ids = client.post("/tokenize", sent)["tokens"]
        assert ids == client.ids(HEAD)
        begun = [*sent["messages"], {"role": "assistant", "content": "<think>\n"}]
        options = {"add_generation_prompt": False, "continue_final_message": True}
        opened = client.post("/tokenize", {"messages": begun, **options})["tokens"]
        assert opened == ids + client.ids("<think>\n")
        closed = client.post(
            "/tokenize", {**sent, "chat_template_kwargs": {"enable_thinking": False}}
        )["tokens"]
        assert closed == ids + client.ids("<think>\n\n</think>\n\n")
        assert client.http.post("/tokenize", json={"messages": []}).status_code == 400
        tools = [{"type": "function", "function": {"name": "add"}}]
        assert len(client.post("/tokenize", {**sent, "tools": tools})["tokens"]) > len(ids)


def test_another_model_is_not_found() -> None:
    with engine(model="m") as client:
        assert client.complete(HEAD, model="m", max_tokens=1)
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
            response = client.http.post(path, json={"model": "x", "prompt": "a"})
            assert response.status_code == 404
            assert response.json()["error"]["type"] == "NotFoundError"


def test_a_key_guards_v1_only() -> None:
    with engine(api_key="secret") as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            response = client.http.get("/v1/models", headers=headers)
            assert (response.status_code, response.json()) == (401, {"error": "Unauthorized"})
        right = {"Authorization": "Bearer secret"}
        assert client.http.get("/v1/models", headers=right).status_code == 200
        assert client.http.post("/v1/completions", json=body(HEAD), headers=right).json()["id"]
        assert client.ids("a")
        assert client.http.get("/health").status_code == 200


def metrics(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {re.sub(r'engine="0",model_name="mock",?', "", name): float(v) for name, _, v in lines}


def test_metrics() -> None:
    with engine() as client:
        prompt = len(client.ids(HEAD))
        client.stream(HEAD, max_tokens=5)
        client.stream(HEAD)
        found = metrics(client.http.get("/metrics").text)
        assert found["vllm:num_requests_running{}"] == 0
        assert found["vllm:prompt_tokens_total{}"] == 2 * prompt
        assert found["vllm:generation_tokens_total{}"] == 5 + len(TRACE.tokens) + 1
        assert found["vllm:prefix_cache_queries_total{}"] == 2 * prompt
        assert found["vllm:prefix_cache_hits_total{}"] == (prompt - 1) // 16 * 16
        assert found['vllm:request_success_total{finished_reason="length"}'] == 1
        assert found['vllm:request_success_total{finished_reason="stop"}'] == 1
        assert 0 < found["vllm:kv_cache_usage_perc{}"] < 1


def test_the_trace_is_shown() -> None:
    with engine() as client:
        shown = client.get("/mock/trace")
        assert (shown["name"], shown["thinking"], shown["text"]) == ("short", True, TRACE.text)
        assert client.post("/detokenize", {"tokens": shown["ids"]})["prompt"] == TRACE.text


def test_a_trace_that_is_missing() -> None:
    with pytest.raises(UsageError, match="cannot read the trace"):
        make_app(MockConfig(trace="nothing"))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("starlette"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError) as raised:
        make_app(MockConfig())
    assert "relaygen[serve]" in raised.value.hint
