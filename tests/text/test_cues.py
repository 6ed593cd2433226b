"""Which token completes a cue?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen.text.cues import CueSet, bare, wordlike
from relaygen.text.reader import Reader
from relaygen.text.scanner import Scanner

from .support import read, texts, words


def fired(cues: CueSet, tokens: list[str]) -> list[tuple[int, str]]:
    """The tokens that completed a cue, and which."""
    readings = read(Reader(cues), tokens)
    return [(index, r.cue) for index, r in enumerate(readings) if r.cue is not None]


@pytest.mark.parametrize("tokens", [["now"], [" now"], ["\n", "now"], ["(", "now"], ["“now"]])
def test_a_word_fires_at_the_token_that_completes_it(tokens: list[str]) -> None:
    assert fired(CueSet(["now"]), tokens) == [(len(tokens) - 1, "now")]


@pytest.mark.parametrize(
    "tokens",
    [["know"], ["k", "now"], ["un", "known"], [" snow"], ["é", "now"], ["5", "now"], ["и", "now"]],
)
def test_the_left_bound_is_checked_on_the_joined_text(tokens: list[str]) -> None:
    assert fired(CueSet(["now"]), tokens) == []


@pytest.mark.parametrize("token", ["nowhere", " nowé", "now5", " now한", "now\u0301"])
def test_the_right_bound_is_checked_inside_the_token(token: str) -> None:
    assert fired(CueSet(["now"]), [token]) == []


def test_a_later_token_may_make_the_cue_a_longer_word() -> None:
    assert fired(CueSet(["Other"]), ["Otherwise"]) == []
    assert fired(CueSet(["Other"]), ["Other", "wise"]) == [(0, "Other")]


@pytest.mark.parametrize("token", [" now,", " now.", " now\n", " now-", " now’s", " now_"])
def test_anything_but_a_letter_or_digit_is_a_right_bound(token: str) -> None:
    assert fired(CueSet(["now"]), [token]) == [(0, "now")]


def test_a_cue_over_several_tokens_and_its_left_bound_before_them() -> None:
    assert fired(CueSet(["in conclusion"]), ["So", " in", " conc", "lusion"]) == [
        (3, "in conclusion")
    ]
    assert fired(CueSet(["in conclusion"]), ["beg", "in", " conclusion"]) == []


def test_bare_and_comma_forms() -> None:
    both = CueSet(["Now", "Now,"])
    assert fired(both, ["Now", ",", " x"]) == [(0, "Now"), (1, "Now,")]
    assert fired(both, ["Now,", " x"]) == [(0, "Now,")]  # the longest is recorded
    assert fired(CueSet(["Now,", "Now"]), ["Now,"]) == [(0, "Now,")]
    only = CueSet(["Now,"])
    assert fired(only, ["Now", " x"]) == []
    assert fired(only, ["Now", ",", " x"]) == [(1, "Now,")]


def test_the_longest_of_two_that_end_together() -> None:
    cues = CueSet(["answer:", "here's the answer:"])
    assert fired(cues, ["here", "'s", " the", " answer", ":"]) == [(4, "here's the answer:")]
    assert fired(cues, ["the", " answer", ":"]) == [(2, "answer:")]


def test_surrounding_space_is_dropped() -> None:
    cues = CueSet(["So ", "So", " Thus\n", "Now"])
    assert cues.names == ("So", "Thus", "Now")
    assert len(cues) == 3
    assert "So " in cues
    assert "so" not in cues
    assert fired(cues, ["So"]) == [(0, "So")]
    assert fired(cues, ["Sofia"]) == []


@pytest.mark.parametrize("empty", ["", " ", "\n"])
def test_an_empty_cue_is_refused(empty: str) -> None:
    with pytest.raises(UsageError):
        CueSet(["Now", empty])


def test_no_cues() -> None:
    assert fired(CueSet(()), ["Now", ","]) == []
    assert not CueSet(())


def test_case_matters_unless_it_is_ignored() -> None:
    assert fired(CueSet(["now"]), ["Now", " NOW", " now"]) == [(2, "now")]
    either = CueSet(["Now", "now", "ANSWER:"], ignore_case=True)
    assert either.names == ("Now", "ANSWER:")
    assert "nOW" in either
    assert fired(either, ["now", " NOW", " kNOW", " Answer", ":"]) == [
        (0, "Now"),
        (1, "Now"),
        (4, "ANSWER:"),
    ]


def test_apostrophes_of_both_kinds() -> None:
    for cue in ("Let's", "Let’s"):
        assert fired(CueSet([cue]), ["Let's"]) == [(0, cue)]
        assert fired(CueSet([cue]), ["Let’s"]) == [(0, cue)]
    for cue in ("so'", "so’"):
        assert fired(CueSet([cue]), ["so", "’"]) == [(1, cue)]
    assert CueSet(["Let's", "Let’s"]).names == ("Let's",)


def test_without() -> None:
    cues = CueSet(["Now", "So", "Thus"]).without(CueSet(["so", "THUS"], ignore_case=True))
    assert cues.names == ("Now",)
    folded = CueSet(["Now", "So"], ignore_case=True).without(CueSet(["So"]))
    assert fired(folded, ["NOW"]) == [(0, "Now")]


@pytest.mark.parametrize(
    ("cue", "tokens", "index"),
    [
        ("=", ["x", "=", "y"], 1),
        ("{", ["a{b"], 0),
        (r"\[", ["a\\", "[x"], 1),
        (r"\(", [r"a\(b"], 0),
        ("$", ["a$", "b"], 0),
        ("=>", ["a=", ">b"], 1),
        ("1.", ["a1.5"], None),  # a bound at the digit
        ("1.", ["a 1.5"], 0),  # none at the dot
    ],
)
def test_symbols_have_no_bounds(cue: str, tokens: list[str], index: int | None) -> None:
    assert fired(CueSet([cue]), tokens) == ([] if index is None else [(index, cue)])


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("`", "`"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("```\n", "\n```"), ("$$", "$$")],
)
def test_letters_do_not_fire_in_code_and_math_but_symbols_do(opening: str, closing: str) -> None:
    tokens = ["a ", opening, "-", "now", "=", closing, " now"]
    assert fired(CueSet(["now", "="]), tokens) == [(4, "="), (6, "now")]


@pytest.mark.parametrize(
    "tokens", [["\\boxed", "{", "=", "now", "{", "=", "}", "}"], ["#### ", "=", "now", "{"]]
)
def test_nothing_fires_in_a_boxed_result_or_on_a_result_line(tokens: list[str]) -> None:
    cues = CueSet(["=", "now", "{", "}", "\\boxed{", "####"])
    assert fired(cues, tokens) == []
    assert fired(cues, [*tokens, "\n", "now"]) == [(len(tokens) + 1, "now")]


def test_cues_of_scripts_without_spaces_have_no_bounds() -> None:
    assert fired(CueSet(["所以"]), ["我们", "所以说"]) == [(1, "所以")]
    assert fired(CueSet(["したがって"]), ["結果", "したがって今"]) == [(1, "したがって")]
    assert fired(CueSet(["ดังนั้น"]), ["เรา", "ดังนั้นจึง"]) == [(1, "ดังนั้น")]
    assert fired(CueSet(["now"]), ["我now说"]) == [(0, "now")]
    assert fired(CueSet(["그래서"]), ["안", "그래서"]) == []  # Korean has spaces
    assert fired(CueSet(["그래서"]), [" ", "그래서"]) == [(1, "그래서")]


@pytest.mark.parametrize("char", ["a", "Z", "5", "é", "\u0301", "я", "한", "²"])
def test_wordlike(char: str) -> None:
    assert wordlike(char)


@pytest.mark.parametrize("char", ["", " ", ",", "=", "_", "'", "好", "の", "ไ", "😀", "\n"])
def test_not_wordlike(char: str) -> None:
    assert not wordlike(char)


@pytest.mark.parametrize(
    ("opening", "cue", "expected"),
    [
        ("So", "So", True),
        ("\n\n- **So", "So,", True),
        (" short", "in short", True),
        ("We see. So", "So", False),
        ("Let’s SEE", "let's see", True),
        ("- ", "So", False),
        ("-", "-", True),
        ("=", "=", True),
    ],
)
def test_a_segment_of_nothing_but_its_cue_is_bare(opening: str, cue: str, expected: bool) -> None:
    assert bare(opening, cue) == expected


def test_anywhere_is_for_markers() -> None:
    scanner = Scanner()
    markers = CueSet(["\\boxed{"])
    for char in r"$x = \boxed{":
        scanner.feed(char)
    assert markers.match(scanner, "") is None
    assert markers.match(scanner, "", anywhere=True) == "\\boxed{"


@settings(deadline=None, max_examples=200)
@given(texts())
def test_every_bare_word_fires_exactly_where_a_plain_search_finds_it(text: str) -> None:
    """Without spans and boxes, and token by token as in real vocabularies."""
    plain = "".join(c if c.isalnum() and c != "好" else " " for c in text)
    tokens = words(plain)
    found, joined = [], ""
    for index, token in enumerate(tokens):
        joined += token
        left = joined[: -len("now")][-1:]
        if token.endswith("now") and not wordlike(left):
            found.append((index, "now"))
    assert fired(CueSet(["now"]), tokens) == found


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(["So", "It’s", "so", "ITS", "It's", "=", "now", "ß", " ", "日"])))
def test_a_cue_ends_only_at_the_characters_that_say_so(parts: list[str]) -> None:
    for ignore_case in (False, True):
        cues = CueSet(["So", "It's", "=", "now", "ß", "Don'"], ignore_case=ignore_case)
        scanner = Scanner()
        for char in " ".join([*parts, "Don’"]):
            scanner.feed(char)
            assert char in cues.lasts or cues.match(scanner, "") is None
        assert cues.match(scanner, "") == "Don'"
        assert not CueSet(()).lasts
