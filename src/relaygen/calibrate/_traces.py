"""Traces: what the large model alone writes, or what another tool has recorded of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from .._api import Relay
from .._errors import UsageError
from .._files import lines
from .._progress import Clock, Progress, Step, silent
from .._questions import PROMPT, rows
from .._results import Generation
from .._task import Limits, Task
from .._types import Conversation, Delta, EngineInfo, Prompt, SegmentRequest
from ..engines._repair import spread
from ..engines._scoring import Spelling
from ..engines.base import Engine
from ..policies import LargeOnly
from ..relay import Generating
from ._adapters import adapter
from ._records import Trace, TraceFinish, append, read

_TEXTS = ("text", "response", "completion")
RETRIES = 2
"""Tries more of one generation where its engine failed before a first token."""


@dataclass(frozen=True, slots=True)
class Question:
    """One calibration question; `id` is unique in its file."""

    id: str
    question: str


def load_questions(path: str | os.PathLike[str] | None = None) -> list[Question]:
    """From a file with ``question`` and perhaps ``id``; the shipped ones without a path.

    Raises:
        UsageError: there is no such file, a line has no question, or two have one id.
    """
    where = path if path is not None else Path(str(files(__package__) / "data/questions.jsonl"))
    found: dict[str, Question] = {}
    for row in rows(where):
        id = row.id(found)
        found[id] = Question(id, row.text("question"))
    return list(found.values())


def fold_of(seed: int, question: str) -> int:
    """The fold, 0 or 1, of a question's id."""
    return _hashed("fold", seed, question) & 1


def trace_seed(seed: int, question: str, run: int) -> int:
    """The seed of one trace: 31 bits of a hash of all three."""
    return _hashed("trace", seed, question, run) & 0x7FFF_FFFF


def _hashed(*parts: object) -> int:
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def trace_id(question: str, run: int) -> str:
    """The question's id; further runs have their number behind it, counted from 0."""
    return question if not run else f"{question}#{run}"


async def write_traces(
    relay: Relay,
    questions: Sequence[Question],
    path: str | os.PathLike[str],
    *,
    seed: int,
    runs: int = 1,
    limits: Limits | None = None,
    prompt_template: str = PROMPT,
    parallel: int = 1,
    progress: Progress = silent,
) -> list[Trace]:
    """Let the large model answer; traces are appended in the questions' order as they come.

    What is in the file already is not asked again.

    Args:
        relay: its large engine writes, with its profile's thinking and sampling.
        questions: what is asked.
        path: of the JSON lines.
        seed: of folds and generations.
        runs: generations per question.
        limits: token budgets of one generation.
        prompt_template: what the user says, ``{question}`` in it.
        parallel: generations at once.
        progress: told after each trace.

    Returns:
        All traces that were asked for, those of earlier calls included.

    Raises:
        UsageError: an argument makes no sense, or the file is that of another call.
        EngineError: the engine failed; what was written stays.
    """
    sampling = relay.profile.sampling
    if runs < 1 or parallel < 1:
        raise UsageError("runs and parallel must be at least 1")
    if runs > 1 and not sampling.temperature:
        raise UsageError(
            "at temperature 0 every run writes the same", hint="use one run and more questions"
        )
    if "{question}" not in prompt_template:
        raise UsageError("the prompt template has no {question}")
    engine = relay.engines["large"]
    info = await engine.info()
    if info.text_only:
        raise UsageError("calibration needs token ids, which this engine hides")
    wanted = {
        trace_id(question.id, run): (question, run) for run in range(runs) for question in questions
    }
    if len(wanted) < runs * len(questions):
        raise UsageError(
            "one question's id is another one's with the number of a run behind it",
            hint="give the questions ids without #",
        )
    known = {trace.id: trace for trace in read(path, Trace)}
    for id, (question, run) in wanted.items():
        if id in known:
            _check_same(known[id], info.model, trace_seed(seed, question.id, run), path)
    missing = [id for id in wanted if id not in known]
    clock, gate = Clock(len(missing)), asyncio.Semaphore(parallel)

    async def one(id: str) -> Trace:
        question, run = wanted[id]
        said = prompt_template.replace("{question}", question.question)
        task = relay.task(
            said,
            policy=LargeOnly(),
            limits=limits,
            seed=trace_seed(seed, question.id, run),
            retries=RETRIES,
            fresh=True,  # started again after a kill, the text is the same
        )
        async with gate:
            return await _generated(engine, task, id, question, info, fold_of(seed, question.id))

    progress(Step("traces", len(wanted) - len(missing), len(wanted)))
    running = [asyncio.ensure_future(one(id)) for id in missing]
    try:
        for number, each in enumerate(running, start=1):
            trace = await each
            append(path, trace)
            known[trace.id] = trace
            done = len(wanted) - len(missing) + number
            progress(Step("traces", done, len(wanted), clock.left(1)))
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return [known[id] for id in wanted]


def _check_same(trace: Trace, model: str, seed: int, path: str | os.PathLike[str]) -> None:
    """Traces of two settings do not belong into one file."""
    if trace.model != model:
        raise UsageError(
            f"{path} holds traces of {trace.model}, not of {model}", hint="name another file"
        )
    if trace.seed is not None and trace.seed != seed:
        raise UsageError(
            f"{path} holds traces of another seed", hint="give that seed, or name another file"
        )


async def _generated(
    engine: Engine, task: Task, id: str, question: Question, info: EngineInfo, fold: int
) -> Trace:
    recorder = _Recorder(engine)
    done = await Generating({"large": recorder}, task).whole()
    return Trace(
        id=id,
        question=question.question,
        prompt_ids=recorder.prompt,
        ids=_ids(done),
        pieces=await _pieces(done, recorder, engine),
        finish=done.finish,
        seed=task.seed,
        model=info.model,
        fold=fold,
    )


def _ids(done: Generation) -> tuple[int, ...]:
    return tuple(id for id in done.ids if id is not None)


class _Recorder:
    """An engine that remembers its prompt and, by position behind it, the bytes of its tokens."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.prompt: tuple[int, ...] = ()
        self.data: dict[int, bytes] = {}

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def render(self, conversation: Conversation) -> Prompt:
        prompt = await self._engine.render(conversation)
        self.prompt = prompt.ids
        return prompt

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        return await self._engine.tokenize(text, special=special)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        position = len(request.ids) - len(self.prompt)
        async with aclosing(self._engine.stream(request)) as deltas:
            async for delta in deltas:
                for piece in delta.pieces:
                    self.data[position] = piece.data
                    position += 1
                yield delta

    async def release(self, session: str) -> None:
        await self._engine.release(session)

    async def aclose(self) -> None:
        """The engine is somebody else's."""


async def _pieces(done: Generation, recorder: _Recorder, engine: Engine) -> tuple[bytes, ...]:
    """The bytes of each id; an end of thinking that the loop inserted was in no stream."""
    found: list[bytes] = []
    for segment in done.segments:
        if segment.role != "inserted":
            found += [recorder.data[len(found) + at] for at in range(len(segment.ids))]
        elif isinstance(engine, Spelling):
            found += await engine.data([id for id in segment.ids if id is not None])
        else:
            found += spread(segment.text.encode(), len(segment.ids))
    return tuple(found)


async def import_traces(
    relay: Relay,
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    seed: int,
    prompt_template: str = PROMPT,
    progress: Progress = silent,
) -> list[Trace]:
    """Traces that another tool recorded, tokenized by the large engine and put in its chat prompt.

    Each line has ``question`` (put into the template) or ``prompt`` (what the user said), and
    ``text``, ``response`` or ``completion``; perhaps ``id`` and ``finish``. Traces of one question
    come into one fold.

    Args:
        relay: its large engine has the tokenizer and the template.
        source: JSON lines of the other tool.
        path: of the traces; those that are there already are not made again.
        seed: of the folds.
        prompt_template: what the user says, ``{question}`` in it.
        progress: told after each trace.

    Raises:
        UsageError: a line lacks something, or the engine cannot tell the bytes of its ids.
        EngineError: the engine does not answer.
    """
    engine = relay.engines["large"]
    info = await engine.info()
    engine = adapter(engine)
    if not isinstance(engine, Spelling):
        raise UsageError("this engine cannot tell the bytes of token ids")
    known = {trace.id: trace for trace in read(path, Trace)}
    values = lines(source, foreign=True)
    found: dict[str, Trace] = {}
    for number, value in values:
        where = f"{source}, line {number}"
        said, question, text = _foreign(value, where, prompt_template)
        given = "" if value.get("id") is None else str(value["id"])
        id = given or f"{number}-{_hashed(said, text):016x}"
        if id in found:
            raise UsageError(
                f"{where}: the id {id!r} is there twice",
                hint="give every line an 'id' of its own, or none of them",
            )
        if id in known:
            found[id] = known[id]
            continue
        prompt = await engine.render(relay.task(said).conversation)
        ids = await engine.tokenize(text, special=True)
        pieces = await engine.data(ids)
        if b"".join(pieces) != text.encode():
            raise UsageError(f"{where}: the tokenizer changes this text, so it cannot be scored")
        finish: TraceFinish = "length" if value.get("finish") == "length" else "stop"
        fold = fold_of(seed, question)
        trace = Trace(
            id=id,
            question=question,
            prompt_ids=prompt.ids,
            ids=ids,
            pieces=pieces,
            finish=finish,
            seed=None,
            model=info.model,
            fold=fold,
        )
        append(path, trace)
        found[id] = trace
        progress(Step("traces", len(found), len(values)))
    return list(found.values())


def _foreign(value: Mapping[str, Any], where: str, template: str) -> tuple[str, str, str]:
    """What the user says, the question, and the text behind it."""
    text = next((value[key] for key in _TEXTS if isinstance(value.get(key), str)), None)
    if text is None:
        raise UsageError(f"{where}: there is none of {', '.join(map(repr, _TEXTS))}")
    question, prompt = value.get("question"), value.get("prompt")
    if isinstance(question, str):
        return template.replace("{question}", question), question, text
    if isinstance(prompt, str):
        return prompt, prompt, text
    raise UsageError(f"{where}: there is neither 'question' nor 'prompt'")
