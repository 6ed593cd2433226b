"""What servers answer: JSON, events, and errors in the shapes that various servers give them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from .._errors import ContextLengthError, EngineError, EngineReplyError, EngineUnreachableError
from ._transport import Reply, TransportError

TRANSIENT = (408, 429, 500, 502, 503, 504)
"""HTTP statuses after which the same call may succeed."""

REFUSALS = (400, 413, 422)
"""HTTP statuses that call the request itself invalid."""

_CERTIFICATES = "give the certificates that it is known by (--ca FILE)"
_UP = "is the server up, and is its URL right (http:// or https://, host and port)?"

_TOO_LONG = ("maximum context length", "model's context length", "maximum allowed length")
"""What vLLM and SGLang say of a prompt that does not fit."""

_decode = json.JSONDecoder().raw_decode


class Replies:
    """Reads the answers of one server.

    Args:
        url: for error messages.
        role: for error messages.
    """

    def __init__(self, url: str, role: str) -> None:
        self.url = url
        self.role = role

    def event(self, payload: bytes) -> dict[str, Any]:
        """The object of an event.

        Raises:
            EngineError: it reports an error, or is no object.
        """
        event = self.json(payload)
        if not isinstance(event, dict):
            raise EngineReplyError(f"unusable event: {line(payload)}", role=self.role)
        if event.get("error"):
            raise self._failed(event, 500)
        if event.get("object") == "error":  # a flat one, as older servers have it
            raise self._failed({"error": event}, 500)
        return event

    def json(self, payload: bytes) -> Any:
        """The value of a JSON answer.

        Raises:
            EngineReplyError: it is none.
        """
        try:
            text = payload.decode()
            value, end = _decode(text)  # half the time of `json.loads`, but it wants nothing around
            return value if end == len(text) else json.loads(text)
        except ValueError:
            with contextlib.suppress(ValueError):
                return json.loads(payload)
            raise EngineReplyError(
                f"{self.url} answered what is no JSON: {line(payload)}", role=self.role
            ) from None

    def unreachable(self, error: TransportError) -> EngineError:
        """The error of a connection that failed."""
        return EngineUnreachableError(
            f"{self.url} {line(str(error))}",
            role=self.role,
            hint=_CERTIFICATES if error.untrusted else _UP,
            retryable=not error.untrusted,
        )

    def stalled(self, seconds: float) -> EngineError:
        """The error of a stream that does not go on."""
        return EngineUnreachableError(f"{self.url} sent no token for {seconds:g} s", role=self.role)

    def refused(self, reply: Reply, payload: bytes) -> EngineError:
        """The error of a reply without success."""
        status = reply.status
        if 300 <= status < 400:
            to = reply.field("location") or "another address"
            return EngineReplyError(
                f"{self.url} answered {status}: it redirects to {line(to)}",
                role=self.role,
                hint="give the address that it redirects to",
            )
        body: Any = None
        with contextlib.suppress(ValueError):
            body = json.loads(payload)
        if isinstance(body, dict) and "error" not in body and "message" in body:
            body = {"error": body}  # a flat body, as some servers and routers have it
        if not isinstance(body, dict) or "error" not in body:
            body = {"error": line(payload) or reply.reason}
        return self._failed(body, status)

    def _failed(self, body: dict[str, Any], status: int) -> EngineError:
        error = body["error"]
        details = error if isinstance(error, dict) else {"message": error}
        message = line(str(details.get("message", details)))
        code = details.get("code")
        status = code if isinstance(code, int) else status
        if details.get("type") == "exceed_context_size_error":
            return ContextLengthError(
                f"the prompt has {details.get('n_prompt_tokens')} tokens, "
                f"the context holds {details.get('n_ctx')}",
                role=self.role,
                hint="start the engine with a larger context (--ctx), or shorten the prompt",
            )
        if status == 400 and too_long(message):
            return overflow(message, self.role)
        if status in (401, 403):
            return EngineError(
                f"{self.url} refused the API key: {message}",
                role=self.role,
                hint="give the key that the server was started with",
            )
        return EngineReplyError(
            f"{self.url} answered {status}: {message}",
            role=self.role,
            retryable=status in TRANSIENT,
            refused=status in REFUSALS,
        )


def too_long(message: str) -> bool:
    """Whether a server's words mean that a prompt does not fit its context."""
    return any(words in message for words in _TOO_LONG)


def overflow(message: str, role: str) -> ContextLengthError:
    """The error of such a prompt."""
    return ContextLengthError(
        message,
        role=role,
        hint="start the engine with a larger context (vLLM: --max-model-len, SGLang: "
        "--context-length), or shorten the prompt",
    )


def taken(error: EngineReplyError) -> None:
    """A server that has begun to write has taken the request, so that it cannot be invalid.

    What it calls so later on is its own failure: SGLang gives every failure of a stream the code
    400.
    """
    if error.refused:
        error.refused, error.retryable = False, True


def line(text: str | bytes, most: int = 300) -> str:
    """One line of at most `most` characters."""
    if isinstance(text, bytes):
        text = text[: 4 * most].decode(errors="replace")
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
