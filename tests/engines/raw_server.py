"""A server that answers with the bytes it is given, and notes what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

JSON = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class RawServer:
    """Each request is answered with the next reply; the last one stays. None drops the connection.

    Attributes:
        replies: bytes; ``wait`` seconds lie between two parts, which ``|`` divides.
        requests: heads, each with the number of its connection.
        connections: how many there were.
    """

    replies: list[bytes | None]
    wait: float = 0.0
    hold: bool = True
    requests: list[tuple[int, str]] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        number = self.connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append((number, head))
                length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length or 0))
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                if reply is None:
                    break
                for part in reply.split(b"|"):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(self.wait)
                if not self.hold:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.gone.set()
        finally:
            writer.close()

    def lines(self, index: int = -1) -> list[str]:
        """The head's lines of a request."""
        return self.requests[index][1].split("\r\n")


@asynccontextmanager
async def raw(
    *replies: bytes | None, tls: Callable[[], ssl.SSLContext] | None = None, **fields: object
) -> AsyncIterator[RawServer]:
    """Serve these replies on loopback."""
    made = RawServer(list(replies or [JSON]))
    for name, value in fields.items():
        setattr(made, name, value)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls() if tls else None)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks)
