"""Whether two answers say the same."""

from __future__ import annotations

from .._errors import MissingExtraError
from . import _answers
from ._mathematics import Compared, Mathematics


def compared(one: str, two: str, mathematics: Mathematics | None = None) -> Compared:
    r"""Compare the results of two answers, the first being the reference.

    What stands in the last ``\boxed{}`` is an answer's result; without a box it is what
    `math-verify` finds, usually the last number. A box that was cut off holds no result.

    Args:
        one: the reference; a bare result goes in a box.
        two: what is judged.
        mathematics: asked where equal words and numbers do not decide; None for one of its own,
            which takes a second or more to start.

    Returns:
        Never an unknown `same`: where mathematics reads nothing on a side, words decide.

    Raises:
        MissingExtraError: mathematics is needed and `math-verify` is not installed.
    """
    boxes = [_answers.boxed(text) for text in (one, two)]
    texts = [
        _answers.unboxed(text) if box is None else _answers.tidy(box)
        for text, box in zip((one, two), boxes, strict=True)
    ]
    words = _answers.folded(texts[0]) == _answers.folded(texts[1])
    if not all(text.strip() for text in texts):
        return Compared(False, boxes[1])
    same: bool | None = words or None
    if boxes[0] is not None and boxes[1] is not None:
        same = _answers.decided(*texts)
    if same is not None:
        return Compared(same, boxes[1])
    said = [
        text if box is None else f"\\boxed{{{text}}}"
        for text, box in zip(texts, boxes, strict=True)
    ]
    if mathematics is None:
        with Mathematics() as own:
            result = own.compare(*said)
    else:
        result = mathematics.compare(*said)
    return Compared(
        words if result.same is None else result.same,
        result.found if boxes[1] is None else boxes[1],
    )


def same_answer(one: str, two: str, mathematics: Mathematics | None = None) -> bool:
    """Equal results where both have a mathematical one, else equal words.

    Mathematics is `math-verify`'s (extra ``eval``); without it the texts are compared with case
    and white space folded.
    """
    try:
        return bool(compared(one, two, mathematics).same)
    except MissingExtraError:
        return bool(_answers.folded(one)) and _answers.folded(one) == _answers.folded(two)
