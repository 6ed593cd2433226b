"""Running a mock engine: in the foreground, or behind a test."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .._errors import EngineStartError, MissingExtraError, UsageError
from ._app import make_app
from ._config import MockConfig
from ._routes import RESET

if TYPE_CHECKING:
    import uvicorn

_TICK = 0.01  # seconds
_PATIENCE = 10.0  # seconds for a server to start or to stop


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        UsageError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {host}:{port}: {error.strerror}", hint="choose another --port"
        ) from None


def make_server(config: MockConfig) -> uvicorn.Server:
    """A server that is not running yet; give its `run` the socket.

    Raises:
        UsageError: there is no such trace.
        MissingExtraError: uvicorn is not installed.
    """
    try:
        import uvicorn
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        raise MissingExtraError("uvicorn", extra="serve") from None

    class Protocol(HttpToolsProtocol):
        """HTTP whose application can break the connection."""

        def on_message_begin(self) -> None:
            super().on_message_begin()
            scope: Any = self.scope
            scope["extensions"] = {RESET: self._reset}

        def _reset(self) -> None:
            connection = self.transport.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)  # close sends RST
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()

    class Server(uvicorn.Server):
        """A server that ends at once, whatever is under way."""

        async def main_loop(self) -> None:
            # A signal handler or another thread sets it: no event of this loop.
            while not self.should_exit:  # noqa: ASYNC110
                await asyncio.sleep(_TICK)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for connection in list(self.server_state.connections):
                transport: Any = connection.transport
                transport.abort()
            await super().shutdown(sockets)

    return Server(
        uvicorn.Config(
            make_app(config),
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=600,  # an engine that hangs up first would fail requests at random
            timeout_graceful_shutdown=1,
        )
    )


@contextmanager
def serving(config: MockConfig | None = None, *, host: str = "127.0.0.1") -> Iterator[str]:
    """A mock engine in a thread of its own; gives its URL.

    Raises:
        UsageError: there is no such trace.
        MissingExtraError: uvicorn or starlette is not installed.
        EngineStartError: the server does not start.
    """
    server = make_server(config or MockConfig())
    with listen(host, 0) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + _PATIENCE
            while not server.started and thread.is_alive() and time.monotonic() < deadline:
                time.sleep(0.005)
            if not server.started:
                raise EngineStartError("the mock engine did not start")
            yield f"http://{host}:{port}"
        finally:
            server.should_exit = True
            thread.join(_PATIENCE)
