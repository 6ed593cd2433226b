"""Whether an engine's candidates are the model's own probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise

from .._errors import EngineReplyError
from .._types import Piece, Sampling, SegmentRequest
from .base import Engine

_TEMPERATURES = (1.0, 0.5, 1.0)
_TOLERANCE = 1e-3
_ROUNDING = 1e-6
"""By how much a logarithm may be above 0, or above the one before it."""
_RUN = 8
"""Tokens of the first answer: what an engine drafts by itself begins behind its first token."""


async def margins_are_raw(engine: Engine, ids: Sequence[int], session: str) -> bool | None:
    """Whether log-probabilities are those at temperature 1, whatever the request's temperature.

    Asks for the two best next tokens at temperatures 1 and 0.5. The first answer at 1 warms the
    prefix cache: an engine that computes a prompt as one batch and later its last token alone
    rounds differently (up to 0.08 seen with quantized models on llama.cpp). It also goes on for a
    few tokens, since llama.cpp gives no candidates of those that it drafted.

    Args:
        engine: what to check.
        ids: a prompt whose next token is not certain; with a certain one there is little to see.
        session: the cache slot's name; the caller releases it.

    Returns:
        True: equal. False: they change with the temperature, so that margins mean nothing.
        None: the engine gave fewer than two candidates, or not with every token.

    Raises:
        EngineError: the engine does not answer, or its candidates are something else.
    """
    runs = [
        await _candidates(engine, ids, session, temperature, 1 if number else _RUN)
        for number, temperature in enumerate(_TEMPERATURES)
    ]
    if any(not run or any(len(answer) < 2 for answer in run) for run in runs):
        return None
    cooler, warmer = runs[1][0], runs[2][0]
    return cooler.keys() == warmer.keys() and all(
        abs(cooler[id] - warmer[id]) <= _TOLERANCE for id in cooler
    )


async def _candidates(
    engine: Engine, ids: Sequence[int], session: str, temperature: float, tokens: int
) -> list[dict[int, float]]:
    """The two best next tokens and their log-probabilities, for each token that is text by itself.

    Those inside a character have none on some engines.

    Raises:
        EngineReplyError: they are no log-probabilities, or the best one is not the first.
    """
    # Nothing is cut off: candidates that are left out would hide what the temperature does.
    sampling = Sampling(temperature=temperature, top_p=1.0, top_k=0, min_p=0.0)
    request = SegmentRequest(tuple(ids), tokens, sampling, session, seed=1, top=2)
    found: list[dict[int, float]] = []
    async with aclosing(engine.stream(request)) as deltas:
        async for delta in deltas:
            found += [_best(piece) for piece in delta.pieces if _whole(piece.data)]
    return found


def _best(piece: Piece) -> dict[int, float]:
    try:
        top = piece.top or ()
        found = [logarithm for _, logarithm in top]
        # What is no number is not below one either.
        right = all(each <= _ROUNDING for each in found) and all(
            after <= before + _ROUNDING for before, after in pairwise(found)
        )
        if right:
            return dict(top)
    except (TypeError, ValueError):  # somebody's own engine may give anything
        pass
    raise EngineReplyError(
        "its candidates are not log-probabilities, best first",
        hint="Piece.top holds (id, natural logarithm of the probability), the likeliest first",
    )


def _whole(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
