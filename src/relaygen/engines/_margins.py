"""Whether an engine's candidates are the model's own probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from .._types import Sampling, SegmentRequest
from .base import Engine

_TEMPERATURES = (1.0, 0.5, 1.0)
_TOLERANCE = 1e-3


async def margins_are_raw(engine: Engine, ids: Sequence[int], session: str) -> bool | None:
    """Whether log-probabilities are those at temperature 1, whatever the request's temperature.

    Asks for the two best next tokens at temperatures 1 and 0.5. The first answer at 1 only warms
    the prefix cache: an engine that computes a prompt as one batch and later its last token alone
    rounds differently (up to 0.08 seen with quantized models on llama.cpp).

    Args:
        engine: what to check.
        ids: a prompt whose next token is not certain; with a certain one there is little to see.
        session: the cache slot's name; the caller releases it.

    Returns:
        True: equal. False: they change with the temperature, so that margins mean nothing.
        None: the engine gave fewer than two candidates.

    Raises:
        EngineError: the engine does not answer.
    """
    answers = [await _candidates(engine, ids, session, each) for each in _TEMPERATURES]
    if any(len(answer) < 2 for answer in answers):
        return None
    _, cooler, warmer = answers
    return cooler.keys() == warmer.keys() and all(
        abs(cooler[id] - warmer[id]) <= _TOLERANCE for id in cooler
    )


async def _candidates(
    engine: Engine, ids: Sequence[int], session: str, temperature: float
) -> dict[int, float]:
    """The two best next tokens and their log-probabilities."""
    # Nothing is cut off: candidates that are left out would hide what the temperature does.
    sampling = Sampling(temperature=temperature, top_p=1.0, top_k=0, min_p=0.0)
    request = SegmentRequest(tuple(ids), 1, sampling, session, seed=1, top=2)
    found: dict[int, float] = {}
    async with aclosing(engine.stream(request)) as deltas:
        async for delta in deltas:
            for piece in delta.pieces[:1]:
                found = found or dict(piece.top)
    return found
