"""Where a tool call is open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relaygen.text.calls import CallSpan

TAGS = ("<tool_call>", "</tool_call>")


def states(parts: list[str]) -> list[bool]:
    span = CallSpan(*TAGS)
    return [span.feed(part) for part in parts]


def test_a_call_is_open_from_its_opening_to_its_closing_tag() -> None:
    assert states(["Let me. ", "<tool_call>", "{}", "</tool_call>", " ok"]) == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_tags_may_be_split() -> None:
    assert states(["<tool", "_call>{", "}</tool_", "call>"]) == [False, True, True, False]


def test_a_tag_that_has_begun() -> None:
    span = CallSpan(*TAGS)
    begun = []
    for part in ["a < b", " <", "tool_c", "all", ">", "</", "tool_call>", "<tool_cat"]:
        span.feed(part)
        begun.append(span.opening)
    assert begun == [False, True, True, True, False, False, False, False]


def test_several_calls_in_one_part() -> None:
    assert states(["<tool_call>a</tool_call><tool_call>b"]) == [True]
    assert states(["<tool_call>a</tool_call><tool_call>b</tool_call>"]) == [False]


def test_a_closing_tag_alone_opens_nothing() -> None:
    assert states(["</tool_call>", "x"]) == [False, False]


@given(
    st.lists(st.sampled_from([*TAGS, "a", "<", "<tool", "_call>", "</"]), max_size=12),
    st.lists(st.integers(1, 9), max_size=40),
)
def test_any_cut_of_a_text_ends_in_the_same_state(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    expected = CallSpan(*TAGS).feed(text)
    span, at = CallSpan(*TAGS), 0
    for cut in cuts:
        span.feed(text[at : at + cut])
        at += cut
    assert span.feed(text[at:]) == expected
