"""Connections to one server: requests, and replies that are read as they come.

Replies are read with timeouts that cost nothing per chunk: one timer looks now and then whether the
reply is still alive.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ._http1 import Body, Head, parse_head

_READ = 1 << 16
_HEAD = 1 << 16
_WATCH_S = 0.05
"""The least seconds between two looks at a reply's age."""


class TransportError(Exception):
    """Why a call failed; the text continues "<address> …"."""


class ConnectFailed(TransportError):
    """No connection came to be."""


class TimedOut(TransportError):
    """No answer, or none for too long."""


class Dropped(TransportError):
    """The connection ended in the middle."""


class NoHttp(TransportError):
    """What came is no HTTP reply."""


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    ``path`` is put before every route: servers may live below one.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    login: str = ""

    @classmethod
    def of(cls, url: str) -> Address:
        """From ``http://host:port``.

        Raises:
            ValueError: it is something else.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        login = ""
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), login)

    @property
    def authority(self) -> str:
        """Host and port as HTTP writes them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.idle_since = 0.0

    def abort(self) -> None:
        self.writer.transport.abort()


class Reply:
    """A reply whose body is read as it comes.

    Attributes:
        head: status and fields; made by `Transport.send`.
        late: it took too long and was broken off.
    """

    head: Head

    def __init__(self, connection: _Connection, give_back: Callable[[_Connection], None]) -> None:
        self._connection = connection
        self._give_back = give_back
        self._body = Body("none")
        self._loop = asyncio.get_running_loop()
        self._limit = 0.0
        self._alive = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.late = False
        self._closed = False

    def watch(self, seconds: float) -> None:
        """From now on nothing may take longer than this without a call of `watch` or `alive`."""
        self._limit = seconds
        self._alive = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._look)

    def alive(self) -> None:
        """Something came that counts."""
        self._alive = self._loop.time()

    def _look(self) -> None:
        left = self._alive + self._limit - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(max(left, _WATCH_S), self._look)
            return
        self.late = True
        self._connection.abort()

    async def begin(self) -> None:
        """Read the head.

        Raises:
            TransportError: there is none; `Dropped` without a text where not a byte came.
        """
        while True:
            try:
                raw = await self._connection.reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                raise NoHttp("does not answer in HTTP") from None
            except asyncio.IncompleteReadError as error:
                self._check()
                if error.partial and not error.partial.startswith(b"HTTP/"):
                    raise NoHttp("does not answer in HTTP") from None
                why = "dropped the connection without an answer" if error.partial else ""
                raise Dropped(why) from None
            except OSError as error:
                self._check()
                raise Dropped("") from error
            try:
                self.head = parse_head(raw)
                length = int(self.head.fields.get("content-length", 0))
            except ValueError:
                raise NoHttp("does not answer in HTTP") from None
            if self.head.status >= 200:  # else a note before the reply
                self._body = Body(self.head.framing, length)
                return

    def _check(self) -> None:
        if self.late:
            raise TimedOut(f"did not answer within {self._limit:g} s")

    async def read(self) -> bytes:
        """What came next; empty at the end of the body.

        Raises:
            TransportError: too late, broken off, or no HTTP.
        """
        while not self._body.done:
            try:
                raw = await self._connection.reader.read(_READ)
            except OSError as error:
                self._check()
                raise Dropped(f"dropped the connection: {why(error)}") from error
            if not raw:
                self._check()
                if self._body.end():
                    break
                raise Dropped("dropped the connection in the middle of an answer")
            try:
                data = self._body.feed(raw)
            except ValueError as error:
                raise NoHttp(f"sent what is no HTTP: {error}") from None
            if data:
                return data
        return b""

    async def all(self) -> bytes:
        """The rest of the body.

        Raises:
            TransportError: see `read`.
        """
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Keep the connection if the reply was read to its end, else end it at once."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._body.clean and self.head.kept and not self.late:
            self._give_back(self._connection)
        else:
            self._connection.abort()


class Transport:
    """Connections to one server, in one event loop.

    Args:
        address: of the server.
        connect_timeout: seconds for a connection to come to be.
        tls: makes the TLS context when it is needed, which takes 20 ms.
        proxy: an HTTP proxy; None for none.
        keep: seconds for which an unused connection is kept; 0 keeps none.
    """

    def __init__(
        self,
        address: Address,
        *,
        connect_timeout: float,
        tls: Callable[[], ssl.SSLContext],
        proxy: Address | None,
        keep: float,
    ) -> None:
        self._address = address
        self._connect_s = connect_timeout
        self._tls = tls
        self._proxy = proxy
        self._keep = keep
        self._idle: list[_Connection] = []
        self._closed = False

    async def send(
        self, method: str, path: str, fields: str, body: bytes | None, *, limit: float
    ) -> Reply:
        """Send a request and wait for the head of its reply.

        Args:
            method: of HTTP.
            path: the route.
            fields: further header lines, each with its line end.
            body: JSON.
            limit: seconds until the head must have come.

        Raises:
            TransportError: it could not be sent, or no head came.
        """
        head = self._head(method, path, fields, body)
        while True:
            kept = self._kept()
            connection = kept or await self._connect()
            reply = Reply(connection, self._give_back)
            done = False
            try:
                reply.watch(limit)
                connection.writer.write(head + (body or b""))
                await reply.begin()
                done = True
                return reply
            except Dropped as error:
                # The server may close a kept connection in the moment of its next use. It has not
                # answered with a byte, so the request goes out once more.
                if kept is None or str(error):
                    if str(error):
                        raise
                    raise Dropped("dropped the connection without an answer") from error
            finally:
                if not done:
                    reply._body.clean = False
                    reply.close()

    def _head(self, method: str, path: str, fields: str, body: bytes | None) -> bytes:
        target = self._address.path + path
        if self._proxy and self._address.scheme == "http":
            target = f"http://{self._address.authority}{target}"
            fields = _login(self._proxy) + fields
        lines = f"{method} {target} HTTP/1.1\r\nHost: {self._address.authority}\r\n{fields}"
        if not self._keep:
            lines += "Connection: close\r\n"
        if body is not None:
            lines += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return (lines + "\r\n").encode("latin-1")

    def _kept(self) -> _Connection | None:
        """The last one used that the server has not closed."""
        now = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            fresh = now - connection.idle_since < self._keep
            if fresh and not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.abort()
        return None

    def _give_back(self, connection: _Connection) -> None:
        if self._closed or not self._keep:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if time.monotonic() - self._idle[0].idle_since > self._keep:
            self._idle.pop(0).abort()

    async def _connect(self) -> _Connection:
        try:
            return await asyncio.wait_for(self._open(), self._connect_s)
        except asyncio.TimeoutError:
            raise TimedOut(f"did not answer within {self._connect_s:g} s") from None
        except OSError as error:
            raise ConnectFailed(f"cannot be reached: {why(error)}") from error

    async def _open(self) -> _Connection:
        address = self._address
        secure = address.scheme == "https"
        context = self._tls() if secure else None
        name = address.host if secure else None
        if self._proxy is None:
            streams = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=name, limit=_HEAD
            )
        elif not secure:
            streams = await asyncio.open_connection(self._proxy.host, self._proxy.port, limit=_HEAD)
        else:
            tunnel = await self._tunnel(self._proxy)
            streams = await asyncio.open_connection(
                sock=tunnel, ssl=context, server_hostname=name, limit=_HEAD
            )
        return _Connection(*streams)

    async def _tunnel(self, proxy: Address) -> socket.socket:
        """A socket that a proxy has joined to the server."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = found[0]
        tunnel = socket.socket(family, kind, protocol)
        try:
            tunnel.setblocking(False)
            await loop.sock_connect(tunnel, where)
            target = self._address.authority
            ask = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{_login(proxy)}\r\n"
            await loop.sock_sendall(tunnel, ask.encode("latin-1"))
            raw = b""
            while not raw.endswith(b"\r\n\r\n"):  # byte by byte: what follows belongs to TLS
                byte = await loop.sock_recv(tunnel, 1)
                raw += byte
                if not byte or len(raw) > _HEAD:
                    raise OSError("the proxy answered nothing usable")
            try:
                head = parse_head(raw)
            except ValueError:
                raise OSError("the proxy does not answer in HTTP") from None
            if head.status != 200:
                raise OSError(f"the proxy answered {head.status} {head.reason}".rstrip())
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    async def aclose(self) -> None:
        """End the unused connections. Safe to call twice."""
        self._closed = True
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)  # transports close in the next turn of the loop


def _login(proxy: Address) -> str:
    if not proxy.login:
        return ""
    secret = base64.b64encode(proxy.login.encode()).decode()
    return f"Proxy-Authorization: Basic {secret}\r\n"


def why(error: OSError) -> str:
    """What the system says, on one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return " ".join(str(error.strerror or error).split()) or type(error).__name__
