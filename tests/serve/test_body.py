from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator

import pytest

from relaygen.serve._body import MAX_DEPTH, parse, validate
from relaygen.serve._errors import ApiError
from relaygen.serve._requests import ChatRequest, CompletionRequest
from relaygen.serve._settings import Settings

from .support import ASK, CHAT, pair, post, problem, serving


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"nul", b"[]", b"3", b'"x"', b"\xff{}", b'{"a": NaN}', b'{"a": -Infinity}',
        b'{"seed": ' + b"9" * 5000 + b"}",
        b'{"a": "\\ud800"}',
        b'{"\\udc00": 1}',
        b"[" * 100_000,
        b'{"a": ' * 100_000,
        b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_400(data: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = post(pair(), content=data, headers=headers)
    assert problem(response) == (400, None, "invalid_json")


def test_what_is_one() -> None:
    nested = b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
    assert parse(nested)
    assert parse(b'\xef\xbb\xbf{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
    ],
)
def test_content_types(kind: str, status: int) -> None:
    response = post(pair(), content=json.dumps(ASK).encode(), headers={"content-type": kind})
    assert response.status_code == status


def test_a_body_that_is_too_large_is_413_however_it_comes() -> None:
    served = pair(settings=Settings(max_body=1000))
    long = {"messages": [{"role": "user", "content": "x" * 1000}]}
    assert problem(post(served, body=long)) == (413, None, "body_too_large")

    async def parts() -> AsyncGenerator[bytes, None]:
        for _ in range(100):
            yield b" " * 100

    response = post(served, content=parts(), headers={"content-type": "application/json"})
    assert problem(response) == (413, None, "body_too_large")
    assert post(served).status_code == 200


def test_a_body_that_does_not_come_is_408() -> None:
    served = pair(settings=Settings(write_timeout=0.2))
    with serving(served) as url, socket.create_connection(("127.0.0.1", port_of(url))) as client:
        client.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{{".encode())
        client.settimeout(20)
        reply = b""
        while data := client.recv(4096):
            reply += data
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_too_slow"' in reply


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_null_is_the_same_as_absent() -> None:
    names = {name: None for name in ChatRequest.model_fields if name != "messages"}
    body = validate({**ASK, **names, "n": None, "foo": None}, ChatRequest, strict=True)
    assert body.ignored == ()
    assert body.request.temperature is None


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("seed", True, "seed"),
        ("seed", 1.5, "seed"),
        ("seed", 2**63, "seed"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", "5", "max_tokens"),
        ("temperature", 1e999, "temperature"),
        ("stop", [], None),
        ("stop", [""], "stop"),
        ("stop", ["x"] * 17, "stop"),
        ("stop", 3, "stop"),
        ("messages", [{"role": "robot", "content": "x"}], "messages.0.role"),
        ("messages", [{"role": "user", "content": 3}], "messages.0.content"),
        ("messages", ["hi"], "messages.0"),
        ("relay", "large", "relay"),
        ("response_format", {"type": "xml"}, "response_format.type"),
    ],
)
def test_a_wrong_value_names_its_place(field: str, value: object, param: str | None) -> None:
    if param is None:
        validate({**ASK, field: value}, ChatRequest, strict=False)
        return
    with pytest.raises(ApiError) as refused:
        validate({**ASK, field: value}, ChatRequest, strict=False)
    assert refused.value.status == 400
    assert refused.value.param is not None
    assert refused.value.param == param


def test_a_prompt_is_a_text_or_ids() -> None:
    for prompt in ("x", ["x"], [1, 2], [[1, 2]]):
        validate({"prompt": prompt}, CompletionRequest, strict=False)
    for wrong in (3, [1.5], [-1], [2**31], {"a": 1}, [True], [["x"]]):
        with pytest.raises(ApiError):
            validate({"prompt": wrong}, CompletionRequest, strict=False)
