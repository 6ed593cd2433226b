"""The start of a generation: what the engines say of themselves, the prompts, the thinking."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from ._task import Task, Thinking
from ._types import ROLES, Conversation, EngineInfo, Prompt, Role
from .engines.base import Engine
from .text.stages import Marker, Phase


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything that is known before the first token.

    Attributes:
        infos: of the engines that take part.
        prompts: one per role; one in all where the vocabularies are equal.
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


async def open_generation(engines: Mapping[Role, Engine], task: Task) -> Opening:
    """Ask the engines that the policy uses, render the conversation and look at its end.

    Raises:
        EngineError: an engine does not start or answer, or refuses the conversation.
    """
    roles: list[Role] = [role for role in ROLES if role in engines]
    answers = await asyncio.gather(*(engines[role].info() for role in roles))
    infos = dict(zip(roles, answers, strict=True))
    rendered = await asyncio.gather(*(engines[role].render(task.conversation) for role in roles))
    prompts = dict(zip(roles, rendered, strict=True))
    fingerprints = {info.vocabulary for info in infos.values()}
    shared = len(roles) == 1 or (len(fingerprints) == 1 and "" not in fingerprints)
    notes = []
    if shared and len(roles) == 2:
        if prompts["large"].ids != prompts["small"].ids:
            notes.append(
                "the two models' chat templates differ; both continue the large model's prompt"
            )
        del prompts["small"]
    thinking = task.thinking or Thinking()
    first = roles[0]
    markers = {role: await _markers(engines[role], thinking, task) for role in roles}
    return Opening(
        infos=infos,
        prompts=prompts,
        shared=shared,
        phase=_phase(prompts[first].assistant, task.thinking, task.conversation),
        markers=markers,
        insertion=await engines[first].tokenize(thinking.insertion, special=True)
        if task.thinking
        else (),
        notes=tuple(notes),
    )


async def _markers(engine: Engine, thinking: Thinking, task: Task) -> tuple[Marker, Marker]:
    if task.thinking is None:
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
    if conversation.template_kwargs.get("enable_thinking") is False:
        return "answer"
    return "unopened"
