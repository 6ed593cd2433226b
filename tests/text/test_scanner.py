"""Code and math spans, fences, boxed results, lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from relaygen.text.scanner import INLINE_LIMIT, Scanner

from .support import state, texts


def letters(text: str, attribute: str) -> str:
    """The letters and digits of the text at which the scanner says so."""
    scanner, found = Scanner(), ""
    for char in text:
        scanner.feed(char)
        if getattr(scanner, attribute) and char.isalnum():
            found += char
    return found


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("a b c", ""),
        (r"a \(b\) c", "b"),
        (r"a \[b\] c", "b"),
        ("a $b$ c", "b"),
        ("a $$b$$ c", "b"),
        ("a `b` c", "b"),
        ("a ```b``` c", "b"),
        ("a ``b`` c", ""),  # two back-ticks open nothing
        ("`a` b `c` d", "ac"),
        (r"\(a\)b\(c\)d", "ac"),
        (r"\(a [b] (c)\) d", "abc"),
        (r"\[a \) b\] c", "ab"),
        (r"\\(a) b", ""),  # a line break of LaTeX before a bracket
        (r"\\[a] b", ""),
        (r"\(a\\) b", "ab"),
        ("$$a $b$ c$$ d", "abc"),
        ("$$$$ a", ""),
        ("$$$a$$ b", "a"),
        ("$a$$b$ c", "ab"),
        (r"$a\$b$ c", "ab"),
        (r"\$a b$ c", ""),
        (r"`a\` b", "a"),  # code knows no escapes
        ("`a $b` c$ d", "ab"),
        ("$a `b$ c` d", "abd"),  # what begins first goes on
    ],
)
def test_spans(text: str, inside: str) -> None:
    assert letters(text, "inside") == inside


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("it costs $5 or $6 a piece", ""),
        ("it costs $ a or b$ c", ""),
        ("it costs $\na", ""),
        ("paid in $, not in $. So", ""),
        ('the sign "$" a', ""),
        ("a (in $) b", ""),
        # `$3x$` is no span, so that its end must not open one.
        ("$3x = 5$. So add $y$ now", "y"),
        ("the $2n$th, $2n$-gon, $2^{n}$th and $y$ now", "y"),
        ("the $2f(n)$th and $2a_{[n]}$th now", ""),
        ("设$x$为", "x"),
        ("so $-x$ and $(y)$ and $|z|$ a", "xyz"),
        ("a$$b$$ c", "b"),  # display math needs no space in front
        ("3$$b$$ c", "b"),
    ],
)
def test_dollars_that_are_prices_and_those_that_are_math(text: str, inside: str) -> None:
    assert letters(text, "inside") == inside


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("`a\nb", "a"),
        ("$a\nb", "a"),
        ("\\(a\nb", "a"),
        ("\\[a\nb\\] c", "ab"),
        ("$$a\nb$$ c", "ab"),
        ("\\[a\n\nb", "a"),
        ("\\[a\n \t\nb", "a"),
        ("\\[a\r\n\r\nb", "a"),
        ("$$a\n\nb", "a"),
        ("```a\nb\n\nc\n``` d", "abc"),
        ("````a\nb\n```` c", "ab"),
        ("```a `b` $c``` d", "abc"),
        ("``\n`a` b", "a"),  # ticks are counted on one line
    ],
)
def test_where_unclosed_spans_lapse(text: str, inside: str) -> None:
    assert letters(text, "inside") == inside


@pytest.mark.parametrize("opening", ["`", "$", r"\("])
def test_an_inline_span_lapses_after_200_characters(opening: str) -> None:
    inside = letters(opening + "a" * 400, "inside")
    assert abs(len(inside) - INLINE_LIMIT) <= 1
    assert INLINE_LIMIT == 200


def test_the_limit_is_that_of_one_span() -> None:
    spans = "`" + "a" * 150 + "` `" + "b" * 150 + "` c"
    assert letters(spans, "inside") == "a" * 150 + "b" * 150


@pytest.mark.parametrize("opening", ["```", "$$", r"\["])
def test_a_block_does_not(opening: str) -> None:
    assert letters(opening + "a" * 400, "inside") == "a" * 400


@pytest.mark.parametrize(
    ("text", "sealed"),
    [
        (r"a \boxed{b} c", "b"),
        (r"a \boxed{b{c}d} e", "bcd"),
        (r"a \boxed{b\}c} d", "bc"),
        (r"a \boxed{\{b} c", "b"),
        (r"$\boxed{b}$ c", "b"),
        ("a \\boxed{b\nc} d", "bc"),
        ("a \\boxed{b\n\nc", "b"),
        (r"a \fbox{b}", ""),
        ("a {b} c", ""),
        ("#### a b\nc", "ab"),
        ("a\n#### b", "b"),
        ("a #### b", ""),
        ("### a", ""),
    ],
)
def test_boxed_results_and_result_lines_are_sealed(text: str, sealed: str) -> None:
    assert letters(text, "sealed") == sealed


def test_the_closing_brace_is_still_sealed_and_what_follows_is_not() -> None:
    scanner = Scanner()
    for char in r"\boxed{5}":
        scanner.feed(char)
    assert scanner.sealed
    scanner.feed(".")
    assert not scanner.sealed


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("a\n\nb", [2]),
        ("a\nb\n", []),
        ("\n\n\n", [1, 2]),
        ("a\n \t\nb", [4]),
        ("a\r\n\r\nb", [4]),
        ("a\n b\n", []),
    ],
)
def test_blank_lines(text: str, places: list[int]) -> None:
    scanner, found = Scanner(), []
    for place, char in enumerate(text):
        scanner.feed(char)
        if scanner.blank:
            found.append(place)
    assert found == places


def test_at_the_start_nothing_is_open() -> None:
    scanner = Scanner()
    assert [scanner.inside, scanner.sealed, scanner.fence, scanner.blank] == [False] * 4


def test_tail_and_line() -> None:
    scanner = Scanner(keep=4)
    for char in "one\ntwo":
        scanner.feed(char)
    assert (scanner.tail, scanner.line) == ("\ntwo", "two")


def test_a_fork_goes_its_own_way() -> None:
    scanner = Scanner()
    for char in "a `b":
        scanner.feed(char)
    fork = scanner.fork()
    assert state(fork) == state(scanner)
    fork.feed("`")
    assert scanner.inside
    assert not fork.inside


@settings(deadline=None, max_examples=30)
@given(texts())
def test_state_does_not_grow_with_the_text(text: str) -> None:
    scanner = Scanner(keep=64)
    for char in text * 40:
        scanner.feed(char)
        sizes = [len(value) for value in vars_of(scanner) if isinstance(value, str)]
        assert max(sizes) <= 64
    assert not any(isinstance(value, list | dict | set) for value in vars_of(scanner))


def vars_of(scanner: Scanner) -> list[object]:
    return [getattr(scanner, name) for name in Scanner.__slots__]
