"""The start of a generation: what the engines say of themselves, the prompts, the thinking."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ._errors import EngineError, UsageError
from ._gate import blocked
from ._retry import retried
from ._task import Task, Thinking
from ._types import ROLES, Conversation, EngineInfo, Prompt, Role
from .engines.base import Engine
from .text.stages import Marker, Phase

T = TypeVar("T")

_KNOWN_S = 0.05
"""Seconds within which an engine answers that was met before."""


class _NotAsked(EngineError):
    """Nobody waits for an engine that keeps failing; that is no failure more."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything that is known before the first token.

    Attributes:
        infos: of the engines that take part; the small one is missing where it did not answer.
        prompts: one per role; the first role's alone where the vocabularies are equal.
        shared: whether token ids mean the same on both engines.
        phase: where the assistant's part of the prompt leaves the thinking.
        markers: opening and closing marker as each role's tokenizer has them.
        insertion: ids of the inserted end of thinking, as the first role's tokenizer has them.
        notes: what the user should know.
    """

    infos: Mapping[Role, EngineInfo]
    prompts: Mapping[Role, Prompt]
    shared: bool
    phase: Phase
    markers: Mapping[Role, tuple[Marker, Marker]]
    insertion: tuple[int, ...]
    notes: tuple[str, ...]


async def open_generation(
    engines: Mapping[Role, Engine], task: Task, *, compare_templates: bool = True
) -> Opening:
    """Ask the engines that the policy uses, render the conversation and look at its end.

    Args:
        engines: of the policy's roles.
        task: what to do.
        compare_templates: whether the small model's own rendering is looked at although ids are
            shared, to note a difference.

    Raises:
        EngineError: an engine does not start or answer, or refuses the conversation.
        UsageError: a prompt of token ids for two models with different vocabularies.
    """
    roles = [role for role in ROLES if role in engines]
    notes: list[str] = []
    infos = await _gather({role: _info(role, engines[role], task) for role in roles}, task, notes)
    fingerprints = {info.vocabulary for info in infos.values()}
    shared = len(infos) == 1 or (len(fingerprints) == 1 and "" not in fingerprints)
    if not shared and isinstance(task.conversation.raw, tuple):
        raise UsageError(
            "a prompt of token ids needs two models with one vocabulary",
            hint="send the prompt as text",
        )
    first = next(iter(infos))
    asked = [first] if shared and not compare_templates else list(infos)
    read = await _gather(
        {role: _read(role, engines[role], infos[role], task) for role in asked}, task, notes
    )
    if set(asked) != set(read):  # the small engine failed just now
        del infos["small"]
        shared = True
    prompts = {role: prompt for role, (prompt, _) in read.items()}
    markers = {role: read[role if role in read else first][1] for role in infos}
    if shared and len(prompts) == 2:
        if prompts["large"].ids != prompts["small"].ids:
            notes.append(
                "the two models' chat templates differ; both continue the large model's prompt"
            )
        del prompts["small"]
    insertion: tuple[int, ...] = ()
    if task.thinking is not None and not infos[first].text_only:
        insertion = await engines[first].tokenize(task.thinking.insertion, special=True)
    return Opening(
        infos=infos,
        prompts=prompts,
        shared=shared,
        phase=_phase(prompts[first].assistant, task.thinking, task.conversation),
        markers=markers,
        insertion=insertion,
        notes=tuple(notes),
    )


async def _gather(
    asked: Mapping[Role, Coroutine[Any, Any, T]], task: Task, notes: list[str]
) -> dict[Role, T]:
    """What each role answers; the small one may be missing where the large one answers."""
    met = await asyncio.gather(*asked.values(), return_exceptions=True)
    answers: dict[Role, T] = {}
    for role, found in zip(asked, met, strict=True):
        if isinstance(found, EngineError):
            found.role = found.role or role
        alone = role == "small" and "large" in answers
        if alone and isinstance(found, (EngineError, UsageError)):
            notes.append(f"the large model went on alone: {found}")
            failed = isinstance(found, EngineError) and not isinstance(found, _NotAsked)
            for gate in task.gates if failed else ():
                gate.failed()
        elif isinstance(found, BaseException):
            raise found
        else:
            answers[role] = found
    return answers


async def _info(role: Role, engine: Engine, task: Task) -> EngineInfo:
    if _needed(role, task):
        return await retried(engine.info, task.retries)
    return await _spared(engine.info(), task)


async def _read(
    role: Role, engine: Engine, info: EngineInfo, task: Task
) -> tuple[Prompt, tuple[Marker, Marker]]:
    async def read() -> tuple[Prompt, tuple[Marker, Marker]]:
        prompt = await engine.render(task.conversation)
        return prompt, await _markers(engine, info, task.thinking)

    return await (retried(read, task.retries) if _needed(role, task) else _spared(read(), task))


def _needed(role: Role, task: Task) -> bool:
    """Whether nobody can go on without this role's engine."""
    return role == "large" or "large" not in task.policy.roles


async def _spared(asking: Coroutine[Any, Any, T], task: Task) -> T:
    """What the small engine answers; where it keeps failing, only a trial waits for it."""
    asked = asyncio.ensure_future(asking)
    try:
        await asyncio.wait((asked,), timeout=_KNOWN_S)
        if not asked.done():
            reason = blocked(task.gates, "lead")
            if reason:
                raise _NotAsked(reason, role="small")
            for gate in task.gates:
                gate.began()
        return await asked
    finally:
        asked.cancel()


async def _markers(
    engine: Engine, info: EngineInfo, thinking: Thinking | None
) -> tuple[Marker, Marker]:
    if thinking is None:
        return Marker(""), Marker("")  # never looked for
    if info.text_only:
        return Marker(thinking.opening), Marker(thinking.closing)
    found = []
    for text in (thinking.opening, thinking.closing):
        ids = await engine.tokenize(text, special=True)
        found.append(Marker(text, ids[0] if len(ids) == 1 else None))
    return found[0], found[1]


def _phase(assistant: str, thinking: Thinking | None, conversation: Conversation) -> Phase:
    """Stage detection looks only at the assistant's part: a user may write markers too."""
    if thinking is None:
        return "answer"
    opened, closed = assistant.rfind(thinking.opening), assistant.rfind(thinking.closing)
    if closed > opened:
        return "answer"
    if opened >= 0:
        return "reasoning"
    if conversation.raw is not None:  # nobody asked this text to think
        return "answer"
    if conversation.template_kwargs.get("enable_thinking") is False:
        return "answer"
    return "unopened"
