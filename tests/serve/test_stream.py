from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest

from relaygen import EngineReplyError, EngineUnreachableError
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.serve._settings import Settings
from relaygen.serve._stream import ABORT

from .support import (
    ANSWER,
    ASK,
    CALL,
    CHAT,
    PLAIN,
    REASONING,
    TEXT,
    THINKING,
    TOOL,
    Pair,
    chunk_of,
    events,
    get,
    joined,
    pair,
    post,
    problem,
    running,
    serving,
    until,
)

STREAM = {"stream": True}
LONG = " ".join(f"word{n}" for n in range(5000))


def stream(served: Pair, path: str = CHAT, body: Any = None, **options: Any) -> list[Any]:
    response = post(served, path, {**STREAM, **(body or {})}, **options)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events(response.text)
    assert found.pop() == "[DONE]"
    return found


# What is in it.


def test_role_first_then_every_token_its_own_then_the_reason() -> None:
    found = stream(pair())
    choices = [chunk["choices"][0] for chunk in found]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert joined(found, "reasoning_content") == REASONING
    assert joined(found) == ANSWER
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert choices[-1]["delta"] == {}
    assert {"content": " three"} in [choice["delta"] for choice in choices]
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in found}) == 1
    assert found[0]["object"] == "chat.completion.chunk"
    assert not any("relay" in chunk or "usage" in chunk for chunk in found)


def test_usage_comes_last_where_it_is_asked_for() -> None:
    found = stream(pair(), body={"stream_options": {"include_usage": True}})
    assert [chunk_of(chunk) for chunk in found] == [True] * (len(found) - 1) + [False]
    whole = post(pair()).json()
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == whole["usage"]
    assert found[-1]["relay"]["tokens"] == whole["relay"]["tokens"]


@pytest.mark.parametrize(
    ("settings", "body", "headers", "annotated"),
    [
        (Settings(), {}, {}, False),
        (Settings(annotate=True), {}, {}, True),
        (Settings(annotate=True), {"relay": {"annotate": False}}, {}, False),
        (Settings(), {"relay": {"annotate": True}}, {}, True),
        (Settings(), {}, {"x-relaygen-annotate": "1"}, True),
        (Settings(annotate=True), {}, {"x-relaygen-annotate": "0"}, False),
    ],
)
def test_each_chunk_says_who_wrote_it_where_that_is_wanted(
    settings: Settings, body: dict[str, Any], headers: dict[str, str], annotated: bool
) -> None:
    found = stream(pair(settings=settings), body=body, headers=headers)
    texts = [c for c in found if set(c["choices"][0]["delta"]) & {"content", "reasoning_content"}]
    writers = [chunk.get("relay") for chunk in texts[1:]]
    if not annotated:
        assert set(map(str, writers)) == {"None"}
        return
    assert writers[0] == {"model": "large", "stage": "reasoning"}
    assert writers[-1] == {"model": "small", "stage": "answer"}
    assert {"model": "small", "stage": "reasoning"} in writers
    assert found[-1]["relay"]["handoffs"] == 5


def test_each_handoff_comes_before_the_receivers_text() -> None:
    found = stream(pair(), body={"relay": {"annotate": True}})
    told = [chunk["relay"] for chunk in found if "relay" in chunk]
    handed = [each for each in told if each.get("event") == "handoff"]
    assert len(handed) == told[-1]["handoffs"] == 5
    assert [each["cue"].strip() for each in handed if each["why"] == "cue"] == ["Now", "So"]
    assert handed[-1]["why"] == "stage"
    writer = "large"
    for each in told[:-1]:
        if each.get("event") == "handoff":
            assert each["source"] == writer
            writer = each["target"]
        elif "model" in each:
            assert each["model"] == writer
    assert [each["stage"] for each in told if each.get("event") == "stage"] == ["answer"]
    tokens = [each["token"] for each in handed]
    assert tokens == sorted(tokens)
    assert joined(found, "reasoning_content") == REASONING


@pytest.mark.parametrize("tools", [{}, {"tools": [TOOL]}])
def test_handoffs_are_told_with_tools_too(tools: dict[str, Any]) -> None:
    found = stream(pair(), body={"relay": {"annotate": True}, **tools})
    assert sum(chunk.get("relay", {}).get("event") == "handoff" for chunk in found) == 5
    assert joined(found) == ANSWER


def test_a_handoff_before_any_text_does_not_hide_a_failures_status() -> None:
    error = EngineUnreachableError("http://gpu:1 refused", retryable=False)
    large = ScriptedEngine(THINKING, failures=[Failure(error, request=None)])
    small = ScriptedEngine(THINKING, failures=[Failure(error, request=None)])
    served = pair(large=large, small=small, policy="entropy:step")
    response = post(served, body={**STREAM, "relay": {"annotate": True}})
    assert problem(response) == (503, None, "engine_unreachable")


@pytest.mark.parametrize("field", ["reasoning", "both"])
def test_the_reasonings_name(field: Any) -> None:
    found = stream(pair(settings=Settings(reasoning_field=field)))
    assert joined(found, "reasoning") == REASONING
    assert joined(found, "reasoning_content") == (REASONING if field == "both" else "")


def test_any_text_arrives_as_it_is() -> None:
    text = 'Quotes " and \\ and \t, 三 and \u2028 and 😀.\n\nEnd: \x00\x7f'
    assert joined(stream(pair(text, profile="embedded"))) == text


def test_a_plain_completion() -> None:
    found = stream(pair(PLAIN, profile="embedded"), TEXT, {"max_tokens": 400})
    assert "".join(chunk["choices"][0]["text"] for chunk in found) == PLAIN
    assert {chunk["object"] for chunk in found} == {"text_completion"}
    assert found[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_plain_completion_that_thinks_has_the_reasoning_apart() -> None:
    served = pair(f"{REASONING}</think>\n\n{ANSWER}")
    found = stream(served, TEXT, {"prompt": "1 + 2?<think>\n", "max_tokens": 400})
    choices = [chunk["choices"][0] for chunk in found]
    assert "".join(choice["text"] for choice in choices) == ANSWER
    assert "".join(choice.get("reasoning_content", "") for choice in choices) == REASONING


def test_a_call_has_its_name_first_then_its_arguments() -> None:
    served = pair(f"I add.\n{CALL}\n{CALL}", profile="embedded")
    found = stream(served, body={"tools": [TOOL]})
    assert joined(found) == "I add."
    deltas = [chunk["choices"][0]["delta"] for chunk in found]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert [call["index"] for call in calls] == [0, 0, 1, 1]
    assert calls[0]["function"] == {"name": "add", "arguments": ""}
    assert calls[0]["id"] != calls[2]["id"]
    assert json.loads(calls[1]["function"]["arguments"]) == {"a": 1, "b": [2, "zwei"]}
    assert "id" not in calls[1]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_one_call_ends_the_stream_where_calls_may_not_be_parallel() -> None:
    served = pair(f"{CALL}\n{CALL} and more", profile="embedded")
    found = stream(served, body={"tools": [TOOL], "parallel_tool_calls": False})
    assert len([c for c in found if "tool_calls" in c["choices"][0]["delta"]]) == 2
    assert joined(found) == ""
    until(lambda: served.service.admission.idle)


def test_a_broken_call_is_content() -> None:
    broken = '<tool_call>\n{"name": "add", "argu</tool_call> and <tool_call>open'
    found = stream(pair(broken, profile="embedded"), body={"tools": [TOOL]})
    assert joined(found) == broken
    assert found[-1]["choices"][0]["finish_reason"] == "stop"


def test_what_is_there_together_is_sent_together() -> None:
    """Each token is an event of its own, but a burst is one message."""
    served = pair(large=ScriptedEngine(PLAIN, burst=100), profile="embedded", policy="large")
    bodies: list[bytes] = []

    async def asking() -> None:
        async def receive() -> dict[str, Any]:
            if bodies or received:
                await asyncio.sleep(60)
            received.append(1)
            return {"type": "http.request", "body": json.dumps({**ASK, **STREAM}).encode()}

        async def send(message: Any) -> None:
            bodies.append(message.get("body", b""))

        received: list[int] = []
        scope = {
            "type": "http",
            "method": "POST",
            "path": CHAT,
            "raw_path": CHAT.encode(),
            "query_string": b"",
            "headers": [],
            "scheme": "http",
            "server": ("test", 80),
            "http_version": "1.1",
        }
        await served.app(scope, receive, send)

    asyncio.run(asking())
    sizes = [body.count(b"data: ") for body in bodies]
    assert max(sizes) > 10
    assert len(bodies) < 6


# Headers.


def test_headers_of_a_stream() -> None:
    response = post(pair(), body={**STREAM, "user": "me"}, headers={"x-request-id": "abc-1"})
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-relaygen-ignored"] == "user"
    assert response.headers["x-request-id"] == "abc-1"


# Failures.


def test_a_failure_before_the_first_token_has_its_status() -> None:
    error = EngineUnreachableError("http://gpu:1 refused", retryable=False)
    large = ScriptedEngine(THINKING, failures=[Failure(error, request=None)])
    response = post(pair(large=large), body=STREAM)
    assert problem(response) == (503, None, "engine_unreachable")


def test_a_failure_afterwards_is_an_event_and_an_end() -> None:
    error = EngineReplyError("http://gpu:1 answered 500: garbage")
    large = ScriptedEngine(THINKING, failures=[Failure(error, token=4)])
    served = pair(large=large)
    response = post(served, body=STREAM)
    assert response.status_code == 200
    found = events(response.text)
    assert found.pop() == "[DONE]"
    failure = found.pop()["error"]
    assert failure["code"] == "engine_error"
    assert failure["message"] == "large engine: its server answered 500: garbage"
    assert REASONING.startswith(joined(found, "reasoning_content"))
    assert joined(found, "reasoning_content")
    assert served.lines[-1]["error"] == "engine_error"


def test_the_small_engine_breaks_in_a_segment_and_nothing_is_lost() -> None:
    failure = Failure(EngineReplyError("reset"), request=0, token=2)
    served = pair(small=ScriptedEngine(THINKING, failures=[failure]))
    found = stream(served, body={"stream_options": {"include_usage": True}})
    assert joined(found, "reasoning_content") == REASONING
    assert joined(found) == ANSWER
    assert found[-1]["relay"]["fallbacks"] == 1


def test_a_full_server_refuses_a_stream_with_a_status() -> None:
    served = pair(settings=Settings(max_concurrent=1, max_queue=0))
    served.service.admission.running = 1
    response = post(served, body=STREAM)
    assert problem(response) == (429, None, "rate_limit_exceeded")
    assert int(response.headers["retry-after"]) >= 1


# Over a socket.


@pytest.mark.parametrize("body", [STREAM, {"stream": False}])
def test_a_client_that_leaves_stops_the_work(body: dict[str, Any]) -> None:
    served = pair(LONG, large=ScriptedEngine(LONG, token_ms=5), profile="embedded")
    with serving(served) as url:
        data = json.dumps({**ASK, **body}).encode()
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
            client.sendall(head.encode() + data)
            until(lambda: served.service.admission.running == 1 and bool(served.large.requests))
        until(lambda: served.large.aborted == 1)
        until(lambda: served.service.admission.idle)
        until(lambda: bool(served.lines))
    assert served.lines[0]["error"] == "client_gone"
    assert len(served.large.released) == 1


def test_a_client_that_does_not_read_is_dropped() -> None:
    text = LONG * 20
    served = pair(
        text,
        large=ScriptedEngine(text, burst=500),
        profile="embedded",
        policy="large",
        settings=Settings(write_timeout=0.4),
    )
    with running(served) as (url, server):
        data = json.dumps({**ASK, **STREAM, "max_tokens": 1_000_000}).encode()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
            client.sendall(head.encode() + data)
            until(lambda: bool(served.lines))
            until(lambda: not server.server_state.connections)  # although it still does not read
    assert served.lines[0].get("error") == "client_stalled", served.lines
    assert served.service.admission.idle


def test_a_client_that_does_not_read_its_error_is_dropped_too() -> None:
    dies = Failure(EngineReplyError("garbage"), request=None, token=4)
    served = pair(
        large=ScriptedEngine(THINKING, failures=[dies]), settings=Settings(write_timeout=0.1)
    )
    aborted: list[bool] = []

    async def scenario() -> None:
        body = json.dumps({**ASK, **STREAM}).encode()
        sent = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            message = next(sent, None)
            if message is None:
                await asyncio.Event().wait()
            return message

        async def send(message: Any) -> None:
            if b'"error"' in message.get("body", b""):
                await asyncio.Event().wait()

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": CHAT,
            "raw_path": CHAT.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [],
            "extensions": {ABORT: lambda: aborted.append(True)},
        }
        await asyncio.wait_for(served.app(scope, receive, send), 20)

    asyncio.run(scenario())
    assert aborted == [True]
    assert served.lines[0]["error"] == "engine_error"
    assert served.lines[0]["large_tokens"] == 4


def test_a_silent_stream_gets_pings() -> None:
    served = pair(
        large=ScriptedEngine(THINKING, ttft_ms=600), policy="large", settings=Settings(ping=0.1)
    )
    with serving(served) as url:
        text = httpx.post(f"{url}{CHAT}", json={**ASK, **STREAM}, timeout=30).text
    assert text.count(": ping\n\n") >= 2
    assert joined(events(text)[:-1]) == ANSWER


def test_two_streams_at_once_do_not_mix() -> None:
    served = pair(PLAIN, profile="embedded", large=ScriptedEngine(PLAIN, token_ms=1))

    async def both(url: str) -> list[str]:
        async with httpx.AsyncClient(timeout=30) as client:
            asked = [client.post(f"{url}{CHAT}", json={**ASK, **STREAM}) for _ in range(20)]
            return [response.text for response in await asyncio.gather(*asked)]

    with serving(served) as url:
        texts = asyncio.run(both(url))
    assert {joined(events(text)[:-1]) for text in texts} == {PLAIN}
    assert len({events(text)[0]["id"] for text in texts}) == 20


def test_ready_is_asked_over_a_socket_too() -> None:
    served = pair()
    with serving(served) as url:
        assert httpx.get(f"{url}/ready").status_code == 200
        assert "server" not in httpx.get(f"{url}/health").headers
    assert get(served, "/health").status_code == 200
