"""The start of a generation: what the engines say of themselves, the prompts, the thinking."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from ._errors import EngineError
from ._task import Task, Thinking
from ._types import ROLES, Conversation, EngineInfo, Prompt, Role
from .engines.base import Engine
from .text.stages import Marker, Phase


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything that is known before the first token.

    Attributes:
        infos: of the engines that take part; the small one is missing where it did not answer.
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
    notes: list[str] = []
    met = await asyncio.gather(
        *(_meet(engines[role], task) for role in ROLES if role in engines),
        return_exceptions=True,
    )
    infos: dict[Role, EngineInfo] = {}
    prompts: dict[Role, Prompt] = {}
    markers: dict[Role, tuple[Marker, Marker]] = {}
    for role, found in zip([role for role in ROLES if role in engines], met, strict=True):
        if isinstance(found, EngineError):
            found.role = found.role or role
        if isinstance(found, EngineError) and role == "small" and "large" in infos:
            notes.append(f"the large model went on alone: {found}")
        elif isinstance(found, BaseException):
            raise found
        else:
            infos[role], prompts[role], markers[role] = found
    roles = list(infos)
    fingerprints = {info.vocabulary for info in infos.values()}
    shared = len(roles) == 1 or (len(fingerprints) == 1 and "" not in fingerprints)
    if shared and len(roles) == 2:
        if prompts["large"].ids != prompts["small"].ids:
            notes.append(
                "the two models' chat templates differ; both continue the large model's prompt"
            )
        del prompts["small"]
    first = roles[0]
    insertion: tuple[int, ...] = ()
    if task.thinking is not None:
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


async def _meet(engine: Engine, task: Task) -> tuple[EngineInfo, Prompt, tuple[Marker, Marker]]:
    info = await engine.info()
    prompt = await engine.render(task.conversation)
    return info, prompt, await _markers(engine, task.thinking)


async def _markers(engine: Engine, thinking: Thinking | None) -> tuple[Marker, Marker]:
    if thinking is None:
        return Marker(""), Marker("")  # never looked for
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
