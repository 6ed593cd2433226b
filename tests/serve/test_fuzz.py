"""Whatever a client sends: no 5xx, no traceback, no hang, and what the OpenAPI page promises."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from relaygen.serve._fields import HONOURED, IGNORED, REFUSED
from relaygen.serve._settings import Settings

from .support import ASK, CHAT, PLAIN, TEXT, TOOL, Pair, events, pair

QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def served() -> Pair:
    return pair(PLAIN, profile="embedded", settings=Settings(max_body=100_000))


SERVED = served()
schema = schemathesis.openapi.from_asgi("/openapi.json", SERVED.app)


@schema.parametrize()
@QUICK
def test_the_page_holds(case: schemathesis.Case[Any]) -> None:
    case.call_and_validate(checks=CHECKS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
names = st.sampled_from([*HONOURED, *IGNORED, *REFUSED, "foo"])
likely = st.sampled_from(
    [0, 1, -1, 2**31, 2**63, 1e308, "", "x", "relaygen@large", "relaygen@", True, [], {}, [1, 2],
     ["x"], {"type": "json_object"}, {"include_usage": True}, {"policy": "small"}, [TOOL], "auto",
     [{"role": "assistant", "content": "It is"}], [{"role": "tool", "content": []}]]
)  # fmt: skip
bodies = st.dictionaries(names, json_values | likely, max_size=6)


async def send(path: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(SERVED.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        request = client.post(path, content=content, headers=headers)
        return await asyncio.wait_for(request, 20)


def answered(path: str, content: bytes, kind: str = "application/json") -> None:
    response = asyncio.run(send(path, content, {"content-type": kind}))
    assert response.status_code in (200, 400, 404, 413, 415), response.text
    assert "Traceback" not in response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        assert events(response.text)[-1] == "[DONE]"
    else:
        assert isinstance(response.json(), dict)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@QUICK
@given(body=bodies, valid=st.booleans())
def test_any_json(path: str, body: dict[str, Any], valid: bool) -> None:
    start: dict[str, Any] = {**ASK, "max_tokens": 5} if path == CHAT else {"prompt": "x"}
    answered(path, json.dumps({**start, **body} if valid else body).encode())


@QUICK
@given(content=st.binary(max_size=300), kind=st.sampled_from(["application/json", "", "x/y"]))
def test_any_bytes(content: bytes, kind: str) -> None:
    answered(CHAT, content, kind)


@QUICK
@given(content=st.text(max_size=300))
def test_any_text_in_a_message(content: str) -> None:
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 5}
    answered(CHAT, json.dumps(body).encode())
