"""Scores: a model teacher-forced over traces, appended one by one."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from .._errors import EngineError, EngineReplyError, UsageError
from .._progress import Clock, Progress, Step, silent
from .._types import EngineInfo
from ..engines._margins import margins_are_raw
from ..engines._scoring import STEPWISE, Expected, Scoring, Spelling
from ..engines.base import Engine
from ._records import Scores, Trace, append, read

_FIRST = 20
"""Positions after which the time is estimated, where each takes a request."""


class Scorer(Scoring, Protocol):
    """What scores: an `Engine` with `Scoring`, or a `TransformersScorer`."""

    async def info(self) -> EngineInfo:
        """Its name and context."""
        ...

    async def release(self, session: str) -> None:
        """A cache slot may go."""
        ...


async def write_scores(
    engine: Scorer,
    traces: Sequence[Trace],
    path: str | os.PathLike[str],
    *,
    progress: Progress = silent,
) -> list[Scores]:
    """Score each trace that is not in the file yet.

    Where the engine is asked once per position, the time is estimated and said after the first 20.

    Args:
        engine: the scorer; its vocabulary is that of the traces.
        traces: what is scored.
        path: of the JSON lines.
        progress: told at the start, with the estimate, and after each trace.

    Returns:
        The scores of all traces, in their order.

    Raises:
        UsageError: the engine cannot score, or the file is of another scorer or other traces.
        EngineError: it failed, or its margins are not the model's own; what was written stays.
    """
    if not isinstance(engine, Scoring):
        raise UsageError(
            "this engine gives no log-probabilities of a given text",
            hint="score with vLLM, SGLang, llama-server, the embedded engine or transformers",
        )
    info = await engine.info()
    known = {scores.id: scores for scores in read(path, Scores)}
    for trace in traces:
        if trace.id in known:
            _check_same(known[trace.id], trace, info.model, path)
    missing = [trace for trace in traces if trace.id not in known]
    if missing and isinstance(engine, Engine):
        await check_raw(engine, missing[0])
    total = sum(len(trace.ids) for trace in missing)
    clock = Clock(total)
    before = len(traces) - len(missing)
    progress(Step("score", before, len(traces)))

    def estimate(seconds: float) -> None:
        left = seconds * total
        note = f"one request per position: about {_duration(left)} for {total:,} tokens"
        progress(Step("score", before, len(traces), left, note))

    for number, trace in enumerate(missing, start=1):
        measure = estimate if number == 1 and info.kind in STEPWISE else None
        scores = await _scored(engine, trace, info.model, measure)
        append(path, scores)
        known[trace.id] = scores
        progress(Step("score", before + number, len(traces), clock.left(len(trace.ids))))
    return [known[trace.id] for trace in traces]


async def _scored(
    engine: Scorer, trace: Trace, model: str, measure: Callable[[float], None] | None
) -> Scores:
    """One trace; `measure` is told the seconds of a position, as soon as they are known."""
    ids, start = (*trace.prompt_ids, *trace.ids), len(trace.prompt_ids)
    key = uuid.uuid4().hex
    found: list[Expected] = []
    begun = time.monotonic()
    try:
        async with aclosing(engine.score(ids, start, key)) as expected:
            async for each in expected:
                found.append(each)
                if len(found) == 1:
                    begun = time.monotonic()  # the first one computes the prompt too
                if len(found) == _FIRST and measure is not None:
                    measure((time.monotonic() - begun) / (_FIRST - 1))
    finally:
        await engine.release(key)
    if len(found) != len(trace.ids):
        raise EngineReplyError(f"it scored {len(found)} of {len(trace.ids)} tokens")
    margins, top = tuple(each[0] for each in found), tuple(each[1] for each in found)
    return Scores(trace.id, model, margins, top, start)


async def check_vocabulary(engine: Scoring, own: str, wrote: str, traces: Sequence[Trace]) -> None:
    """That ids mean to the scorer what they meant to the model that wrote them.

    Fingerprints of one kind tell. Where they are of two kinds, as a GGUF file's and a server's, or
    one is missing, the scorer must spell the traces as their writer did.

    Args:
        engine: the scorer.
        own, wrote: the fingerprints of its vocabulary and of the writer's; "" where not known.
        traces: what will be scored.

    Raises:
        UsageError: they mean something else.
        EngineError: the scorer does not say what it spells.
    """
    if own and wrote and _kind(own) == _kind(wrote):
        same = own == wrote
    elif isinstance(engine, Spelling):
        same = all(
            [_readable(await engine.data(one.ids)) == _readable(one.pieces) for one in traces]
        )
    else:
        same = "" in (own, wrote)
    if not same:
        raise UsageError(
            "the models have different vocabularies, so one cannot score the other's tokens",
            hint="choose models of one family, or --scorer large",
        )


def _kind(fingerprint: str) -> str:
    return fingerprint.rpartition(":")[0]


def _readable(pieces: Sequence[bytes]) -> str:
    """Without the bytes that are no text: not every engine tells them."""
    return b"".join(pieces).decode(errors="ignore").replace("\ufffd", "")


async def check_raw(engine: Engine, trace: Trace) -> None:
    """Margins are checked, not believed: behind the prompt and in the middle of the text.

    Raises:
        EngineError: the engine gives no margins, or scales them by temperature.
    """
    key = uuid.uuid4().hex
    try:
        for written in (0, len(trace.ids) // 2):
            ids = (*trace.prompt_ids, *trace.ids[:written])
            raw = await margins_are_raw(engine, ids, key)
            if raw is None:
                raise EngineError(
                    "the scorer gives no log-probabilities of two candidates",
                    hint="switch speculative decoding off on this engine",
                )
            if not raw:
                raise EngineError(
                    "the scorer's log-probabilities change with temperature, so margins mean "
                    "nothing",
                    hint="vLLM: --logprobs-mode raw_logprobs, "
                    "SGLang: SGLANG_RETURN_ORIGINAL_LOGPROB=1",
                )
    finally:
        await engine.release(key)


def _check_same(scores: Scores, trace: Trace, model: str, path: str | os.PathLike[str]) -> None:
    if scores.scorer != model:
        raise UsageError(
            f"{path} holds scores of {scores.scorer}, not of {model}", hint="name another file"
        )
    if len(scores.margins) != len(trace.ids) or scores.start != len(trace.prompt_ids):
        raise UsageError(
            f"{path} holds scores of another trace {trace.id!r}", hint="name another file"
        )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
