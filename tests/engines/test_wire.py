"""How we talk to servers: headers, connections, proxies, certificates, timeouts."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from relaygen._errors import EngineReplyError, EngineUnreachableError, UsageError
from relaygen.engines._wire import Wire

from .raw_server import JSON, RawServer, raw

pytestmark = pytest.mark.anyio
REFUSED = "http://127.0.0.1:9"
EVENTS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(text: bytes) -> bytes:
    data = b"data: " + text + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


END = event(b"[DONE]") + b"0\r\n\r\n"


@asynccontextmanager
async def wired(server: RawServer | str, **options: Any) -> AsyncIterator[Wire]:
    wire = Wire(server if isinstance(server, str) else server.url, **options)
    try:
        yield wire
    finally:
        await wire.aclose()


async def read(wire: Wire, session: str = "", **fields: Any) -> list[Any]:
    events = await wire.open("/v1/completions", {"a": 1}, session, **fields)
    found: list[Any] = []
    try:
        while batch := await events.read():
            found += batch
        await events.drain()
    finally:
        events.close()
    return found


# Requests.


async def test_what_is_sent() -> None:
    async with raw() as server, wired(server.url + "/base/v1/", api_key="k") as wire:
        assert await wire.post("/tokenize", {"a": "é", "b": [1, 2]}) == {}
        assert server.lines()[:-2] == [
            "POST /base/tokenize HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            "Accept: */*",
            "Accept-Encoding: identity",
            "User-Agent: relaygen",
            "Authorization: Bearer k",
            "Content-Type: application/json",
            "Content-Length: 24",
            "Connection: close",
        ]
        await wire.get("/props")
        assert server.lines()[0] == "GET /base/props HTTP/1.1"


async def test_headers_with_the_session() -> None:
    headers = {"X-Plain": "p", "X-Session-ID": "{session}", "X-Key": "a {session} b"}
    async with raw() as server, wired(server, headers=headers) as wire:
        await wire.get("/v1/models")
        assert "X-Plain: p" in server.lines()
        assert not [line for line in server.lines() if line.startswith(("X-Session", "X-Key"))]
        await wire.post("/x", {}, "s\r\nX-Evil: 1")
        assert "X-Session-ID: sX-Evil: 1" in server.lines()
        assert "X-Plain: p" in server.lines()


@pytest.mark.parametrize(
    "headers", [{"X": "a\r\nb"}, {"X": "日"}, {"X Y": "a"}, {"X:": "a"}, {"": "a"}]
)
async def test_headers_that_cannot_be_sent(headers: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="cannot be sent"):
        Wire(REFUSED, headers=headers)


async def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(UsageError, match="the API key cannot be sent") as caught:
        Wire(REFUSED, api_key="sécret\n")
    assert "cret" not in str(caught.value)


async def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="must not hold") as caught:
        Wire("http://me:secret@host:1")
    assert "secret" not in str(caught.value)


async def test_routing_tokens_are_sent_back() -> None:
    first = JSON.replace(b"\r\n\r\n", b"\r\nX-Session-Token: pod1\r\n\r\n")
    stream = EVENTS.replace(b"\r\n\r\n", b"\r\nx-session-token: pod1\r\n\r\n") + END
    del first
    async with raw(stream) as server, wired(server, keep=3) as wire:
        await read(wire, "s")
        await read(wire, "s")
        await read(wire, "other")
        await read(wire, "s")
        wire.forget("s")
        await read(wire, "s")
        sent = [
            [line for line in head.split("\r\n") if "session-token" in line]
            for _, head in server.requests
        ]
    token = ["x-session-token: pod1"]
    assert sent == [[], token, [], token, []]


async def test_a_prompt_of_ids() -> None:
    sent: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        sent.append(await reader.readexactly(int(head.partition(b"Length: ")[2].split()[0])))
        writer.write(EVENTS + END)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, wired(url) as wire:
        for ids in [(1, 22), (1, 22, 333, 4), (1, 22, 333, 4), (1, 5), ()]:
            await read(wire, "s", ids=ids)
        await read(wire, "", ids=(6, 7))
    assert sent == [
        b'{"a":1,"prompt":[1,22]}',
        b'{"a":1,"prompt":[1,22,333,4]}',
        b'{"a":1,"prompt":[1,22,333,4]}',
        b'{"a":1,"prompt":[1,5]}',
        b'{"a":1,"prompt":[]}',
        b'{"a":1,"prompt":[6,7]}',
    ]


# Connections.


async def test_connections_are_kept_where_asked() -> None:
    async with raw() as server:
        async with wired(server, keep=5) as wire:
            for _ in range(3):
                await wire.get("/x")
            await asyncio.gather(*[wire.get("/x") for _ in range(3)])
            for _ in range(3):
                await wire.get("/x")
        assert server.connections == 3
        async with wired(server) as wire:
            await wire.get("/x")
            await wire.get("/x")
        assert server.connections == 5


async def test_a_stream_gives_its_connection_back() -> None:
    async with (
        raw(EVENTS + event(b"{}") + event(b"[DONE]") + b"|0\r\n\r\n", wait=0.01) as server,
        wired(server, keep=5) as wire,
    ):
        for _ in range(3):
            assert await read(wire) == [{}]
        assert server.connections == 1


async def test_a_closed_stream_ends_its_connection() -> None:
    async with raw(EVENTS + event(b"{}")) as server, wired(server, keep=5) as wire:
        events = await wire.open("/x", {})
        assert await events.read() == [{}]
        events.close()
        events.close()
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_a_kept_connection_that_the_server_closed() -> None:
    """Once more on a new connection; but what breaks again is an error."""
    async with raw(JSON, None, JSON) as server, wired(server, keep=5) as wire:
        await wire.get("/x")
        assert await wire.get("/x") == {}
        assert [number for number, _ in server.requests] == [1, 1, 2]
    async with raw(None) as server, wired(server, keep=5) as wire:
        with pytest.raises(EngineUnreachableError, match="without an answer"):
            await wire.post("/x", {})
        assert server.connections == 2


async def test_an_old_kept_connection_is_not_used() -> None:
    async with raw() as server, wired(server, keep=0.05) as wire:
        await wire.get("/x")
        await asyncio.sleep(0.1)
        await wire.get("/x")
        assert server.connections == 2


# Replies.


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not answer in HTTP"),
        (b"SSH-2.0-OpenSSH\r\n", "does not answer in HTTP"),
        (b"x" * 100_000, "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "in the middle"),
        (EVENTS + b"5\r\nab", "in the middle"),
        (EVENTS + b"zz\r\n", "does not answer in HTTP"),
    ],
)
async def test_broken_replies(reply: bytes, says: str) -> None:
    async with raw(reply, hold=False) as server, wired(server, role="small") as wire:
        with pytest.raises(EngineUnreachableError, match=says) as caught:
            await wire.get("/x")
    assert "\n" not in str(caught.value)
    assert caught.value.role == "small"


async def test_notes_before_a_reply_and_replies_without_an_end() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    until_closed = b'HTTP/1.1 200 OK\r\n\r\n{"a"|:1}'
    async with raw(early + until_closed, hold=False, wait=0.01) as server, wired(server) as wire:
        assert await wire.get("/x") == {"a": 1}


async def test_redirects_are_not_followed() -> None:
    moved = b"HTTP/1.1 307 X\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n"
    async with raw(moved) as server, wired(server) as wire:
        with pytest.raises(EngineReplyError, match=r"307: it redirects to http://10.0.0.1/"):
            await wire.get("/x")
        with pytest.raises(EngineReplyError, match="307"):
            await wire.open("/x", {})


async def test_what_a_batch_of_events_holds() -> None:
    several = event(b'{"n":1}') + event(b' {"n":2} ') + event(b"[DONE]") + event(b"{oops")
    async with raw(EVENTS + several) as server, wired(server) as wire:
        events = await wire.open("/x", {}, trim=lambda payload: payload.replace(b"1", b"7"))
        assert await events.read() == [{"n": 7}, {"n": 2}]
        assert await events.read() == []
        events.close()


async def test_events_before_a_failure_are_given() -> None:
    several = event(b'{"n":1}') + event(b'{"error":{"message":"oh","code":400}}') + END
    async with raw(EVENTS + several) as server, wired(server) as wire:
        events = await wire.open("/x", {})
        assert await events.read() == [{"n": 1}]
        for _ in range(2):
            with pytest.raises(EngineReplyError, match="400: oh"):
                await events.read()
        events.close()


# Timeouts.


async def test_no_answer_in_time() -> None:
    async with raw(b"HTTP/1.1 200 OK\r\n") as server, wired(server, timeout=0.1) as wire:
        with pytest.raises(EngineUnreachableError, match=r"did not answer within 0\.1 s"):
            await wire.get("/x")
    async with raw(JSON[:-1]) as server, wired(server, timeout=0.1) as wire:
        with pytest.raises(EngineUnreachableError, match=r"within 0\.1 s"):
            await wire.get("/x")


@pytest.mark.parametrize("before", [b"HTTP/1.1 200 OK\r\n", EVENTS])
async def test_no_first_event_in_time(before: bytes) -> None:
    async with (
        raw(before) as server,
        wired(server, timeout=60.0, first_timeout=0.1) as wire,
    ):
        with pytest.raises(EngineUnreachableError, match=r"did not answer within 0\.1 s"):
            await read(wire)


async def test_the_first_event_may_take_longer_than_the_others() -> None:
    pings = b"|".join([b"2\r\n:\n\r\n"] * 6)
    async with (
        raw(EVENTS + b"|" + pings + b"|" + event(b"{}") + END, wait=0.05) as server,
        wired(server, timeout=0.2, first_timeout=60.0) as wire,
    ):
        assert await read(wire) == [{}]


@pytest.mark.parametrize("ping", [b"", b"2\r\n:\n\r\n"])
async def test_a_stalled_stream(ping: bytes) -> None:
    """Pings come for longer than the test may take, and do not count."""
    pings = b"|".join([ping] * 10_000) if ping else b""
    async with (
        raw(EVENTS + event(b"{}") + b"|" + pings, wait=0.02) as server,
        wired(server, timeout=2.0) as wire,
    ):
        with pytest.raises(EngineUnreachableError, match="sent no token for 2 s"):
            await asyncio.wait_for(read(wire), 30)
        await asyncio.wait_for(server.gone.wait(), 10)


async def test_a_slow_stream_is_no_stalled_one() -> None:
    parts = b"|".join([event(b"{}")] * 12)
    async with (
        raw(EVENTS + parts + END, wait=0.1) as server,
        wired(server, timeout=0.8) as wire,
    ):
        assert len(await read(wire)) == 12


async def test_a_connection_that_does_not_come_to_be() -> None:
    import socket

    with socket.socket() as full:  # its backlog is full, so nobody is let in
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        others = []
        for _ in range(4):
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(full.getsockname())
            others.append(other)
        async with wired(url, connect_timeout=0.1, timeout=0.3) as wire:
            with pytest.raises(EngineUnreachableError, match=r"did not answer within 0\.[13] s"):
                await wire.get("/x")
        for other in others:
            other.close()


# Proxies and TLS.


async def test_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw() as proxy, raw() as other:
        monkeypatch.setenv("http_proxy", other.url)
        monkeypatch.setenv("HTTPS_PROXY", other.url)
        with_login = proxy.url.replace("//", "//me:p%40ss@")
        async with wired("http://engine.test:8000/a", proxy=with_login) as wire:
            assert await wire.get("/x") == {}
        assert proxy.lines()[0] == "GET http://engine.test:8000/a/x HTTP/1.1"
        assert "Proxy-Authorization: Basic bWU6cEBzcw==" in proxy.lines()
        async with wired(REFUSED) as wire:
            with pytest.raises(EngineUnreachableError, match="cannot be reached") as caught:
                await wire.get("/x")
        assert "is the server up" in caught.value.hint
        assert other.requests == []  # the environment's proxy is not used


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes its certificate with openssl")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = subprocess.run(
        [openssl, *options.split(), *names, "-keyout", "-", "-out", "-"],
        capture_output=True,
        check=True,
    )
    path.write_bytes(made.stdout)
    return path


def context(certificate: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    return made


async def test_tls(certificate: Path) -> None:
    async with raw(tls=lambda: context(certificate)) as server:
        url = f"https://localhost:{server.port}"
        async with wired(url, ca=str(certificate)) as wire:
            assert await wire.get("/x") == {}
        async with wired(url) as wire:
            with pytest.raises(
                EngineUnreachableError, match="its certificate is not trusted"
            ) as caught:
                await wire.get("/x")
            assert not caught.value.retryable
            assert "--ca" in caught.value.hint
        async with wired(url, ca=str(certificate.parent / "none.pem")) as wire:
            with pytest.raises(UsageError, match="holds no certificates: No such file"):
                await wire.get("/x")
        async with wired(f"http://localhost:{server.port}") as wire:
            with pytest.raises(EngineUnreachableError):
                await wire.get("/x")


async def test_tls_through_a_proxy(certificate: Path) -> None:
    asked: list[str] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if "refuse" in asked[-1]:
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"HTTP/1.1 200 Connected\r\nX: y\r\n\r\n")

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(1 << 16):
                    target.write(data)
            except OSError:
                pass
            finally:
                target.close()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async with raw(tls=lambda: context(certificate)) as server:
        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with proxy:
            url = f"https://localhost:{server.port}"
            async with wired(url, ca=str(certificate), proxy=address) as wire:
                assert await wire.get("/x") == {}
            async with wired("https://refuse.test", proxy=address) as wire:
                with pytest.raises(EngineUnreachableError, match="the proxy answered 403"):
                    await wire.get("/x")
    assert asked[0].startswith(f"CONNECT localhost:{server.port} HTTP/1.1\r\n")
    assert asked[1].startswith("CONNECT refuse.test:443 HTTP/1.1\r\n")


@pytest.mark.parametrize("proxy", ["socks5://x:1", "host:1", "http://"])
async def test_no_proxy(proxy: str) -> None:
    with pytest.raises(UsageError, match="not the address of a proxy"):
        Wire(REFUSED, proxy=proxy)
