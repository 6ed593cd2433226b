from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen.engines._sse import EventParser


def test_fields() -> None:
    parser = EventParser()
    raw = b": ping\n\nevent: x\ndata: one\nid: 3\n\ndata:two\r\ndata: three\r\n\r\n\n\ndata: rest"
    assert parser.feed(raw) == [b"one", b"two\nthree"]
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\n") == [b"rest"]


def test_only_line_feeds_end_lines() -> None:
    text = 'data: "a\u2028b\u0085c\x0bd"\n\n'.encode()
    assert EventParser().feed(text) == [text[6:-2]]


def test_a_line_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaygen.engines._sse._LONGEST", 10)
    parser = EventParser()
    assert parser.feed(b"data: 1\n\ndata: 2345") == [b"1"]
    with pytest.raises(ValueError, match="without an end"):
        parser.feed(b"6")


@given(
    st.lists(st.binary().filter(lambda data: not set(data) & set(b"\r\n"))),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1),
)
def test_any_cutting_gives_the_same_events(payloads: list[bytes], sizes: list[int]) -> None:
    raw = b"".join(b"data: " + each + b"\n\n" for each in payloads)
    parser, found, at = EventParser(), [], 0
    while at < len(raw):
        size = sizes[at % len(sizes)]
        found += parser.feed(raw[at : at + size])
        at += size
    assert found == payloads
