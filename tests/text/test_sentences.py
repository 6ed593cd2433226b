"""Where sentences end, character by character."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relaygen.text.scanner import Scanner
from relaygen.text.sentences import SentenceDetector

from .support import state, texts


def split(text: str) -> list[str]:
    """The sentences, each with the character that decided its end."""
    scanner, detector = Scanner(), SentenceDetector()
    sentences = [""]
    for char in text:
        scanner.feed(char)
        sentences[-1] += char
        if detector.feed(char, scanner):
            sentences.append("")
    return [sentence for sentence in sentences if sentence]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two.", ["One. ", "Two."]),
        ("One! Two? Three.", ["One! ", "Two? ", "Three."]),
        ("One.\nTwo", ["One.\n", "Two"]),
        ("One.\tTwo", ["One.\t", "Two"]),
        ("One.\r\nTwo", ["One.\r", "\nTwo"]),
        ("One.\u00a0Two", ["One.\u00a0", "Two"]),
        ("One.\u3000Two", ["One.\u3000", "Two"]),
        ("One\n\nTwo", ["One\n\n", "Two"]),
        ("One\n \nTwo", ["One\n \n", "Two"]),
        ("One\r\n\r\nTwo", ["One\r\n\r\n", "Two"]),
        ("One\nTwo", ["One\nTwo"]),  # a line alone is no sentence
        ("One, two; three: four", ["One, two; three: four"]),
        ("好。吗？是！对", ["好。", "吗？", "是！", "对"]),
        ("ﾊｲ｡ﾊｲ", ["ﾊｲ｡", "ﾊｲ"]),
        ("One.Two", ["One.Two"]),
        ("Good!😀 Two", ["Good!😀 Two"]),  # an emoji denies as any other character does
        ("Good! 😀 Two", ["Good! ", "😀 Two"]),
        ("\n\n One.\n\n\n\nTwo", ["\n\n One.\n", "\n\n\nTwo"]),  # nothing but space is no sentence
    ],
)
def test_ends(text: str, sentences: list[str]) -> None:
    assert split(text) == sentences


@pytest.mark.parametrize(
    "text",
    [
        "pi is 3.14 and .5 is a half",
        "we add, e.g. \nfive or e.g.  six",
        "we add, e.g. five, i.e. this, etc. and so on",
        "the U.S. have it, at 5 p.m. sharp",
        "see Fig. 3, Eqs. 4, pp. 5, cf. this vs. that",
        "Dr. Who and Mr. X and Mrs. Y and Prof. Z",
        "so 5! is 120 and n! grows and (n-1)! too",
        "so (a + b)! = c and x_2! = d",
        "if a != b then c",
        "f(x)=x.y and file.py",
        "1. first",
        "  12. twelfth",
        "- 3. third",
        "> 4. fourth",
        "**5. fifth",
        "a line\n6. sixth",
        "a version 1.2.3 of it",
    ],
)
def test_no_end(text: str) -> None:
    assert split(text) == [text]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It is 3. Then", ["It is 3. ", "Then"]),
        ("We do step 1. Then", ["We do step 1. ", "Then"]),  # no list number in mid-line
        ("1. One is 1. Two", ["1. One is 1. ", "Two"]),
        ("1234. So", ["1234. ", "So"]),  # nobody counts that far
        ("So 1. One", ["So 1. ", "One"]),
        ("It took 5 ms. Then", ["It took 5 ms. ", "Then"]),
        ("He was 1st. Then", ["He was 1st. ", "Then"]),
        ("Solve for x. Then", ["Solve for x. ", "Then"]),
        ("The minimum is min. Then", ["The minimum is min. ", "Then"]),
        ("He got a mister. Then", ["He got a mister. ", "Then"]),
        ("It is the best. Then", ["It is the best. ", "Then"]),
        ("We won! Then", ["We won! ", "Then"]),
        ("It is 5!. Then", ["It is 5!. ", "Then"]),
        ("It is e.g.\nThen", ["It is e.g.\n", "Then"]),
        ("It is e.g.\r\nThen", ["It is e.g.\r", "\nThen"]),
        ("It is 5!\nThen", ["It is 5!\nThen"]),
        (" " * 22 + "1. A. B", [" " * 22 + "1. A. ", "B"]),
    ],
)
def test_ends_that_look_like_exceptions(text: str, sentences: list[str]) -> None:
    assert split(text) == sentences


@pytest.mark.parametrize(
    "closers", ['"', "'", "”", "’", "»", ")", "]", "}", "*", "**", "_", '.")', ".**)"]
)
def test_closing_marks_belong_to_the_sentence(closers: str) -> None:
    assert split(f"One.{closers} Two") == [f"One.{closers} ", "Two"]
    assert split(f"One.{closers}Two") == [f"One.{closers}Two"]


@pytest.mark.parametrize("dots", ["...", "?!", "!!", "??", "!?", "....", "?."])
def test_a_run_of_terminators_ends_once(dots: str) -> None:
    assert split(f"Wait{dots} So") == [f"Wait{dots} ", "So"]
    assert split(f"Wait{dots}So") == [f"Wait{dots}So"]


@pytest.mark.parametrize(
    ("opening", "closing"), [("`", "`"), ("$", "$"), ("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]")]
)
def test_none_inside_code_and_math(opening: str, closing: str) -> None:
    span = f"{opening}a. b! c? d。{closing}"
    assert split(f"{span} is it") == [f"{span} is it"]
    assert split(f"It is {span}. So") == [f"It is {span}. ", "So"]
    assert split(f"It is {opening}a. b\n\nSo. On") == [f"It is {opening}a. b\n\n", "So. ", "On"]


def test_in_a_fence_only_blank_lines_end() -> None:
    fence = "```python\nx = 1.\n\n\ny = 2. # so. what。\n```"
    parts = ["```python\nx = 1.\n\n", "\ny = 2. # so. what。\n```\n\n"]
    assert split(f"{fence}\n\nSo. On") == [*parts, "So. ", "On"]


def test_pending_and_content() -> None:
    scanner, detector = Scanner(), SentenceDetector()
    seen = []
    for char in " A. ":
        scanner.feed(char)
        ended = detector.feed(char, scanner)
        seen.append((detector.content, detector.pending, ended))
    assert seen == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (False, False, True),
    ]


def test_close_ends_a_pending_sentence() -> None:
    scanner, detector = Scanner(), SentenceDetector()
    for char in "A.":
        scanner.feed(char)
        detector.feed(char, scanner)
    detector.close()
    assert not detector.pending
    assert not detector.content
    scanner.feed(" ")
    assert not detector.feed(" ", scanner)  # it ended already


def test_a_fork_goes_its_own_way() -> None:
    scanner, detector = Scanner(), SentenceDetector()
    for char in "A.":
        scanner.feed(char)
        detector.feed(char, scanner)
    fork = detector.fork()
    assert state(fork) == state(detector)
    fork.close()
    assert detector.pending


@settings(deadline=None, max_examples=200)
@given(texts())
@example("```\n\n\r\nThus")
def test_an_end_is_at_white_space_or_a_full_stop_and_has_something_before_it(text: str) -> None:
    sentences = split(text)
    assert "".join(sentences) == text
    for sentence in sentences[:-1]:
        assert sentence.strip()
        assert sentence[-1].isspace() or sentence[-1] in "。！？｡"


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet="ab \n", max_size=40))
def test_without_terminators_only_blank_lines_end(text: str) -> None:
    lines = text.split("\n")
    blank = [n for n, line in enumerate(lines[1:-1], 1) if not line.strip()]
    ends, content = 0, False
    for number, line in enumerate(lines[:-1]):
        content = content or bool(line.strip())
        if number in blank and content:
            ends, content = ends + 1, False
    rest = 1 if "\n".join(lines)[len("".join(split(text)[:ends])) :] else 0
    assert len(split(text)) == ends + rest
