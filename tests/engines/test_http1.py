from __future__ import annotations

import pytest

from relaygen.engines._http1 import Body, parse_head

WHOLE = b"5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n"


def test_head() -> None:
    head = parse_head(
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nX-Y:  a b \r\nx-y: c\r\n\r\n"
    )
    assert (head.status, head.reason, head.version) == (404, "Not Found", "HTTP/1.1")
    assert head.fields == {"content-length": "5", "x-y": "c"}
    assert parse_head(b"HTTP/1.1 200\r\n\r\n").status == 200


@pytest.mark.parametrize(
    "raw",
    [b"", b"SSH-2.0-x", b"HTTP/2 200 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 2x0 OK"]
    + [b"HTTP/1.1 200 OK\r\n" + line for line in (b"nothing", b"Content-Length: -1")],
)
def test_no_head(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_head(raw + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("lines", "framing", "kept"),
    [
        ("1.1 200 OK", "close", True),
        ("1.1 200 OK\r\nTransfer-Encoding: chunked", "chunked", True),
        ("1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3", "chunked", True),
        ("1.1 200 OK\r\nContent-Length: 3\r\nConnection: close", "length", False),
        ("1.1 204 No Content\r\nContent-Length: 3", "none", True),
        ("1.1 100 Continue", "none", True),
        ("1.0 200 OK", "close", False),
        ("1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0", "length", True),
    ],
)
def test_framing(lines: str, framing: str, kept: bool) -> None:
    head = parse_head(f"HTTP/{lines}\r\n\r\n".encode())
    assert (head.framing, head.kept) == (framing, kept)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_chunks_however_they_are_cut(size: int) -> None:
    body, found = Body("chunked"), b""
    for start in range(0, len(WHOLE), size):
        assert not body.done
        found += body.feed(WHOLE[start : start + size])
    assert found == b"hello 0123456789"
    assert (body.done, body.clean) == (True, True)


def test_a_chunk_is_given_as_it_comes() -> None:
    body = Body("chunked")
    assert body.feed(b"fffffff\r\nab") == b"ab"
    assert body.feed(b"c" * 1000) == b"c" * 1000
    assert not body.done


def test_what_follows_the_last_chunk_spoils_the_connection() -> None:
    body = Body("chunked")
    assert body.feed(b"1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK") == b"a"
    assert (body.done, body.clean) == (True, False)


@pytest.mark.parametrize(
    "raw",
    [b"x\r\n", b"-1\r\n", b"1_0\r\n", b" \r\n", b"\r\n", b"g" * 2000, b"1\r\nabc\r\n", b";\r\n"],
)
def test_what_is_no_chunk(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Body("chunked").feed(raw)


def test_a_known_length() -> None:
    body = Body("length", 5)
    assert body.feed(b"ab") == b"ab"
    assert not body.end()
    assert body.feed(b"cde") == b"cde"
    assert (body.done, body.clean) == (True, True)
    body = Body("length", 1)
    assert body.feed(b"abc") == b"a"
    assert (body.done, body.clean) == (True, False)
    assert Body("length", 0).clean
    assert Body("none").clean


def test_until_the_connection_ends() -> None:
    body = Body("close")
    assert body.feed(b"ab") == b"ab"
    assert not body.done
    assert body.end()
    assert not body.clean
    assert not Body("chunked").end()
