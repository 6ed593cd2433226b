"""The process: a listening socket, signals, and a gentle end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .._errors import RelayGenError
from ._logs import JsonHandler, failure
from ._service import Service
from ._stream import ABORT

MAX_HEAD = 64 * 1024
"""Bytes of a request's line and headers."""
_GRACE_S = 5  # for what was cut to say so
_KEEP_ALIVE_S = 75  # longer than proxies keep theirs, so that they close first


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        RelayGenError: the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a host name"
        raise RelayGenError(
            f"cannot listen on {host}:{port}: {why}", hint="choose another --host or --port"
        ) from None


class Protocol(HttpToolsProtocol):
    """Lets the application end a connection whose client does not read, and bounds a request's head
    in bytes and in time: the application sees no request before that is complete."""

    _head: int | None = None  # bytes of the head that is being read
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has as long for the head as for the body."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes."""
        super().data_received(data)
        if self._head is None:
            return
        self._head += len(data)
        if self._head > MAX_HEAD:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        extensions: dict[str, Any] = {ABORT: self.transport.abort}
        self.scope["extensions"] = extensions
        self._head = 0
        self._watch()

    def on_headers_complete(self) -> None:
        """Its head is there."""
        self._head = None
        self._unwatch()
        super().on_headers_complete()

    def _watch(self) -> None:
        self._unwatch()
        app: Any = self.config.app
        seconds = app.state.service.settings.write_timeout
        self._timer = self.loop.call_later(seconds, self._late)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._watch()  # an answer before it is still on its way
        else:
            self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        self._head = None
        if not self.transport.is_closing():
            head = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head % status)
            self.transport.close()


class Server(uvicorn.Server):
    """Runs the application until a signal; then lets running requests finish.

    The first SIGTERM or Ctrl-C stops admission, while ``/ready`` goes on to answer (503); after
    the drain time what still runs is cut. A second signal cuts at once.

    Args:
        app: made by `make_app`.
        started: awaited in the background once the server listens.
    """

    def __init__(self, app: FastAPI, *, started: Callable[[], Awaitable[None]]) -> None:
        uvloop = sys.platform != "win32"
        config = uvicorn.Config(
            app,
            loop="uvloop" if uvloop else "auto",
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
        super().__init__(config)
        self._service: Service = app.state.service
        self._begin = started
        self._deadline: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then look at the engines: a slow one must not keep ``/health`` from answering."""
        await super().startup(sockets)
        self._starting = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        try:
            await self._begin()
        except Exception as error:
            self._service.log.line("error", "start", **failure(error))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close."""
        self._starting.cancel()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: SIGTERM asks for a normal end, Ctrl-C is reported as such."""
        if sig == signal.SIGINT and sig not in self._captured_signals:
            self._captured_signals.append(sig)
        now = time.monotonic()
        again = self._deadline is not None
        self._deadline = now if again else now + self._service.settings.drain
        self._service.drain()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if self._deadline is not None:
            if self._service.admission.idle:
                self.should_exit = True
            elif time.monotonic() >= self._deadline:
                self._service.cut()
                self.should_exit = True
        return await super().on_tick(counter)


def serve(app: FastAPI, sock: socket.socket, *, started: Callable[[], Awaitable[None]]) -> None:
    """Run until a signal.

    Args:
        app: made by `make_app`.
        sock: made by `listen`.
        started: awaited in the background once the server listens.
    """
    loggers = [logging.getLogger(name) for name in ("uvicorn", "opentelemetry")]
    handler = JsonHandler(app.state.service.log)
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        Server(app, started=started).run(sockets=[sock])
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
