from __future__ import annotations

from pathlib import Path

import pytest

from relaygen.serve._fields import HONOURED, IGNORED, REFUSED
from relaygen.serve._requests import ChatRequest, CompletionRequest, schema

from .support import CHAT, TEXT, pair, post, problem

DOCS = Path(__file__).parents[2] / "docs" / "serve.md"


def test_every_field_is_in_one_list() -> None:
    names = [*HONOURED, *IGNORED, *REFUSED]
    assert len(names) == len(set(names))
    assert set(HONOURED) == {*ChatRequest.model_fields, *CompletionRequest.model_fields}


def test_the_documentation_lists_them_all() -> None:
    text = DOCS.read_text("utf-8")
    for name, what in HONOURED.items():
        assert f"| `{name}` | {what} |" in text
    for name, what in IGNORED.items():
        assert f"| `{name}` | {what} |" in text
    for name, refusal in REFUSED.items():
        assert f"| `{name}` | {refusal.reason} |" in text


def test_the_openapi_page_lists_them_all() -> None:
    names = set(schema(ChatRequest)["properties"]) | set(schema(CompletionRequest)["properties"])
    assert names == {*HONOURED, *IGNORED, *REFUSED}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_unless_it_asks_for_nothing(name: str) -> None:
    refusal = REFUSED[name]
    body = post(pair(), body={name: "please"})
    assert problem(body) == (400, name, "unsupported")
    assert refusal.reason in body.json()["error"]["message"]
    for neutral in (None, *refusal.neutral):
        assert post(pair(), body={name: neutral}).status_code == 200
        assert post(pair(), TEXT, {name: neutral}).status_code == 200


def test_one_is_not_true() -> None:
    assert post(pair(), body={"n": True}).status_code == 400
    assert post(pair(), body={"logprobs": 0}).status_code == 400
    assert post(pair(), body={"n": 1.0}).status_code == 200


@pytest.mark.parametrize("name", IGNORED)
def test_what_is_ignored_is_named(name: str) -> None:
    response = post(pair(), CHAT, {name: {"any": "thing"}})
    assert (response.status_code, response.headers["x-relaygen-ignored"]) == (200, name)
