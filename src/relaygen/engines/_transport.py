"""Connections to one server: requests, and replies that are read as they come.

aiohttp does the HTTP: its parser is compiled, and an event stream brings a small chunk per token
(14 microseconds of CPU a chunk where httpx takes 46, both on uvloop). What is ours is the clock:
one timer per reply looks now and then whether it is still alive, which costs nothing per chunk.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout  # which aiohttp brings there

_WATCH_S = 0.05
"""The least seconds between two looks at a reply's age."""


class TransportError(Exception):
    """Why a call failed; the text continues "<address> …".

    Args:
        message: that text.
        untrusted: the server's certificate is why, so that trying again does not help.
    """

    def __init__(self, message: str, *, untrusted: bool = False) -> None:
        super().__init__(message)
        self.untrusted = untrusted


class Reply:
    """A reply whose body is read as it comes. Made by `Transport.send`.

    Attributes:
        status: of HTTP.
        reason: the words behind it.
        late: it took too long and was broken off.
    """

    def __init__(self, session: aiohttp.ClientSession, response: aiohttp.ClientResponse) -> None:
        self._session = session
        self._response = response
        self._loop = asyncio.get_running_loop()
        self._limit = 0.0
        self._alive = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.status = response.status
        self.reason = response.reason or ""
        self.late = False

    def field(self, name: str) -> str | None:
        """A header."""
        return self._response.headers.get(name)

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
        self._response.content.set_exception(
            TransportError(f"did not answer within {self._limit:g} s")
        )

    async def read(self) -> bytes:
        """What came next; empty at the end of the body.

        Raises:
            TransportError: too late, broken off, or no HTTP.
        """
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(error) from error

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
        if self._timer is not None:
            self._timer.cancel()
        if not self._response.closed:
            self._response.close()
        self._session.detach()


class Transport:
    """Connections to one server, in one event loop.

    Args:
        url: of the server.
        connect_timeout: seconds for a connection to come to be.
        tls: makes the TLS context when it is needed, which takes 20 ms; None for http.
        proxy: the URL of an HTTP proxy; None for none.
        keep: seconds for which an unused connection is kept; 0 keeps none.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float,
        tls: Callable[[], ssl.SSLContext] | None,
        proxy: str | None,
        keep: float,
    ) -> None:
        self._url = url
        self._connect_s = connect_timeout
        self._proxy = proxy
        self._keeps = keep > 0
        self._connector = aiohttp.TCPConnector(
            limit=0,
            ssl=tls() if tls is not None else True,
            **({"keepalive_timeout": keep} if keep > 0 else {"force_close": True}),
        )
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout)
        self._cookies = aiohttp.DummyCookieJar()

    def _session(self) -> aiohttp.ClientSession:
        """For one request: an engine may outlive its event loop, and a session must not."""
        return aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            timeout=self._timeout,
            cookie_jar=self._cookies,
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent", "Accept"),
        )

    async def send(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str],
        body: bytes | None,
        *,
        limit: float,
    ) -> Reply:
        """Send a request and wait for the head of its reply.

        Args:
            method: of HTTP.
            path: the route.
            fields: headers.
            body: JSON.
            limit: seconds until the head must have come.

        Raises:
            TransportError: it could not be sent, or no head came.
        """
        if body is not None:
            fields = {**fields, "Content-Type": "application/json"}
        try:
            return await self._send(method, path, fields, body, limit)
        except aiohttp.ServerDisconnectedError as error:
            # The server may close a kept connection in the moment of its next use. It has not
            # answered with a byte, so the request goes out once more.
            if not self._keeps:
                raise _broken(error) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(error) from error
        try:
            return await self._send(method, path, fields, body, limit)
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(error) from error

    async def _send(
        self, method: str, path: str, fields: Mapping[str, str], body: bytes | None, limit: float
    ) -> Reply:
        session = self._session()
        reply: Reply | None = None
        try:
            async with timeout(limit):
                response = await session.request(
                    method,
                    URL(self._url + path, encoded=True),
                    data=body,
                    headers=fields,
                    allow_redirects=False,
                    proxy=self._proxy,
                )
        except aiohttp.ServerTimeoutError:  # of the connection; no other is set
            raise TransportError(f"did not answer within {self._connect_s:g} s") from None
        except asyncio.TimeoutError:
            raise TransportError(f"did not answer within {limit:g} s") from None
        else:
            reply = Reply(session, response)
            reply.watch(limit)
            return reply
        finally:
            if reply is None:
                session.detach()

    async def aclose(self) -> None:
        """End the unused connections. Safe to call twice."""
        await self._connector.close()
        await asyncio.sleep(0)  # transports close in the next turn of the loop


def _broken(error: Exception) -> TransportError:
    """Ours for aiohttp's."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = f"cannot be reached: its certificate is not trusted: {_words(error)}"
        return TransportError(why, untrusted=True)
    if isinstance(error, aiohttp.ClientConnectorError):
        return TransportError(f"cannot be reached: {_words(error.os_error)}")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return TransportError(f"cannot be reached: the proxy answered {error.status}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return TransportError("dropped the connection without an answer")
    if isinstance(error, aiohttp.ClientResponseError):
        return TransportError("does not answer in HTTP")
    if isinstance(error, aiohttp.ClientPayloadError):
        return TransportError("dropped the connection in the middle of an answer")
    return TransportError(f"dropped the connection: {_words(error)}")


def _words(error: Exception) -> str:
    """What it says, on one line."""
    told = getattr(error, "strerror", None) or str(error)
    return " ".join(told.split()) or type(error).__name__
