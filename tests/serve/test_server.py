from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time

import httpx
import pytest

from relaygen._errors import RelayGenError
from relaygen.engines.scripted import ScriptedEngine
from relaygen.serve._server import MAX_HEAD, Server, listen
from relaygen.serve._settings import Settings

from .support import ASK, CHAT, PLAIN, Pair, events, joined, pair, running, until

SLOW = " ".join(f"w{n}" for n in range(300))


def slow(script: str = SLOW, *, token_ms: float, drain: float) -> Pair:
    large = ScriptedEngine(script, token_ms=token_ms)
    settings = Settings(drain=drain)
    return pair(script, large=large, profile="embedded", policy="large", settings=settings)


def ask(url: str, texts: list[str]) -> threading.Thread:
    def asking() -> None:
        texts.append(httpx.post(f"{url}{CHAT}", json={**ASK, "stream": True}, timeout=60).text)

    thread = threading.Thread(target=asking)
    thread.start()
    return thread


def test_what_runs_is_finished_while_nobody_new_comes_in() -> None:
    served = slow(token_ms=5, drain=30)
    texts: list[str] = []
    with running(served) as (url, server):
        thread = ask(url, texts)
        until(lambda: served.service.admission.running == 1)
        server.handle_exit(signal.SIGTERM, None)
        ready = httpx.get(f"{url}/ready")
        assert (ready.status_code, ready.json()["draining"]) == (503, True)
        refused = httpx.post(f"{url}{CHAT}", json=ASK)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert refused.headers["retry-after"]
        assert httpx.get(f"{url}/health").status_code == 200
        thread.join(30)
        assert joined(events(texts[0])[:-1]) == SLOW
        until(lambda: server.should_exit)


def test_what_is_not_finished_in_time_is_cut_and_told() -> None:
    served = slow(token_ms=50, drain=0.2)
    texts: list[str] = []
    with running(served) as (url, server):
        thread = ask(url, texts)
        until(lambda: bool(served.large.requests))
        time.sleep(0.2)
        server.handle_exit(signal.SIGTERM, None)
        thread.join(30)
        until(lambda: server.should_exit)
    found = events(texts[0])
    assert found[-1] == "[DONE]"
    assert found[-2]["error"]["code"] == "shutting_down"
    assert SLOW.startswith(joined(found[:-2]))
    assert served.large.aborted == 1
    assert served.lines[0]["error"] == "shutting_down"


def test_a_second_signal_does_not_wait() -> None:
    served = slow(token_ms=50, drain=3600)
    texts: list[str] = []
    with running(served) as (url, server):
        thread = ask(url, texts)
        until(lambda: bool(served.large.requests))
        server.handle_exit(signal.SIGTERM, None)
        server.handle_exit(signal.SIGTERM, None)
        thread.join(30)
    assert "shutting_down" in texts[0]


def test_ctrl_c_is_reported_and_sigterm_is_a_normal_end() -> None:
    server = Server(pair(PLAIN, profile="embedded").app, started=_nothing)
    server.handle_exit(signal.SIGTERM, None)
    assert server._captured_signals == []
    server.handle_exit(signal.SIGINT, None)
    server.handle_exit(signal.SIGINT, None)
    assert server._captured_signals == [signal.SIGINT]


async def _nothing() -> None:
    pass


def test_engines_are_closed_at_the_end() -> None:
    closed: list[str] = []

    class Closing(ScriptedEngine):
        async def aclose(self) -> None:
            closed.append("closed")

    with running(pair(large=Closing(PLAIN), profile="embedded")):
        assert not closed
    assert closed == ["closed"]


def test_an_address_that_cannot_be_had() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RelayGenError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)
    with pytest.raises(RelayGenError, match="cannot listen"):
        listen("192.0.2.1", 0)
    with pytest.raises(RelayGenError, match="cannot listen"):
        listen("no.such.host.invalid", 0)


@pytest.mark.parametrize("raw", [b"GARBAGE\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\n\r\n"])
def test_what_is_no_http_does_no_harm(raw: bytes) -> None:
    with running(pair(PLAIN, profile="embedded")) as (url, _):
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
            client.sendall(raw)
            client.settimeout(10)
            assert client.recv(100).startswith(b"HTTP/1.1 4")
        reply = httpx.post(f"{url}{CHAT}", content=json.dumps(ASK).encode())
        assert reply.status_code == 200


@pytest.mark.parametrize("head", [b"x-a: ", b"GET /"])
def test_a_heads_size_is_bounded(head: bytes) -> None:
    with running(pair(PLAIN, profile="embedded")) as (url, _):
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
            client.settimeout(10)
            start = b"" if head.startswith(b"GET") else b"GET /health HTTP/1.1\r\n"
            client.sendall(start + head)
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < 16 * MAX_HEAD:
                    sent += client.send(b"a" * 4096)
                    time.sleep(0.001)
            assert sent < 16 * MAX_HEAD
        assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize("begun", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nx-a: b"])
def test_a_head_that_does_not_come_is_not_waited_for(begun: bytes) -> None:
    served = pair(PLAIN, profile="embedded", settings=Settings(write_timeout=0.3))
    with running(served) as (url, _):
        client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 10)
        with client:
            client.sendall(begun)
            assert client.recv(100).startswith(b"HTTP/1.1 408")
            assert client.recv(100) == b""


def test_a_start_that_fails_is_in_the_log() -> None:
    served = pair(PLAIN, profile="embedded")

    async def started() -> None:
        raise ZeroDivisionError

    server = Server(served.app, started=started)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listen("127.0.0.1", 0)]})
    thread.start()
    try:
        until(lambda: bool(served.written.getvalue()))
    finally:
        server.should_exit = True
        thread.join(20)
    (line,) = served.lines
    assert (line["level"], line["exception"]) == ("error", "ZeroDivisionError")
    assert "in started" in line["traceback"]
