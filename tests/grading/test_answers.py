"""The result that an answer states."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen.grading._answers import boxed, choice, decided, folded, tidy, unboxed

BALANCED = st.recursive(
    st.text("ab1 \\%", max_size=4).map(lambda text: text.replace("\\", "\\\\")),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.text("xyz {}\n", max_size=10), BALANCED, st.text("xyz }\n", max_size=10))
def test_a_box_is_read_to_its_own_brace(before: str, content: str, after: str) -> None:
    assert boxed(f"{before}\\boxed{{{content}}}{after}") == content.strip()


@settings(deadline=None)
@given(st.text(max_size=20), st.text("xyz {", max_size=10))
def test_a_box_that_was_cut_off_holds_nothing(before: str, content: str) -> None:
    text = before.replace("\\", "")
    assert boxed(f"{text}\\boxed{{{content}") is None
    assert unboxed(f"{text}\\boxed{{{content}") == text
    assert unboxed(text) == text


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (r" 1\,000\,000. ", "1000000"),
        (r"(1, 2\,000)", "(1, 2000)"),
        ("1{,}000{,}000", "1000000"),
        (r"1,\!000", "1000"),
        (r"1\,0000", "1 0000"),
        (r"25 \, \%", "25 %"),
        (r"540\,m", "540 m"),
        ("12 cm^2", "12"),
        ("12 cm^{3}", "12"),
        ("1/2 cup", "1/2"),
        ("5,", "5"),
        (r"460\$", r"460\$"),
        ("$460$", "460"),
        (r"\begin{matrix}1\\, 2", r"\begin{matrix}1\\, 2"),
        ("-1.5E-7", r"-1.5 \times 10^{-7}"),
        ("-2 1/2", r"-\frac{5}{2}"),
        (r"1.2\overline{3}", r"\frac{37}{30}"),
        ("2.5 million dollars", r"2.5 \times 10^{6}"),
        ("3 x", "3 x"),
        ("3 pi", "3 pi"),
        ("25 percent", "25 percent"),
        (r"\text{even}", r"\text{even}"),
        ("$x + 1$", "x + 1"),
    ],
)
def test_one_spelling(result: str, wanted: str) -> None:
    assert tidy(result) == wanted


@settings(deadline=None)
@given(st.text("0123456789.,\\!{} eE/text", max_size=12))
def test_tidying_twice_changes_nothing_that_compares(result: str) -> None:
    assert decided(tidy(result), tidy(result)) in (bool(folded(tidy(result))), None)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("0.5", ".50", True),
        ("-0", "0", True),
        ("$5", "\\$5.00", True),
        ("0.3333333", "0.3333334", None),
        ("3", "3.5", None),
        ("3", "4", False),
        ("12_8", "12_9", False),
        ("12_8", "12", None),
        ("x", "y", None),
        ("listen", "silent", False),
        ("", "", False),
    ],
)
def test_what_needs_no_mathematics(one: str, two: str, same: bool | None) -> None:
    assert decided(one, two) is same
    assert decided(two, one) is same


@settings(deadline=None)
@given(st.sampled_from("ABCDEFGHIJ"), st.text("xyz ,\n", max_size=10))
def test_a_stated_letter_is_found_whatever_is_said_before(letter: str, before: str) -> None:
    for said in (f"\\boxed{{{letter}}}", f"The answer is {letter}.", f"({letter})"):
        assert choice(f"{before}\n{said}") == letter


@settings(deadline=None)
@given(st.text("bcdefghj .,\n", max_size=30))
def test_small_words_choose_nothing(text: str) -> None:
    assert choice(f"It is a word. {text}x I think a b") in (None, *"BCDEFGHJ")
    assert choice("A word and I") is None
