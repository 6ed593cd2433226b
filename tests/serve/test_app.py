from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest

from relaygen import ContextLengthError, EngineError, EngineReplyError, EngineUnreachableError
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.serve._settings import Settings

from .support import (
    ANSWER,
    CALL,
    CHAT,
    PLAIN,
    REASONING,
    TEXT,
    THINKING,
    TOOL,
    call,
    get,
    pair,
    post,
    problem,
    serving,
)

# A whole reply.


def test_a_chat_has_reasoning_and_answer_apart_and_says_who_wrote_it() -> None:
    response = post(pair())
    assert response.status_code == 200
    body = response.json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "relaygen"
    choice = body["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": ANSWER,
        "reasoning_content": REASONING,
    }
    assert choice["finish_reason"] == "stop"
    usage, relay = body["usage"], body["relay"]
    tokens = relay["tokens"]
    assert usage["completion_tokens"] == tokens["large"] + tokens["small"] + tokens["inserted"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
    assert relay["policy"] == "relay"
    assert relay["handoffs"] == 5
    assert relay["utilization"] == tokens["large"] / (tokens["large"] + tokens["small"])
    assert relay["seconds"]["total"] >= relay["seconds"]["large"] > 0
    assert relay["fallbacks"] == 0
    assert relay["paused"] is None


def test_one_model_alone_by_its_name() -> None:
    served = pair()
    body = post(served, body={"model": "relaygen@small"}).json()
    assert body["model"] == "relaygen@small"
    assert body["relay"]["policy"] == "small"
    assert body["relay"]["tokens"]["large"] == 0
    assert served.large.requests == []


def test_the_requests_policy_goes_before_the_models() -> None:
    body = post(pair(), body={"model": "relaygen@small", "relay": {"policy": "large"}}).json()
    assert (body["relay"]["policy"], body["relay"]["tokens"]["small"]) == ("large", 0)


def test_one_request_tells_its_cached_tokens_and_several_do_not() -> None:
    alone = post(pair(), body={"model": "relaygen@large"}).json()
    assert alone["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert "prompt_tokens_details" not in post(pair()).json()["usage"]


@pytest.mark.parametrize(
    ("field", "names"),
    [("reasoning", ["reasoning"]), ("both", ["reasoning", "reasoning_content"])],
)
def test_the_reasonings_name(field: Any, names: list[str]) -> None:
    message = post(pair(settings=Settings(reasoning_field=field))).json()["choices"][0]["message"]
    assert sorted(name for name in message if name.startswith("reasoning")) == names
    assert {message[name] for name in names} == {REASONING}


def test_without_thinking_all_is_content() -> None:
    message = post(pair(PLAIN, profile="embedded")).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": PLAIN}


def test_a_plain_completion_continues_the_prompt_as_it_is() -> None:
    served = pair(PLAIN, profile="embedded")
    response = post(served, TEXT, {"prompt": "1 + 2 =", "max_tokens": 400})
    body = response.json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": PLAIN, "logprobs": None, "finish_reason": "stop"}
    ]
    assert body["usage"]["prompt_tokens"] == 4


def test_a_plain_completion_has_openais_default_length() -> None:
    body = post(pair(PLAIN, profile="embedded"), TEXT).json()
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"][0]["finish_reason"] == "length"


def test_token_ids_are_a_prompt_too() -> None:
    served = pair(PLAIN, profile="embedded")
    body = post(served, TEXT, {"prompt": [300, 301], "max_tokens": 400}).json()
    assert body["choices"][0]["text"] == PLAIN
    assert served.large.requests[0].ids[:2] == (300, 301)


def test_a_call_comes_back_as_a_call() -> None:
    served = pair(f"<think>\nHm.\n</think>\n\nI add.\n{CALL}")
    choice = post(served, body={"tools": [TOOL]}).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I add."
    (made,) = choice["message"]["tool_calls"]
    assert made["type"] == "function"
    assert made["id"].startswith("call_")
    assert made["function"] == {"name": "add", "arguments": '{"a": 1, "b": [2, "zwei"]}'}


def test_only_a_call_has_no_content() -> None:
    message = post(pair(CALL, profile="embedded"), body={"tools": [TOOL]}).json()["choices"][0][
        "message"
    ]
    assert message["content"] is None
    assert len(message["tool_calls"]) == 1


def test_without_tools_a_call_is_text() -> None:
    choice = post(pair(CALL, profile="embedded")).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": CALL}
    assert choice["finish_reason"] == "stop"


def test_one_call_ends_the_answer_where_calls_may_not_be_parallel() -> None:
    served = pair(f"{CALL}\n{CALL}\nThat was it.", profile="embedded")
    body = post(served, body={"tools": [TOOL], "parallel_tool_calls": False}).json()
    choice = body["choices"][0]
    assert body["relay"]["finish"] == "stop"  # nobody cancelled it
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["finish_reason"] == "tool_calls"
    assert (
        len(post(served, body={"tools": [TOOL]}).json()["choices"][0]["message"]["tool_calls"]) == 2
    )


def test_what_was_ignored_stands_in_a_header() -> None:
    response = post(pair(), body={"user": "me", "foo\n: x": 1, "größe": 2, "seed": 3})
    assert response.headers["x-relaygen-ignored"] == "user, foo?: x, gr??e"
    assert "x-relaygen-ignored" not in post(pair()).headers


def test_strict_refuses_the_unknown_but_not_the_harmless() -> None:
    served = pair(settings=Settings(strict=True))
    assert problem(post(served, body={"foo": 1})) == (400, "foo", "unknown_field")
    assert post(served, body={"user": "me"}).status_code == 200


# Refusals.


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ({"n": 2}, 400, "n", "unsupported"),
        ({"logprobs": True}, 400, "logprobs", "unsupported"),
        ({"presence_penalty": 0.5}, 400, "presence_penalty", "unsupported"),
        ({"logit_bias": {"5": 1}}, 400, "logit_bias", "unsupported"),
        ({"model": "gpt-4"}, 404, "model", "model_not_found"),
        ({"model": "relaygen@what"}, 404, "model", "model_not_found"),
        ({"relay": {"policy": "what"}}, 400, "relay.policy", None),
        ({"relay": {"polizy": "large"}}, 400, "relay.polizy", "invalid_value"),
        ({"messages": []}, 400, "messages", "invalid_value"),
        ({"messages": [{"role": "user"}]}, 400, "messages.0.content", None),
        ({"temperature": 3}, 400, "temperature", "invalid_value"),
        ({"temperature": "hot"}, 400, "temperature", "invalid_value"),
        ({"stream": "yes"}, 400, "stream", "invalid_value"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 400, "max_tokens", None),
        ({"tools": [TOOL], "tool_choice": "required"}, 400, "tool_choice", "unsupported"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options", None),
    ],
)
def test_refusals_name_the_field(
    body: dict[str, Any], status: int, param: str, code: str | None
) -> None:
    served = pair()
    assert problem(post(served, body=body)) == (status, param, code)
    assert served.large.requests == []


def test_penalties_and_biases_are_for_one_model() -> None:
    served = pair()
    body = {"model": "relaygen@large", "frequency_penalty": 0.5, "logit_bias": {"5": -100}}
    assert post(served, body=body).status_code == 200
    sampling = served.large.requests[0].sampling
    assert (sampling.frequency_penalty, sampling.logit_bias) == (0.5, {5: -100})


def test_a_limit_of_reasoning_needs_thinking() -> None:
    response = post(pair(PLAIN, profile="embedded"), body={"max_reasoning_tokens": 5})
    assert response.status_code == 400
    assert "thinking" in response.json()["error"]["message"]


# Other paths and methods.


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/messages/count_tokens"])
def test_other_apis_are_pointed_to_this_one(path: str) -> None:
    response = post(pair(), path, content=b"{}")
    assert problem(response) == (404, None, "unknown_url")
    assert "/v1/chat/completions" in response.json()["error"]["message"]


def test_unknown_paths_and_methods() -> None:
    assert problem(get(pair(), "/v2/nothing")) == (404, None, "unknown_url")
    assert problem(get(pair(), "/v1/models/")) == (404, "model", "model_not_found")
    wrong = get(pair(), CHAT)
    assert problem(wrong) == (405, None, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/metrics", "/v1/models", "/v1/models/relaygen", "/docs", "/"]
)
def test_heads_are_answered_as_load_balancers_ask(path: str) -> None:
    served = pair()
    asked, head = (
        call(served, partial(httpx.AsyncClient.request, method=method, url=path))
        for method in ("GET", "HEAD")
    )
    assert asked.status_code == head.status_code == 200
    assert head.headers["content-type"] == asked.headers["content-type"]
    served.service.drain()
    drained = call(served, lambda client: client.head("/ready"))
    assert drained.status_code == 503
    refused = call(served, lambda client: client.head(CHAT))
    assert refused.status_code == 405
    absent = call(served, lambda client: client.head("/v1/responses"))
    assert absent.status_code == 404


def test_a_head_has_no_body_over_a_socket() -> None:
    with serving(pair()) as url, httpx.Client(base_url=url) as client:
        for path in ("/health", "/metrics"):
            reply = client.head(path)
            assert (reply.status_code, reply.content) == (200, b"")
            assert int(reply.headers["content-length"]) > 0
            assert client.get("/health").json() == {"status": "ok"}  # on the same connection


def test_models_are_listed_and_each_is_found() -> None:
    served = pair()
    names = [card["id"] for card in get(served, "/v1/models").json()["data"]]
    assert names[0] == "relaygen"
    assert {"relaygen@large", "relaygen@small", "relaygen@one-shot"} <= set(names)
    for name in names:
        assert get(served, f"/v1/models/{name}").json()["id"] == name
    card = get(served, "/v1/models/relaygen@random:0.25").json()
    relay = {"policy": "random:0.25", "profile": "qwen3-32b+1.7b", "level": None}
    assert card["relay"] == relay


def test_the_page_describes_every_route() -> None:
    made = get(pair(), "/openapi.json").json()
    open_paths = {"/health", "/ready", "/metrics"}
    assert {CHAT, TEXT, "/v1/models", "/v1/models/{model}"} | open_paths == set(made["paths"])
    fields = made["components"]["schemas"]["ChatRequest"]["properties"]
    assert fields["n"]["description"].startswith("Refused: ")
    assert fields["user"]["description"].startswith("Ignored: ")
    assert get(pair(), "/docs").status_code == 200


# Engines that fail.


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineUnreachableError("http://gpu:8000 cannot be reached", retryable=False), 503, "engine_unreachable"),
        (EngineReplyError("http://gpu:8000 answered 500: x"), 502, "engine_error"),
        (EngineReplyError("bad schema", refused=True), 400, "engine_refused"),
        (EngineError("http://gpu:8000 refused the API key"), 502, "engine_error"),
        (ContextLengthError("too long"), 400, "context_length_exceeded"),
    ],
)  # fmt: skip
def test_the_large_engines_failure_has_its_status(
    error: EngineError, status: int, code: str
) -> None:
    large = ScriptedEngine(THINKING, failures=[Failure(error, request=None)])
    response = post(pair(large=large))
    assert problem(response)[::2] == (status, code)
    assert "gpu" not in response.text


def test_the_small_engines_failure_is_told_and_harmless() -> None:
    small = ScriptedEngine(THINKING, failures=[Failure(EngineReplyError("garbage"), token=1)])
    body = post(pair(small=small)).json()
    assert body["choices"][0]["message"]["content"] == ANSWER
    assert body["choices"][0]["message"]["reasoning_content"] == REASONING
    assert body["relay"]["fallbacks"] == 1


def test_a_small_engine_that_is_down_is_left_alone_after_some_failures() -> None:
    down = Failure(EngineUnreachableError("refused"), request=None)
    served = pair(small=ScriptedEngine(THINKING, failures=[down]))
    replies = [post(served).json() for _ in range(3)]
    assert all(r["choices"][0]["message"]["content"] == ANSWER for r in replies)
    tried = len(served.small.requests)
    assert post(served).json()["relay"]["paused"] == "the small engine keeps failing"
    assert len(served.small.requests) == tried
    assert get(served, "/ready").json()["delegation"] == "paused"


# Being there.


class _Absent(ScriptedEngine):
    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        raise EngineUnreachableError("http://gpu:8000 cannot be reached: refused")


def test_ready_means_that_the_large_engine_answers() -> None:
    assert get(pair(), "/health").json() == {"status": "ok"}
    body = get(pair(), "/ready").json()
    assert (body["status"], body["large"], body["small"]) == ("ready", "ok", "ok")
    without = get(pair(small=_Absent()), "/ready")
    assert (without.status_code, without.json()["status"]) == (200, "ready")
    assert without.json()["small"] == "its server cannot be reached: refused"
    gone = get(pair(large=_Absent()), "/ready")
    assert (gone.status_code, gone.json()["status"]) == (503, "not ready")
    assert int(gone.headers["retry-after"]) >= 1


def test_while_draining_nobody_comes_in() -> None:
    served = pair()
    served.service.drain()
    response = post(served)
    assert problem(response) == (503, None, "shutting_down")
    assert int(response.headers["retry-after"]) >= 1
    ready = get(served, "/ready")
    assert (ready.status_code, ready.json()["draining"]) == (503, True)
    assert get(served, "/health").status_code == 200


def test_browsers_may_call_where_it_is_allowed() -> None:
    asked = {"origin": "https://ui.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in get(pair(), "/health", headers=asked).headers
    served = pair(settings=Settings(cors_origins=("https://ui.example",), api_keys=("k",)))
    allowed = get(served, "/health", headers=asked)
    assert allowed.headers["access-control-allow-origin"] == "https://ui.example"
    refused = post(served, headers=asked)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://ui.example"


def test_a_path_of_its_own_behind_a_proxy() -> None:
    served = pair(settings=Settings(root_path="/llm", api_keys=("k",)))
    assert get(served, "/llm/health").status_code == 200
    assert get(served, "/health").status_code == 200
    assert get(served, "/llm/v1/models").status_code == 401
    made = get(served, "/openapi.json", headers={"authorization": "Bearer k"}).json()
    assert made["servers"] == [{"url": "/llm"}]
    assert made["security"] == [{"key": []}]
