from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen.engines._repair import cut_off, splits, spread
from relaygen.engines._vocabulary import CONTROL, NORMAL, Vocabulary

UNICORN = " 🦄".encode()  # 20 F0 9F A6 84


def vocabulary(*tokens: bytes, types: dict[int, int] | None = None) -> Vocabulary:
    kinds = [(types or {}).get(id, NORMAL) for id in range(len(tokens))]
    return Vocabulary("llama", tokens, kinds)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", False),
        (b"a", False),
        ("é龘🦄".encode(), False),
        ("é".encode()[:1], True),
        ("龘".encode()[:2], True),
        ("🦄".encode()[:1], True),
        (b"x" + "🦄".encode()[:3], True),
        (b"\x84", False),
        (b"\x9f\xa6\x84", False),
        # Invalid, and yet the server waits: it looks for a beginning in the last three bytes.
        (b"\xf0aa", True),
        (b"\xf0aaa", False),
        (b"\xe2\xc3\xa9", False),
        (b"\xf0\xc3\xa9", True),
    ],
)
def test_cut_off(data: bytes, expected: bool) -> None:
    assert cut_off(data) is expected


def test_splits() -> None:
    tokens = vocabulary(b" ", b" \xf0", b" \xf0\x9f", b"\x9f", b"\xa6", b"\x9f\xa6", b"\xf0\x9f")
    assert splits(UNICORN[:3], 1, tokens) == [(2,)]
    assert splits(UNICORN[:4], 2, tokens) == [(2, 4), (1, 5)]  # the longest first token first
    assert splits(UNICORN[:4], 3, tokens) == [(1, 3, 4)]
    # Not (" ", "\xf0\x9f"): the server would have sent the space.
    assert splits(UNICORN[:3], 2, tokens) == [(1, 3)]
    assert splits(UNICORN[:3], 3, tokens) == []
    assert splits(b"ab", 1, vocabulary(b"ab")) == []


def test_splits_of_several_characters() -> None:
    left, right = "龘🦄".encode()[:2], "龘🦄".encode()[2:5]
    assert splits(left + right, 2, vocabulary(left, right)) == [(0, 1)]


def test_splits_takes_text_tokens_only_and_all_that_write_the_same() -> None:
    tokens = vocabulary(b"\xf0", b"\xf0", b"\xf0", types={1: CONTROL})
    assert splits(b"\xf0", 1, tokens) == [(0,), (2,)]


def test_splits_ends_where_there_is_no_end_of_ways() -> None:
    tokens = vocabulary(*[b"\xf0"] * 100)
    assert len(splits(b"\xf0" * 9, 9, tokens)) == 64


@given(st.text(min_size=1, max_size=3), st.integers(min_value=1, max_value=6))
def test_spread(text: str, count: int) -> None:
    data = text.encode()
    parts = spread(data, count)
    assert len(parts) == count
    assert b"".join(parts) == data
    inside = sum(cut_off(data[:at]) for at in range(1, len(data)))
    joined = itertools.accumulate(parts)
    assert all(cut_off(each) for each in itertools.islice(joined, min(inside, count - 1)))
