"""Where the steps of a thought are over."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen.text.steps import Steps
from relaygen.text.utf8 import Utf8


def ends(tokens: list[str]) -> list[int]:
    steps = Steps()
    return [index for index, token in enumerate(tokens) if steps.feed(token)]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["We", " add", ".\n\n", "So", ".\n\n"], [2, 4]),
        (["We", "\n", "\n", "So"], [2]),
        (["We", "\n", " \t", "\n", "So"], [3]),
        (["We", "\r\n\r\n", "So"], [1]),
        (["We", "\n", "add", "\n", "So"], []),
        (["We", "\n\n", "\n", "\n\n", "So"], [1]),  # one blank space, one end
        (["\n\n", "We", "\n\n"], [2]),  # nothing was said before
        (["}\n\n", "}\n\n"], [0, 1]),
        (["We\n\nSo", " on"], []),  # the next step began in the same token
        (["We\n\nSo\n\n", "on"], [0]),
        (["We", "\n", "", "\n"], [3]),
    ],
)
def test_where_steps_end(tokens: list[str], expected: list[int]) -> None:
    assert ends(tokens) == expected


def test_half_a_character_begins_a_step() -> None:
    steps = Steps()
    steps.feed("We\n\n")
    before = steps.fresh
    assert not steps.feed("", whole=False)
    assert (before, steps.fresh) == (True, False)
    assert not steps.feed("\n", whole=False)
    assert not steps.feed("\n")  # that line was not bare


def test_what_came_since_the_last_end_is_taken_back() -> None:
    steps = Steps()
    assert steps.feed("We.\n\n")
    steps.feed("Wait, no\n")
    steps.rewind()
    assert steps.fresh
    assert not steps.feed("\n")
    assert not steps.feed("So")
    assert steps.feed("\n\n")


@given(
    st.text("ab \n", max_size=40),
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
    st.booleans(),
)
def test_it_is_fresh_behind_every_blank_line_however_tokens_cut(
    text: str, sizes: list[int], foreign: bool
) -> None:
    data = (text.replace("b", "é") if foreign else text).encode()
    steps, utf8, place, seen = Steps(), Utf8(), 0, ""
    for number in range(len(data) + 1):
        part = data[place : place + sizes[number % len(sizes)]]
        place += len(part)
        given_text = utf8.feed(part)
        seen += given_text
        ended = steps.feed(given_text, utf8.whole)
        bare = re.search(r"(\A|\n\s*\n)\s*\Z", seen) is not None and utf8.whole
        assert steps.fresh == bare
        assert not ended or steps.fresh
