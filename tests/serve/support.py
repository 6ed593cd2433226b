"""Shared by the server's tests: a served pair of scripted engines, in process and over a socket."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from relaygen import Relay
from relaygen.engines.scripted import ScriptedEngine
from relaygen.serve._app import make_app
from relaygen.serve._logs import Log
from relaygen.serve._server import Server, listen
from relaygen.serve._service import Service
from relaygen.serve._settings import Settings

T = TypeVar("T")

REASONING = "Let me see. Now we add one and two. So it is three. Done.\n"
ANSWER = "The sum is three. So be it."
THINKING = f"<think>\n{REASONING}</think>\n\n{ANSWER}"
PLAIN = "We add 1 and 2. So we are at 3. Thus it is 3. The end."
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, "zwei"]}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
TAGS = "qwen3-32b+1.7b"
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "1 + 2?"}]}


@dataclass
class Pair:
    """A served pair and what it wrote to its log."""

    large: ScriptedEngine
    small: ScriptedEngine
    app: FastAPI
    written: io.StringIO = field(default_factory=io.StringIO)

    @property
    def service(self) -> Service:
        made: Service = self.app.state.service
        return made

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written.getvalue().splitlines()]


def pair(
    script: str = THINKING,
    *,
    profile: str = TAGS,
    policy: str = "relay",
    large: ScriptedEngine | None = None,
    small: ScriptedEngine | None = None,
    settings: Settings | None = None,
) -> Pair:
    large = large or ScriptedEngine(script)
    small = small or ScriptedEngine(script)
    written = io.StringIO()
    relay = Relay(large, small, profile=profile, policy=policy)
    app = make_app(relay, settings, policy=policy, log=Log(written))
    return Pair(large, small, app, written)


def call(served: Pair, use: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
    """Use a client that talks to the application in this process."""

    async def calling() -> T:
        transport = httpx.ASGITransport(served.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await use(client)

    return asyncio.run(calling())


def post(served: Pair, path: str = CHAT, body: Any = None, **options: Any) -> httpx.Response:
    """One POST; `body` goes on top of a short question."""
    if "content" not in options:
        start: dict[str, Any] = ASK if path == CHAT else {"prompt": "1 + 2 ="}
        options["json"] = {**start, **(body or {})}
    return call(served, lambda client: client.post(path, **options))


def get(served: Pair, path: str, **options: Any) -> httpx.Response:
    return call(served, lambda client: client.get(path, **options))


def problem(response: httpx.Response) -> tuple[int, str | None, str | None]:
    """(status, param, code) of an error in OpenAI's form."""
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return response.status_code, error["param"], error["code"]


def events(text: str) -> list[Any]:
    """The data of a stream; ``[DONE]`` as it is. Comments are left out."""
    found: list[Any] = []
    for block in text.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
        else:
            assert not block or block.startswith(":"), block
    return found


def joined(found: list[Any], name: str = "content") -> str:
    """A channel of a streamed chat."""
    deltas = [chunk["choices"][0]["delta"] for chunk in found if chunk_of(chunk)]
    return "".join(delta.get(name) or "" for delta in deltas)


def chunk_of(found: Any) -> bool:
    return isinstance(found, dict) and bool(found.get("choices"))


@contextmanager
def running(served: Pair) -> Iterator[tuple[str, Server]]:
    """The application over a real socket, in a thread; gives its address and the server."""
    sock = listen("127.0.0.1", 0)
    listening = threading.Event()

    async def started() -> None:
        listening.set()

    server = Server(served.app, started=started)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        assert listening.wait(20)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@contextmanager
def serving(served: Pair) -> Iterator[str]:
    """As `running`; gives the address only."""
    with running(served) as (url, _):
        yield url


def until(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait for it."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)
