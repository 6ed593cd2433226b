"""HTTP to an inference server: JSON calls, event streams, and what their failures mean."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import SplitResult, urlsplit

from .._errors import UsageError
from ._events import Events
from ._per_loop import PerLoop
from ._replies import Replies
from ._transport import Reply, Transport, TransportError

if TYPE_CHECKING:
    from typing_extensions import Unpack

_SESSION = "{session}"
_AFFINITY = "x-session-token"
_PROMPTS = 1024
"""Conversations whose prompts are kept as JSON."""


class WireOptions(TypedDict, total=False):
    """How to talk to a server; every adapter takes these.

    Attributes:
        api_key: sent as a bearer token.
        timeout: seconds without an answer, or without an event once a stream has begun, after
            which a call fails.
        first_timeout: seconds until the first event of a stream: a long prompt is computed then.
        connect_timeout: seconds for a connection to come to be.
        headers: sent with every request. Where a value holds ``{session}``, the request's session
            stands for that, and requests without one do not send it.
        ca: a file of certificates to trust, for https.
        proxy: ``http://host:port`` of a proxy; the environment's is not used.
        role: for error messages.
    """

    api_key: str | None
    timeout: float
    first_timeout: float
    connect_timeout: float
    headers: Mapping[str, str] | None
    ca: str | None
    proxy: str | None
    role: str


class Wire:
    """A server's address and how to talk to it. Nothing is opened before the first call.

    Redirects are not followed.

    Args:
        url: ``http://host:port``; a trailing ``/v1`` is dropped.
        keep: seconds for which an unused connection is kept, 0 for none.
        options: see `WireOptions`.

    Raises:
        UsageError: that is no HTTP address, a header cannot be sent, or the CA file is none.
    """

    def __init__(self, url: str, *, keep: float = 0.0, **options: Unpack[WireOptions]) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.role = options.get("role", "")
        self._read = Replies(self.url, self.role)
        self._timeout = options.get("timeout", 120.0)
        self._first = options.get("first_timeout", 600.0)
        self._connect = options.get("connect_timeout", 10.0)
        self._ca = options.get("ca")
        self._keep = keep
        parts = _checked(self.url, "a server")
        if parts.username is not None:
            raise UsageError(
                f"the address of {parts.hostname} must not hold a name and a password",
                hint="give what it wants as the API key or as a header",
            )
        self._secure = parts.scheme == "https"
        self._proxy = options.get("proxy") or None
        if self._proxy is not None:
            _checked(self._proxy, "a proxy")
        self._plain = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "relaygen"}
        self._by_session: dict[str, str] = {}
        if key := options.get("api_key"):
            self._plain["Authorization"] = _sendable(
                "Authorization", f"Bearer {key}", "the API key"
            )
        for name, value in (options.get("headers") or {}).items():
            found = self._by_session if _SESSION in value else self._plain
            found[name] = _sendable(name, value, f"the header {name!r}")
        self._tokens: dict[str, str] = {}
        self._prompts: dict[str, tuple[tuple[int, ...], bytes]] = {}
        self._tls: ssl.SSLContext | None = None
        self._transports = PerLoop(self._make)

    def _make(self) -> Transport:
        return Transport(
            self.url,
            connect_timeout=self._connect,
            tls=self._trust if self._secure else None,
            proxy=self._proxy,
            keep=self._keep,
        )

    def _trust(self) -> ssl.SSLContext:
        if self._tls is None:
            try:
                self._tls = ssl.create_default_context(cafile=self._ca)
            except OSError as error:
                raise UsageError(
                    f"{self._ca} holds no certificates: {error.strerror or error}",
                    hint="give a file of certificates in PEM form",
                ) from None
        return self._tls

    def _fields(self, session: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        fields = {**self._plain, **(extra or {})}
        if session:
            for name, value in self._by_session.items():
                fields[name] = value.replace(_SESSION, _one_line(session))
            token = self._tokens.get(session)
            if token is not None:
                fields[_AFFINITY] = token
        return fields

    async def get(self, path: str) -> Any:
        """A JSON answer.

        Raises:
            EngineError: see `call`.
        """
        return await self.call("GET", path)

    async def post(self, path: str, body: Mapping[str, Any], session: str = "") -> Any:
        """A JSON answer to a JSON body.

        Raises:
            EngineError: see `call`.
        """
        return await self.call("POST", path, body, session)

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, session: str = ""
    ) -> Any:
        """A JSON answer.

        Raises:
            EngineUnreachableError: refused, reset or timed out.
            ContextLengthError: the prompt is too long for the server.
            EngineReplyError: any other refusal, or an answer that is no JSON.
            EngineError: the API key is wrong.
        """
        reply, payload = await self._exchange(method, path, body, session)
        if not 200 <= reply.status < 300:
            raise self._read.refused(reply, payload)
        return self._read.json(payload)

    async def probe(self, path: str) -> tuple[int, dict[str, Any]]:
        """The HTTP status of a GET, whatever it is, and the object it answered, else an empty one.

        Raises:
            EngineUnreachableError: refused, reset or timed out.
        """
        reply, payload = await self._exchange("GET", path, None, "")
        with contextlib.suppress(ValueError):
            answer = json.loads(payload)
            if isinstance(answer, dict):
                return reply.status, answer
        return reply.status, {}

    async def healthy(self) -> bool:
        """False while the model is being loaded.

        Raises:
            EngineError: see `call`.
        """
        reply, payload = await self._exchange("GET", "/health", None, "")
        if reply.status == 503:
            return False
        if not 200 <= reply.status < 300:
            raise self._read.refused(reply, payload)
        return True

    async def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None, session: str
    ) -> tuple[Reply, bytes]:
        raw = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        try:
            reply = await self._transports.get().send(
                method, path, self._fields(session), raw, limit=self._timeout
            )
            try:
                return reply, await reply.all()
            finally:
                reply.close()
        except TransportError as error:
            raise self._read.unreachable(error) from error

    async def open(
        self,
        path: str,
        body: Mapping[str, Any],
        session: str = "",
        *,
        ids: tuple[int, ...] | None = None,
        extra: Mapping[str, str] | None = None,
        trim: Callable[[bytes], bytes] | None = None,
        prompt: str = "prompt",
    ) -> Events:
        """The beginning of an event stream.

        Args:
            path: the route.
            body: what is sent.
            session: the conversation's name, for the headers.
            ids: the prompt, where it is one of token ids; then it is not in the body.
            extra: further headers.
            trim: takes out of an event's JSON what nobody reads.
            prompt: what the route calls the ids.

        Raises:
            EngineError: see `call`.
        """
        raw = json.dumps(body, separators=(",", ":")).encode()
        if ids is not None:
            written = self._written(session, ids)
            raw = b'%b,"%b":[%b]}' % (raw[:-1], prompt.encode(), written)
        try:
            reply = await self._transports.get().send(
                "POST", path, self._fields(session, extra), raw, limit=self._first
            )
            token = reply.field(_AFFINITY)
            if token and session:
                self._tokens[session] = token
            if not 200 <= reply.status < 300:
                try:
                    reply.watch(self._timeout)
                    payload = await reply.all()
                finally:
                    reply.close()
                raise self._read.refused(reply, payload)
        except TransportError as error:
            raise self._read.unreachable(error) from error
        return Events(self._read, reply, self._timeout, trim)

    def _written(self, session: str, ids: tuple[int, ...]) -> bytes:
        """Ids as JSON writes them. A conversation only grows, so its beginning is kept."""
        known, text = self._prompts.get(session, ((), b""))
        if not known or ids[: len(known)] != known:
            known, text = (), b""
        rest = ids[len(known) :]
        if rest:
            more = str(list(rest))[1:-1].replace(" ", "").encode()
            text = b"%b,%b" % (text, more) if text else more
        if session:
            self._prompts.pop(session, None)
            self._prompts[session] = (ids, text)
            if len(self._prompts) > _PROMPTS:
                del self._prompts[next(iter(self._prompts))]  # the one not used for longest
        return text

    def forget(self, session: str) -> None:
        """The conversation is over."""
        self._tokens.pop(session, None)
        self._prompts.pop(session, None)

    async def aclose(self) -> None:
        """Close what is open. Safe to call twice."""
        transport = self._transports.take()
        if transport is not None:
            await transport.aclose()


def _checked(url: str, what: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise UsageError(
            f"{url!r} is not the address of {what}", hint="write it as http://host:port"
        )
    return parts


def _sendable(name: str, value: str, what: str) -> str:
    try:
        plain = (name + value).encode("latin-1").decode("latin-1").isprintable()
    except UnicodeEncodeError:
        plain = False
    if not plain or not name or set(name) & set(" :"):
        raise UsageError(f"{what} cannot be sent in HTTP", hint="use printable characters only")
    return value


def _one_line(text: str) -> str:
    return "".join(each for each in text if each.isascii() and each.isprintable())
