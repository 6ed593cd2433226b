"""Teacher forcing: what a model expects before each token of a text that it did not write.

An engine that can do it has a method `score`; calibration needs it, the relay does not. What each
server gives is read here.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .._errors import ContextLengthError, EngineReplyError

if TYPE_CHECKING:
    from ._pieces import LocalPieces, RemotePieces

Expected = tuple[float | None, int | None]
"""Margin before a token, p(top-1) - p(top-2) in [0, 1], and the most probable id; None where the
engine does not say."""

STEPWISE = frozenset({"llama-server"})
"""Kinds of engines (`EngineInfo.kind`) that are asked once per position."""

UNKNOWN: Expected = (None, None)


@runtime_checkable
class Scoring(Protocol):
    """An engine that scores."""

    def score(self, ids: Sequence[int], start: int, session: str) -> AsyncGenerator[Expected, None]:
        """What the model expects at each position from `start` to the last, given the ids before.

        At the raw logits' temperature 1. Position 0 has nothing before it and is unknown.

        Args:
            ids: the prompt and the text behind it.
            start: the first position of interest, usually the prompt's length.
            session: the cache slot's name; the caller releases it.

        Raises:
            ContextLengthError: the ids do not fit the engine's context.
            EngineError: the engine does not answer, or answers something unusable.
        """
        ...


@runtime_checkable
class Spelling(Protocol):
    """An engine that tells the bytes of token ids, for texts that it did not write."""

    async def data(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of each id of a text.

        Raises:
            EngineError: the engine does not answer.
        """
        ...


async def data_of(pieces: LocalPieces | RemotePieces, ids: Sequence[int]) -> tuple[bytes, ...]:
    """The bytes of each id; those of a character that the text leaves open may be missing."""
    found = await pieces.reader().read(ids, "")
    return tuple(data for _, data in found) + (b"",) * (len(ids) - len(found))


def margin(first: float, second: float) -> float:
    """From two natural-log probabilities, the higher one first; in [0, 1]."""
    return min(1.0, max(0.0, math.exp(first) - math.exp(second)))


def expected(best: Sequence[tuple[int, float]]) -> Expected:
    """From (id, natural-log probability) of the most probable tokens, best first."""
    if not best:
        return UNKNOWN
    known = margin(best[0][1], best[1][1]) if len(best) > 1 else None
    return known, best[0][0]


def check_fits(ids: Sequence[int], context: int, role: str) -> None:
    """One token more than the ids must fit, since servers generate at least one.

    Raises:
        ContextLengthError: it does not.
    """
    if len(ids) >= context:
        raise ContextLengthError(
            f"the text to score has {len(ids)} tokens, the context holds {context}",
            role=role,
            hint="start the engine with a larger context, or leave long traces out",
        )


def parse_vllm_scores(reply: Any, size: int, start: int) -> list[Expected]:
    """vLLM's ``prompt_logprobs``: per position an object by id, null for the first.

    Each holds the token that stands there and the k most probable ones, all with their ``rank``.

    Args:
        reply: of ``/v1/completions``.
        size: of the prompt that was sent.
        start: the first position that is wanted.

    Raises:
        EngineReplyError: there is no entry for each id.
    """
    try:
        entries = reply["choices"][0]["prompt_logprobs"]
        if len(entries) != size:
            raise ValueError
        return [_ranked(entry) for entry in entries[start:]]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise EngineReplyError(
            "it answered without the log-probabilities of the prompt",
            hint="a vLLM server of 0.10.2 or newer gives them",
        ) from None


def _ranked(entry: Mapping[str, Any] | None) -> Expected:
    if entry is None:
        return UNKNOWN
    ranked = sorted(
        (int(found["rank"]), -float(found["logprob"]), int(id)) for id, found in entry.items()
    )
    if not ranked or ranked[0][0] != 1:
        return UNKNOWN
    if len(ranked) > 1 and ranked[1][0] > 2:  # one candidate only, and the token that stands there
        ranked = ranked[:1]
    return expected([(id, -negative) for _, negative, id in ranked])


def parse_llama_scores(reply: Any) -> Expected:
    """The candidates of the one token that a llama-server generated.

    Raises:
        EngineReplyError: there are none.
    """
    try:
        found = reply["completion_probabilities"][0]["top_logprobs"]
        return expected([(int(each["id"]), float(each["logprob"])) for each in found])
    except (KeyError, IndexError, TypeError, ValueError):
        raise EngineReplyError(
            "it answered without the probabilities of a token",
            hint="use a llama-server of 2025 or newer, without --draft",
        ) from None


def parse_sglang_scores(reply: Any, size: int, start: int) -> list[Expected]:
    """SGLang's ``/generate``. From the shape in its source (0.5.23), not run against a server.

    ``meta_info.input_top_logprobs`` has an entry for each id from ``logprob_start_len`` (here
    ``start - 1``) on, the first one null, the others lists of [log-probability, id, text].

    Args:
        reply: of one prompt.
        size: of the prompt that was sent.
        start: the first position that is wanted, at least 1.

    Raises:
        EngineReplyError: there is no entry for each id.
    """
    try:
        entries = reply["meta_info"]["input_top_logprobs"]
        if len(entries) != size - start + 1 or entries[0] is not None:
            raise ValueError
        return [
            expected(
                sorted(
                    ((int(each[1]), float(each[0])) for each in entry or ()),
                    key=lambda found: -found[1],
                )
            )
            for entry in entries[1:]
        ]
    except (KeyError, IndexError, TypeError, ValueError):
        raise EngineReplyError(
            "it answered without the log-probabilities of the prompt",
            hint="this needs an SGLang whose /generate returns input_top_logprobs",
        ) from None
