"""HTTP to a llama-server: one JSON call, one event stream, and what its failures mean."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import httpx

from .._errors import (
    ContextLengthError,
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
    UsageError,
)
from ._per_loop import PerLoop
from ._sse import EventParser

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TRANSIENT = (429, 500, 502, 503, 504)
_CONNECT_S = 10.0


class Wire:
    """A server's address and how to talk to it. Nothing is opened before the first call.

    Args:
        url: ``http://host:port``; a trailing ``/v1`` is dropped.
        api_key: sent as a bearer token.
        timeout: seconds without a byte (in a stream: without an event) after which a call fails.
        role: for error messages.

    Raises:
        UsageError: that is no HTTP address.
    """

    def __init__(self, url: str, *, api_key: str | None, timeout: float, role: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.role = role
        self._timeout = timeout
        self._headers = {"Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL:
            parsed = httpx.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageError(
                f"{url!r} is not the address of a server", hint="write it as http://host:port"
            )
        self._local = parsed.host in _LOOPBACK
        self._clients = PerLoop(self._make)

    def _make(self) -> httpx.AsyncClient:
        # No connection is kept: llama-server closes it after every stream and after 5 s, and a
        # request that meets the closing dies ("disconnected without sending a response"). A fresh
        # connection costs 0.3 ms on loopback, and an aborted stream ends its connection anyway.
        return httpx.AsyncClient(
            base_url=self.url,
            headers=self._headers,
            timeout=httpx.Timeout(self._timeout, connect=_CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=not self._local,  # a proxy for the world is none for loopback
            verify=self.url.startswith("https"),  # certificates take 20 ms to load
        )

    async def get(self, path: str) -> Any:
        """A JSON answer.

        Raises:
            EngineError: see `call`.
        """
        return await self.call("GET", path)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """A JSON answer to a JSON body.

        Raises:
            EngineError: see `call`.
        """
        return await self.call("POST", path, body)

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """A JSON answer.

        Raises:
            EngineUnreachableError: refused, reset or timed out.
            ContextLengthError: the prompt is too long for the server.
            EngineReplyError: any other refusal, or an answer that is no JSON.
            EngineError: the API key is wrong.
        """
        try:
            response = await self._clients.get().request(method, path, json=body)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            raise self._refused(response)
        return self._json(response.content)

    async def healthy(self) -> bool:
        """False while the model is being loaded.

        Raises:
            EngineError: see `call`.
        """
        try:
            response = await self._clients.get().get("/health")
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code == 503:
            return False
        if not response.is_success:
            raise self._refused(response)
        return True

    async def events(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The JSON objects of an event stream. Closing the generator closes the connection.

        Raises:
            EngineError: see `call`; also an error event, and a stream that only sends pings.
        """
        try:
            async with self._clients.get().stream("POST", path, json=body) as response:
                if not response.is_success:
                    await response.aread()
                    raise self._refused(response)
                async with aclosing(self._events(response)) as events:
                    async for event in events:
                        yield event
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    async def _events(self, response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
        parser = EventParser()
        latest: float | None = None  # before the first event a long prompt may be computed
        raw = cast(AsyncGenerator[bytes, None], response.aiter_raw())
        async with aclosing(raw) as chunks:
            async for chunk in chunks:
                for payload in parser.feed(chunk):
                    latest = time.monotonic()
                    if payload != b"[DONE]":
                        yield self._event(payload)
                if latest is not None and time.monotonic() - latest > self._timeout:
                    raise EngineUnreachableError(
                        f"{self.url} sent no token for {self._timeout:g} s", role=self.role
                    )

    def _event(self, payload: bytes) -> dict[str, Any]:
        event = self._json(payload)
        if not isinstance(event, dict):
            raise EngineReplyError(f"unusable event: {_line(payload)}", role=self.role)
        if "error" in event:
            raise self._failure(event, 500)
        return event

    def _json(self, payload: bytes) -> Any:
        try:
            return json.loads(payload)
        except ValueError:
            raise EngineReplyError(
                f"{self.url} answered what is no JSON: {_line(payload)}", role=self.role
            ) from None

    def _unreachable(self, error: httpx.HTTPError) -> EngineError:
        if isinstance(error, httpx.TimeoutException):
            seconds = _CONNECT_S if isinstance(error, httpx.ConnectTimeout) else self._timeout
            why = f"did not answer within {seconds:g} s"
        elif isinstance(error, httpx.ConnectError):
            why = f"cannot be reached: {_line(str(error)) or 'connection refused'}"
        else:
            why = f"dropped the connection: {_line(str(error)) or type(error).__name__}"
        return EngineUnreachableError(f"{self.url} {why}", role=self.role)

    def _refused(self, response: httpx.Response) -> EngineError:
        body: Any = None
        with contextlib.suppress(ValueError):
            body = json.loads(response.content)
        if not isinstance(body, dict) or "error" not in body:
            body = {"error": _line(response.content) or response.reason_phrase}
        return self._failure(body, response.status_code)

    def _failure(self, body: dict[str, Any], status: int) -> EngineError:
        error = body["error"]
        details = error if isinstance(error, dict) else {"message": error}
        message = _line(str(details.get("message", details)))
        code = details.get("code")
        status = code if isinstance(code, int) else status
        if details.get("type") == "exceed_context_size_error":
            return ContextLengthError(
                f"the prompt has {details.get('n_prompt_tokens')} tokens, "
                f"the context holds {details.get('n_ctx')}",
                role=self.role,
                hint="start the engine with a larger context (--ctx), or shorten the prompt",
            )
        if status in (401, 403):
            return EngineError(
                f"{self.url} refused the API key: {message}",
                role=self.role,
                hint="give the key that the server was started with",
            )
        return EngineReplyError(
            f"{self.url} answered {status}: {message}",
            role=self.role,
            retryable=status in _TRANSIENT,
        )

    async def aclose(self) -> None:
        """Close what is open. Safe to call twice."""
        client = self._clients.take()
        if client is not None:
            await client.aclose()


def _line(text: str | bytes, most: int = 300) -> str:
    """One line of at most `most` characters."""
    if isinstance(text, bytes):
        text = text[: 4 * most].decode(errors="replace")
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
