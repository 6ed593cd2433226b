"""A small HTTP server that plays recorded replies of a llama-server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaygen._types import Delta, Sampling, SegmentRequest
from relaygen.engines._vocabulary import UNUSED, Vocabulary
from relaygen.engines.base import Engine

RECORDINGS = Path(__file__).parent / "recordings"


def load(name: str) -> Any:
    """A recorded JSON answer."""
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def recorded_vocabulary() -> Vocabulary:
    """The tokens of the recorded streams under their real ids, all others unused."""
    known: dict[str, tuple[str, int]] = load("vocabulary")
    size = max(map(int, known)) + 1
    tokens, types = [b""] * size, [UNUSED] * size
    for id, (data, kind) in known.items():
        tokens[int(id)], types[int(id)] = bytes.fromhex(data), kind
    return Vocabulary("llama", tokens, types, {151645})


@dataclass(frozen=True)
class Reply:
    """One answer.

    ``parts`` are sent one by one with ``pause`` seconds before each; ``end`` is what follows them:
    the regular end, a broken connection, or nothing until the client goes.
    """

    parts: Sequence[bytes] = ()
    status: int = 200
    kind: str = "application/json"
    pause: float = 0.0
    end: str = "regular"  # or "break", "hang"


def answer(value: Any, status: int = 200) -> Reply:
    """A JSON answer."""
    return Reply([json.dumps(value).encode()], status)


def sse(*events: Any, **fields: Any) -> Reply:
    """An event stream of these objects; bytes are sent as they are."""
    parts = [
        each if isinstance(each, bytes) else f"data: {json.dumps(each)}\n\n".encode()
        for each in events
    ]
    return Reply(parts, kind="text/event-stream", **fields)


def recorded(name: str, cut: int = 0) -> Reply:
    """A recorded event stream, in parts of ``cut`` bytes."""
    raw = (RECORDINGS / f"{name}.sse").read_bytes()
    size = cut or len(raw)
    parts = [raw[start : start + size] for start in range(0, len(raw), size)]
    return Reply(parts, kind="text/event-stream")


Route = Reply | Callable[[Any], Reply] | list[Reply]


@dataclass
class Replay:
    """Answers by path; a list is used up one by one, its last reply stays.

    ``calls`` holds what was asked, ``begun`` is set when an event stream begins and ``gone`` when
    a client leaves during an answer.
    """

    routes: dict[str, Route]
    url: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def bodies(self, path: str) -> list[Any]:
        """What was posted to this path."""
        return [body for each, body in self.calls if each == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            raw = await reader.readexactly(int(fields.get("content-length", 0)))
            path = head[0].split()[1]
            body = json.loads(raw) if raw else None
            self.calls.append((path, body))
            self.headers.append(fields)
            await self._send(self._reply(path, body), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()

    def _reply(self, path: str, body: Any) -> Reply:
        route = self.routes.get(path)
        if route is None:
            return answer({"error": {"code": 404, "message": "File Not Found"}}, 404)
        if isinstance(route, list):
            return route.pop(0) if len(route) > 1 else route[0]
        return route if isinstance(route, Reply) else route(body)

    async def _send(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(
            f"HTTP/1.1 {reply.status} X\r\nContent-Type: {reply.kind}\r\n"
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
        )
        if reply.kind == "text/event-stream":
            self.begun.set()
        for part in filter(None, reply.parts):  # an empty chunk would be the end
            if reply.pause:
                await asyncio.sleep(reply.pause)
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
        if reply.end == "regular":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        elif reply.end == "hang":
            await reader.read()
            self.gone.set()


@asynccontextmanager
async def playing(**changes: Route) -> AsyncIterator[Replay]:
    """A server with the recorded start-up answers; ``completion=…`` and the like replace routes."""
    routes: dict[str, Route] = {
        "/health": answer({"status": "ok"}),
        "/props": answer(load("props")),
        "/v1/models": answer(load("models")),
        "/tokenize": answer({"tokens": [1, 2, 3]}),
        "/detokenize": answer({"content": "<|end|>"}),
    }
    routes |= {f"/{name.replace('_', '-')}": route for name, route in changes.items()}
    replay = Replay(routes)
    server = await asyncio.start_server(replay.serve, "127.0.0.1", 0)
    replay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield replay


def asked(ids: Sequence[int], most: int = 100, **fields: Any) -> SegmentRequest:
    """A greedy request."""
    return SegmentRequest(
        tuple(ids), most, Sampling(temperature=0.0), fields.pop("session", "s"), **fields
    )


async def collect(engine: Engine, request: SegmentRequest) -> list[Delta]:
    """All deltas; the last one and only that has an end."""
    deltas = [delta async for delta in engine.stream(request)]
    assert [delta.end is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    return deltas


def ids_in(deltas: Sequence[Delta]) -> list[int | None]:
    """The ids of all pieces."""
    return [piece.id for delta in deltas for piece in delta.pieces]


def data_in(deltas: Sequence[Delta]) -> bytes:
    """The bytes of all pieces."""
    return b"".join(piece.data for delta in deltas for piece in delta.pieces)
