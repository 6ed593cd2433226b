"""Text from bytes that are cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen.text.utf8 import Utf8

from .support import cut


@settings(deadline=None, max_examples=200)
@given(st.data(), st.text(alphabet="a é好😀\u3000\u0301", max_size=12))
def test_any_split_of_text_gives_the_text(data: st.DataObject, text: str) -> None:
    utf8, parts = Utf8(), []
    fed = b""
    for token in data.draw(cut(text.encode())):
        parts.append(utf8.feed(token))
        fed += token
        # Never a replacement while there is hope, and `whole` exactly between characters.
        assert utf8.whole == (fed.decode(errors="ignore").encode() == fed)
        assert "".join(parts) == fed.decode(errors="ignore")
    assert "".join(parts) == text
    assert utf8.finish() == ""


@settings(deadline=None, max_examples=200)
@given(st.data(), st.binary(max_size=12))
def test_any_split_of_any_bytes_gives_what_decoding_them_at_once_gives(
    data: st.DataObject, whole: bytes
) -> None:
    utf8 = Utf8()
    text = "".join(utf8.feed(token) for token in data.draw(cut(whole)))
    assert text + utf8.finish() == whole.decode(errors="replace")


@pytest.mark.parametrize(
    ("tokens", "parts", "wholes"),
    [
        ([b"a", b"b"], ["a", "b"], [True, True]),
        ([b"\xc3", b"\xa9"], ["", "é"], [False, True]),
        ([b"a\xc3", b"\xa9b"], ["a", "éb"], [False, True]),
        ([b"\xf0\x9f", b"\x98", b"\x80"], ["", "", "😀"], [False, False, True]),
        ([b"\xff"], ["\ufffd"], [True]),
        ([b"\xc3", b"a"], ["", "\ufffda"], [False, True]),
        ([b"\xc3", b"\xc3"], ["", "\ufffd"], [False, False]),
        ([b""], [""], [True]),
        ([b"\xc3", b""], ["", ""], [False, False]),
    ],
)
def test_token_by_token(tokens: list[bytes], parts: list[str], wholes: list[bool]) -> None:
    utf8 = Utf8()
    assert [(utf8.feed(token), utf8.whole) for token in tokens] == list(
        zip(parts, wholes, strict=True)
    )


def test_a_reset_forgets_an_incomplete_character() -> None:
    utf8 = Utf8()
    utf8.feed(b"\xf0\x9f")
    utf8.reset()
    assert utf8.whole
    assert utf8.feed(b"a") == "a"


def test_an_incomplete_character_at_the_end_is_replaced() -> None:
    utf8 = Utf8()
    assert utf8.feed(b"a\xf0\x9f") == "a"
    assert utf8.finish() == "\ufffd"
    assert utf8.whole
