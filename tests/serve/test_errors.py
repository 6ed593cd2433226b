from __future__ import annotations

import json

import pytest

from relaygen._errors import (
    ContextLengthError,
    EngineError,
    EngineReplyError,
    EngineStartError,
    EngineUnreachableError,
    ModelError,
    PolicyError,
    RelayGenError,
    UsageError,
)
from relaygen.serve._errors import api_error, invalid, without_address


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UsageError("x"), 400, None),
        (ContextLengthError("x"), 400, "context_length_exceeded"),
        (EngineReplyError("x", refused=True), 400, "engine_refused"),
        (EngineReplyError("x"), 502, "engine_error"),
        (EngineStartError("x"), 502, "engine_error"),
        (EngineUnreachableError("x"), 503, "engine_unreachable"),
        (EngineError("x"), 502, "engine_error"),
        (ModelError("x"), 500, "internal_error"),
        (PolicyError("x"), 500, "internal_error"),
    ],
)
def test_every_error_of_ours_has_a_status(
    error: RelayGenError, status: int, code: str | None
) -> None:
    made = api_error(error)
    assert (made.status, made.code) == (status, code)
    assert ("Retry-After" in made.headers) == (status == 503)
    assert made.type == ("server_error" if status >= 500 else "invalid_request_error")


def test_the_callers_hints_are_kept_and_the_operators_are_not() -> None:
    assert str(api_error(UsageError("wrong", hint="do this"))) == "wrong (do this)"
    error = EngineError("wrong", role="large", hint="start it with --x")
    assert str(api_error(error)) == "large engine: wrong"


def test_an_engines_address_is_not_told() -> None:
    text = "large engine: http://10.0.0.5:8000 answered 500: see https://x"
    assert without_address(text) == "large engine: its server answered 500: see its server"
    text = "http://h:1 cannot be reached: Connect call failed ('::1', 1, 0, 0)"
    assert without_address(text) == "its server cannot be reached: Connect call failed"


def test_the_form_is_openais() -> None:
    made = invalid('no "good"\n', "n", "unsupported")
    assert json.loads(made.data) == made.body
    assert made.body == {
        "error": {
            "message": 'no "good"\n',
            "type": "invalid_request_error",
            "param": "n",
            "code": "unsupported",
        }
    }
