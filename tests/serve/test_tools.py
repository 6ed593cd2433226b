from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen._types import ToolCall
from relaygen.serve._tools import CLOSING, OPENING, CallParser, Content, Part, read_call

CALL = '{"name": "f", "arguments": {"x": "</tool> <"}}'
TAGGED = f"{OPENING}\n{CALL}\n{CLOSING}"


def read(*texts: str) -> list[Part]:
    parser = CallParser()
    parts = [part for text in texts for part in parser.feed(text)]
    return [*parts, *parser.flush()]


def shape(parts: list[Part]) -> list[object]:
    """Neighbouring content joined, a call without its random id."""
    found: list[object] = []
    for part in parts:
        if isinstance(part, ToolCall):
            found.append((part.name, part.arguments))
        elif found and isinstance(found[-1], str):
            found[-1] += part.text
        else:
            found.append(part.text)
    return found


F = ("f", '{"x": "</tool> <"}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no call", ["no call"]),
        ("", []),
        ("  \n", ["  \n"]),
        (TAGGED, [F]),
        (f"\n\n{TAGGED}\n", [F]),
        (f"First.\n\n{TAGGED}", ["First.", F]),
        (f"{TAGGED}\n{TAGGED}", [F, F]),
        (f"One. {TAGGED}\n{TAGGED}\n", ["One.", F, F]),
        (f"{TAGGED} Then.", [F, "Then."]),
        (f"a < b, {OPENING[:5]} and", [f"a < b, {OPENING[:5]} and"]),
        (f"a {OPENING}{{}}{CLOSING} b", [f"a {OPENING}{{}}{CLOSING} b"]),
        (f"a  {OPENING} never closed ", [f"a  {OPENING} never closed "]),
        (f"{OPENING}no{CLOSING}{TAGGED}", [f"{OPENING}no{CLOSING}", F]),
        (f"ends in {OPENING[:-1]}", [f"ends in {OPENING[:-1]}"]),
    ],
)
def test_calls_and_content(text: str, expected: list[object]) -> None:
    assert shape(read(text)) == expected
    assert shape(read(*text)) == expected


@given(
    st.lists(st.sampled_from([OPENING, CLOSING, CALL, "\n", " ", "<", "tool_call>", "a"])).map(
        "".join
    ),
    st.lists(st.integers(0, 60)),
)
def test_how_the_text_is_cut_does_not_matter(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert shape(read(*pieces)) == shape(read(text))


@given(st.lists(st.sampled_from([OPENING, CLOSING, "{}", "\n", " ", "<", "a"])).map("".join))
def test_a_text_without_a_call_loses_nothing(text: str) -> None:
    assert "".join(part.text for part in read(text) if isinstance(part, Content)) == text


def test_content_is_not_held_back() -> None:
    parser = CallParser()
    assert parser.feed("The sum") == [Content("The sum")]
    assert parser.feed(" is < 3") == [Content(" is < 3")]
    assert parser.feed(" <tool") == []
    assert parser.feed("box>") == [Content(" <toolbox>")]


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "3", '{"name": 1}', '{"name": ""}', '{"arguments": {}}',
     '{"name": "f", "arguments": "x"}', '{"name": "f", "arguments": []}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_call(body: str) -> None:
    assert read_call(body) is None


def test_a_call_without_arguments_has_an_empty_object() -> None:
    call = read_call('\n{"name": "now"}\n')
    assert call is not None
    assert json.loads(call.arguments) == {}
    assert len(call.id) == len("call_") + 24
    other = read_call('{"name": "now"}')
    assert other is not None
    assert other.id != call.id


def test_half_a_character_stays_an_escape() -> None:
    call = read_call('{"name": "f", "arguments": {"x": "\\ud83d", "y": "ü"}}')
    assert call is not None
    assert json.loads(call.arguments.encode()) == {"x": "\ud83d", "y": "ü"}
    assert read_call('{"name": "\\ud83d"}') is None


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_arguments_that_only_python_can_read_are_no_call(number: str) -> None:
    assert read_call(f'{{"name": "f", "arguments": {{"x": {number}}}}}') is None
