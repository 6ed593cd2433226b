"""Errors in OpenAI's form, and which status each of ours has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .._errors import (
    ContextLengthError,
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
    PolicyError,
    RelayGenError,
    UsageError,
)

_SOCKET = re.compile(r" ?\('[^']*', \d+(, \d+)*\)")  # as asyncio names one
RETRY_AFTER_S = 2
"""What a client is told to wait where nothing better is known."""


class ApiError(Exception):
    """What a client is answered.

    Args:
        status: of HTTP.
        message: one line that says what is wrong and what to do.
        type: OpenAI's class of error.
        param: the request's field.
        code: for programs.
        headers: of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """As JSON."""
        error = {"message": str(self), "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}

    @property
    def data(self) -> bytes:
        """The body, encoded."""
        return json.dumps(self.body).encode()


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The request makes no sense: 400."""
    return ApiError(400, message, param=param, code=code)


def not_found(message: str, *, param: str | None = None, code: str = "not_found") -> ApiError:
    """There is no such thing: 404."""
    return ApiError(404, message, param=param, code=code)


def unavailable(message: str, *, code: str, seconds: int = RETRY_AFTER_S) -> ApiError:
    """Not now: 503 with the seconds to wait."""
    return ApiError(
        503, message, type="server_error", code=code, headers={"Retry-After": str(seconds)}
    )


def internal() -> ApiError:
    """A defect of ours: the client learns that, the log why."""
    return ApiError(500, "internal error", type="server_error", code="internal_error")


def api_error(error: RelayGenError) -> ApiError:
    """What one of our errors means to a client.

    An engine's own words are kept; its address is not: a client has no business with it.
    """
    message = _sentence(error)
    if isinstance(error, PolicyError):
        return internal()
    if isinstance(error, UsageError):
        return invalid(message)
    if isinstance(error, ContextLengthError):
        return invalid(message, "messages", "context_length_exceeded")
    if isinstance(error, EngineReplyError):
        if error.refused:
            return invalid(message, code="engine_refused")
        return ApiError(502, message, type="server_error", code="engine_error")
    if isinstance(error, EngineUnreachableError):
        return unavailable(message, code="engine_unreachable")
    if isinstance(error, EngineError):
        return ApiError(502, message, type="server_error", code="engine_error")
    return ApiError(500, message, type="server_error", code="internal_error")


def is_defect(error: RelayGenError) -> bool:
    """Whether it is one of a policy's or an engine's own code, so that the log must say where."""
    if isinstance(error, PolicyError):
        return True
    return type(error) is EngineError and error.__cause__ is not None


def _sentence(error: RelayGenError) -> str:
    text = without_address(str(error))
    if isinstance(error, EngineError) or not error.hint:
        return text  # an engine's hints are for its operator
    return f"{text} ({error.hint})"


def without_address(text: str) -> str:
    """One line in which an engine's address does not stand."""
    text = _SOCKET.sub("", text)
    return " ".join("its server" if "://" in word else word for word in text.split())
