"""What happens to every request before and behind the routes, in plain ASGI: ids, keys, headers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._errors import ApiError
from ._logs import Log, failure
from ._watch import Exchange, Watcher

OPEN_PATHS = ("/health", "/ready", "/metrics")
"""Answered without a key, for a load balancer and Prometheus have none; and not logged."""

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Keys:
    """The API keys that are accepted, compared in constant time.

    Args:
        keys: none at all: everybody may call.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def accept(self, authorization: str, api_key: str = "") -> bool:
        """Whether one of the two headers holds a key. Every key is compared, whatever matches."""
        if not self._digests:
            return True
        scheme, _, token = authorization.partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else api_key
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
        found = False
        for each in self._digests:
            found |= hmac.compare_digest(digest, each)
        return found


class Guard:
    """The outermost layer.

    Args:
        app: the routes.
        keys: of clients.
        log: gets one line per request.
        watcher: is told of each request.
        root_path: where a proxy in front mounts the server, whether or not it takes this off.
        public: further paths that need no key.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        log: Log,
        watcher: Watcher,
        root_path: str = "",
        public: Collection[str] = (),
    ) -> None:
        self._app = app
        self._keys = keys
        self._log = log
        self._watcher = watcher
        self._root = root_path
        self._public = frozenset((*OPEN_PATHS, *public))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        id = headers.get(b"x-request-id", "")
        if not _SANE_ID.fullmatch(id):
            id = uuid.uuid4().hex
        note: dict[str, Any] = {}
        path = scope["path"]
        if self._root and path.startswith(self._root + "/"):
            path = path.removeprefix(self._root)
        scope = {**scope, "root_path": self._root, "path": self._root + path}
        exchange = Exchange(id, scope["method"], path, headers)
        state = {"request_id": id, "log": note, "exchange": exchange}
        scope["state"] = {**scope.get("state", {}), **state}
        mark = (b"x-request-id", id.encode())
        began = time.monotonic()
        status: int | None = None

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                nonlocal status
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), mark]}
            await send(message)

        try:
            await self._serve(scope, receive, marked, headers, path)
        except asyncio.CancelledError:
            note.setdefault("error", "shutting_down")  # this server waits no longer for it
            raise
        except Exception as error:
            status = 500  # which the application's outermost layer sends
            note |= failure(error)
            raise
        finally:
            if path not in OPEN_PATHS:
                self._log.line(
                    "error" if (status or 0) >= 500 or "traceback" in note else "info",
                    "request",
                    request_id=id,
                    method=scope["method"],
                    route=path[:200],
                    status=status or 499,
                    client=(scope.get("client") or ("",))[0],
                    seconds=round(time.monotonic() - began, 4),
                    **note,
                )
                self._watcher.end(exchange, status or 499, note.get("error", ""))

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, str], path: str
    ) -> None:
        authorization, api_key = headers.get(b"authorization", ""), headers.get(b"x-api-key", "")
        if path not in self._public and not self._keys.accept(authorization, api_key):
            await reply(
                send,
                ApiError(
                    401,
                    "the API key is missing or wrong: send it as Authorization: Bearer KEY",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                ),
            )
            return
        await self._app(scope, receive, send)


async def reply(send: Send, error: ApiError) -> None:
    """Send an error as the whole reply."""
    data = error.data
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        *((name.lower().encode(), value.encode()) for name, value in error.headers.items()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
