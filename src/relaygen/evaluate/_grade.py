"""Whether an answer is right, whether two agree, and how much two texts have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .._errors import MissingExtraError, UsageError
from ..grading import _answers
from ..grading._agreement import compared
from ..grading._mathematics import Mathematics
from ._questions import Item, Kind

Encode = Callable[[list[str]], Sequence[Sequence[float]]]
"""Texts to vectors of one length, in order."""

Near = Callable[[Sequence[tuple[str, str]]], list[float]]
"""Pairs of texts to how near they are, such as `semantic_similarity`."""

EMBEDDING_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class Grade:
    """One answer against its gold.

    Attributes:
        correct: None where there is nothing to grade against.
        extracted: the result that was read in the answer; None where there is none.
    """

    correct: bool | None
    extracted: str | None


def grade(item: Item, answer: str, mathematics: Mathematics | None = None) -> Grade:
    r"""Whether an answer is right.

    Mathematics: the last complete ``\boxed{}``, without one what `math-verify` finds in the
    sentences, against the gold. A choice: its letter, exactly. A pattern: its last match.

    Args:
        item: what was asked.
        answer: what the model said behind its thinking.
        mathematics: shared by many calls; any thread may use it. None starts one where equal words
            and numbers do not decide, which takes a second or more.

    Raises:
        MissingExtraError: mathematics is needed and `math-verify` is not installed.
    """
    if item.kind == "choice":
        letter = _answers.choice(answer)
        return Grade(None if item.gold is None else letter == item.gold, letter)
    if item.kind == "pattern":
        return _matched(item, answer)
    if item.kind == "none" or item.gold is None:
        return Grade(None, _answers.boxed(answer))
    result = compared(f"\\boxed{{{item.gold}}}", answer, mathematics)
    return Grade(bool(result.same), result.found)


def _matched(item: Item, answer: str) -> Grade:
    matches = list(re.finditer(item.pattern, answer))
    if not matches:
        return Grade(False, None)
    groups = matches[-1].groups()
    found = matches[-1].group() if not groups or groups[0] is None else groups[0]
    return Grade(item.gold is None or found.strip() == item.gold.strip(), found)


def agree(one: str, two: str, kind: Kind, mathematics: Mathematics | None = None) -> bool | None:
    """Whether two answers have one result, for data without a gold.

    Args:
        one: an answer, such as the large model's.
        two: another.
        kind: of the item. Of ``math`` the results must be equal by mathematics, of ``choice`` the
            letters; of the others the boxed results, without boxes all words.
        mathematics: as of `grade`.

    Returns:
        None where neither has a result: nothing agrees there and nothing differs.

    Raises:
        MissingExtraError: mathematics is needed and `math-verify` is not installed.
    """
    if not one.strip() and not two.strip():
        return None
    if kind == "choice":
        letters = _answers.choice(one), _answers.choice(two)
        return None if letters == (None, None) else letters[0] == letters[1]
    if kind != "math" and None in (_answers.boxed(one), _answers.boxed(two)):
        # A number that happens to end two long texts is not what they say.
        return _answers.folded(one) == _answers.folded(two)
    return bool(compared(one, two, mathematics).same)


@contextmanager
def comparing(needed: Iterable[bool]) -> Iterator[Mathematics | None]:
    """One process that compares, for many answers; None where no answer needs it."""
    if not any(needed):
        yield None
        return
    with Mathematics() as mathematics:
        yield mathematics


def lexical_similarity(one: str, two: str) -> float:
    """How many words two texts share in the same order, from 0 to 1; not what they mean.

    One minus the insertions and deletions of words that turn one into the other, over the words of
    both (`rapidfuzz.distance.Indel`). Case does not count. Two empty texts are equal.

    Raises:
        MissingExtraError: rapidfuzz is not installed.
    """
    try:
        from rapidfuzz.distance import Indel
    except ImportError:
        raise MissingExtraError("rapidfuzz", extra="eval") from None
    return float(Indel.normalized_similarity(*(text.casefold().split() for text in (one, two))))


def semantic_similarity(
    pairs: Sequence[tuple[str, str]], *, model: str = EMBEDDING_MODEL, encode: Encode | None = None
) -> list[float]:
    """How near the embeddings of two texts are: their cosine, from -1 to 1, pair by pair.

    A high value says that two texts are about the same; a wrong number hardly lowers it. Most
    models read only the first few hundred tokens.

    Args:
        pairs: what is compared; one call for many, as the model loads once a call.
        model: of the library ``sentence-transformers``; fetched from the hub where it is not there.
        encode: other embeddings instead, such as a server's.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        UsageError: `encode` returns something else than one vector for each text.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    if not texts:
        return []
    if encode is None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingExtraError("sentence-transformers", extra="embeddings") from None
        encode = SentenceTransformer(model).encode
    found = [[float(number) for number in vector] for vector in encode(texts)]
    if len(found) != len(texts) or len({len(vector) for vector in found}) != 1:
        raise UsageError("the embeddings are not one vector of one length for each text")
    vectors = dict(zip(texts, found, strict=True))
    return [_cosine(vectors[one], vectors[two]) for one, two in pairs]


def _cosine(one: Sequence[float], two: Sequence[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*two)
    return math.fsum(a * b for a, b in zip(one, two, strict=True)) / lengths if lengths else 0.0
