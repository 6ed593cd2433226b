"""Shared by the text tests: texts that hold every construct, and ways to cut them into tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from relaygen.text.cues import CueSet
from relaygen.text.reader import Reader, Reading
from relaygen.text.utf8 import Utf8

_WORDS = re.compile(r" ?\w+| ?[^\w\s]|\s")

# Everything the rules know, in small parts, so that random joins meet their corners.
FRAGMENTS = (
    *("Thus", "So", "now", "know", "x", "5", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u3000"),
    *(".", "!", "?", ". ", ".\n", "...", "。", "！", ",", ":", '"', "”", ")", "*", "_"),
    *("3.14", "e.g.", "U.S.", "1. ", "n!", "é", "好", "😀", "\u2019s"),
    *("$", "$x$", "$5", "$$", "`", "```", "\\(", "\\)", "\\[", "\\]", "\\", "{", "}"),
    *("\\boxed{", "#### ", "- ", "Dr. "),
)


def texts(size: int = 24) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(FRAGMENTS), max_size=size).map("".join)


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes in tokens of any size, empty ones and halves of characters included."""
    places = draw(st.lists(st.integers(0, len(data)), max_size=len(data)))
    edges = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@st.composite
def tokenised(draw: st.DrawFn, size: int = 24) -> list[bytes]:
    return draw(cut(draw(texts(size)).encode()))


def words(text: str) -> list[str]:
    """A tokenisation like that of real vocabularies: words carry their space in front."""
    return _WORDS.findall(text)


def decoded(tokens: Sequence[bytes]) -> list[tuple[str, bool]]:
    """What a `Reader` is fed for these tokens."""
    utf8 = Utf8()
    return [(utf8.feed(token), utf8.whole) for token in tokens]


def read(reader: Reader, tokens: Sequence[str]) -> list[Reading]:
    return [reader.feed(token) for token in tokens]


def state(part: object) -> object:
    """All that changes in a reader, scanner or detector, comparable."""
    if isinstance(part, tuple):
        return tuple(map(state, part))
    if not type(part).__module__.startswith("relaygen.text"):
        return part
    if isinstance(part, CueSet):
        return part.names
    return {name: state(getattr(part, name)) for name in type(part).__dict__["__slots__"]}
