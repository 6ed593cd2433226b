"""Whether an answer is right: the pairs of `pairs.jsonl`, and what no pair can say."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen._errors import MissingExtraError, UsageError
from relaygen.evaluate._grade import (
    Grade,
    agree,
    grade,
    lexical_similarity,
    semantic_similarity,
)
from relaygen.evaluate._questions import Item, Kind
from relaygen.grading._mathematics import Mathematics

PAIRS = [
    json.loads(line)
    for line in Path(__file__).with_name("pairs.jsonl").read_text("utf-8").splitlines()
]


@pytest.fixture(scope="module")
def mathematics() -> Iterator[Mathematics]:
    with Mathematics() as shared:
        yield shared


def item(kind: Kind, gold: str | None, pattern: str = "") -> Item:
    return Item("1", "?", "?", gold, kind, pattern)


def test_there_are_enough_pairs_and_each_is_there_once() -> None:
    assert len({json.dumps(pair) for pair in PAIRS}) == len(PAIRS) >= 60
    told = {(pair["kind"], pair["gold"], pair["answer"]) for pair in PAIRS}
    assert len(told) == len(PAIRS)
    assert sum("known" in pair for pair in PAIRS) <= 6
    for kind in ("math", "choice"):
        assert {pair["expected"] for pair in PAIRS if pair["kind"] == kind} == {True, False}


@pytest.mark.parametrize(
    "pair", PAIRS, ids=[f"{at}-{pair['about']}" for at, pair in enumerate(PAIRS, start=1)]
)
def test_pairs(pair: dict[str, Any], mathematics: Mathematics) -> None:
    found = grade(item(pair["kind"], pair["gold"]), pair["answer"], mathematics)
    # A limitation that is none any longer leaves the list.
    assert found.correct is (pair["expected"] != ("known" in pair)), found


@pytest.mark.parametrize(
    ("answer", "extracted"),
    [
        (r"So \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("The answer is 42.", "42"),
        ("I do not know.", None),
        (r"cut \boxed{4", None),
        ("", None),
    ],
)
def test_what_was_read_is_told(
    answer: str, extracted: str | None, mathematics: Mathematics
) -> None:
    assert grade(item("math", r"\sqrt{5}"), answer, mathematics) == Grade(False, extracted)


def test_choices_tell_their_letter() -> None:
    assert grade(item("choice", "A"), r"\boxed{c}") == Grade(False, "C")
    assert grade(item("choice", None), "(B)") == Grade(None, "B")


@pytest.mark.parametrize(
    ("pattern", "gold", "answer", "wanted"),
    [
        (r"\d+", "42", "41, no, 42", Grade(True, "42")),
        (r"\d+", "41", "41, no, 42", Grade(False, "42")),
        (r"is (\w+)", "blue", "It is red. It is blue.", Grade(True, "blue")),
        (r"(?i)yes", None, "Yes!", Grade(True, "Yes")),
        (r"(?i)yes", None, "No.", Grade(False, None)),
        (r"a(b)?", "a", "a", Grade(True, "a")),
    ],
)
def test_patterns(pattern: str, gold: str | None, answer: str, wanted: Grade) -> None:
    assert grade(item("pattern", gold, pattern), answer) == wanted


def test_without_gold_nothing_is_graded() -> None:
    for kind in ("math", "none"):
        assert grade(item(kind, None), r"\boxed{4}") == Grade(None, "4")


@settings(deadline=None)
@given(st.text(), st.sampled_from(["choice", "pattern", "none"]))
def test_any_text_can_be_graded(text: str, kind: Kind) -> None:
    assert grade(item(kind, "A", "(a)|b"), text).correct in (True, False, None)


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_whole_numbers_need_no_mathematics(gold: int, said: int) -> None:
    refusing = Mathematics(limit_s=0)
    found = grade(item("math", str(gold)), f"so \\boxed{{{said:,}}}", refusing)
    assert found == Grade(gold == said, f"{said:,}")


@pytest.mark.parametrize(
    ("one", "two", "kind", "same"),
    [
        (r"\boxed{\frac12}", r"thus \boxed{0.5}", "math", True),
        (r"\boxed{\frac12}", r"\boxed{0.6}", "math", False),
        ("It is 72.", "Altogether: 72", "math", True),
        ("", " ", "math", None),
        ("", "72", "math", False),
        ("(B)", "Answer: B", "choice", True),
        ("(B)", "Answer: C", "choice", False),
        ("(B)", "no idea", "choice", False),
        ("who knows", "no idea", "choice", None),
        (r"\boxed{4}", r"\boxed{\sqrt{16}}", "none", True),
        ("Paris,  of course", "paris, of course.", "none", True),
        ("Rome has 3 rivers", "Paris has 3", "none", False),
        ("a 3", "b 3", "pattern", False),
    ],
)
def test_agreement(
    one: str, two: str, kind: Kind, same: bool | None, mathematics: Mathematics
) -> None:
    assert agree(one, two, kind, mathematics) is same
    assert agree(two, one, kind, mathematics) is same


@pytest.mark.anyio
async def test_threads_and_event_loops_may_grade(mathematics: Mathematics) -> None:
    right, wrong = item("math", r"\frac{\pi}{4}"), item("math", r"\frac{\pi}{3}")
    answer = r"\boxed{\pi/4}"
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: grade(each, answer, mathematics), [right, wrong] * 8))
    assert [each.correct for each in found] == [True, False] * 8
    assert (await asyncio.to_thread(grade, right, answer)).correct
    assert grade(right, answer, mathematics).correct


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("math_verify", "rapidfuzz.distance", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as caught:
        grade(item("math", r"\pi"), r"\boxed{\frac{\pi}{1}}")
    assert "relaygen[eval]" in caught.value.hint
    assert grade(item("math", "4"), r"\boxed{4.0}").correct
    with pytest.raises(MissingExtraError, match="rapidfuzz"):
        lexical_similarity("a", "b")
    with pytest.raises(MissingExtraError, match="sentence-transformers") as caught:
        semantic_similarity([("a", "b")])
    assert "relaygen[embeddings]" in caught.value.hint


def test_lexical_similarity_is_about_words() -> None:
    assert lexical_similarity("The cat sat", "the CAT  sat") == 1.0
    assert lexical_similarity("a b c d", "a b c e") == 0.75
    assert lexical_similarity("not bad", "good") == 0.0
    assert lexical_similarity("", "") == 1.0


@settings(deadline=None)
@given(st.text("ab ", max_size=20), st.text("ab ", max_size=20))
def test_lexical_similarity_is_a_similarity(one: str, two: str) -> None:
    assert 0.0 <= lexical_similarity(one, two) == lexical_similarity(two, one) <= 1.0
    assert (lexical_similarity(one, two) == 1.0) == (one.split() == two.split())


def counts(texts: list[str]) -> list[list[float]]:
    """Letters as an embedding: a bag of characters."""
    return [[float(text.count(letter)) for letter in "abc"] for text in texts]


def test_embeddings_of_ones_own() -> None:
    pairs = [("ab", "ba"), ("a", "b"), ("a", "ab"), ("", "a")]
    found = semantic_similarity(pairs, encode=counts)
    assert found == pytest.approx([1.0, 0.0, 2**-0.5, 0.0])
    assert semantic_similarity([]) == []
    for wrong in (lambda texts: [[1.0]], lambda texts: [[1.0], [1.0, 2.0]]):
        with pytest.raises(UsageError):
            semantic_similarity([("a", "b")], encode=wrong)
