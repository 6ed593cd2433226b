"""Shared by the loop's tests: run one generation over two scripted engines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaygen import Conversation, Event, Generation, Limits, Message, Thinking
from relaygen._task import Task
from relaygen.engines.scripted import ScriptedEngine, ScriptedTokenizer
from relaygen.policies import Policy
from relaygen.relay import Generating

CUES = ("Thus", "Therefore", "Now", "So")

THINKING = (
    "<think>\nFirst we add 2 and 2. Thus the sum is 3.14 or 4. We check it. Therefore it is fine.\n\n"
    "Now we end the list. So good.\n</think>\n\nThe answer is 4. Done now."
)
"""Two round trips and more, a decimal, every kind of sentence end, an answer."""

PLAIN = "We add 2 and 2. Thus the sum is 4. We check. Therefore it holds, e.g. here. Done."


@dataclass
class Run:
    """What a generation left behind."""

    generation: Generation
    events: list[Event]
    large: ScriptedEngine
    small: ScriptedEngine

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def roles(self) -> list[tuple[str, str]]:
        return [(s.role, s.text) for s in self.generation.segments]

    def shown(self, stage: str) -> str:
        return "".join(e.text for e in self.events if e.type == "text" and e.stage == stage)


def check_promises(generation: Generation) -> None:
    """What must hold for every generation, however it went."""
    usage = generation.usage
    assert "".join(segment.text for segment in generation.segments) == generation.text
    by_role = {
        role: sum(s.tokens for s in generation.segments if s.role == role)
        for role in ("large", "small", "inserted")
    }
    assert by_role["large"] == usage.large_tokens
    assert by_role["small"] == usage.small_tokens
    assert by_role["inserted"] == usage.inserted_tokens
    assert sum(by_role.values()) == usage.completion_tokens == len(generation.ids)
    if None not in generation.ids:
        assert words(generation.ids) == generation.text
    written = usage.large_tokens + usage.small_tokens
    assert usage.utilization == (usage.large_tokens / written if written else None)


def task(policy: Policy, *, thinking: Thinking | None, question: str = "?", **options: Any) -> Task:
    prefill = options.pop("prefill", "")
    kwargs = options.pop("template_kwargs", {})
    conversation = Conversation((Message("user", question),), prefill, kwargs)
    options.setdefault("seed", 1)
    return Task(conversation, policy, thinking, **options)


async def arun(
    policy: Policy,
    script: str = THINKING,
    *,
    large: ScriptedEngine | None = None,
    small: ScriptedEngine | None = None,
    thinking: Thinking | None = None,
    **options: Any,
) -> Run:
    large = large or ScriptedEngine(script)
    small = small or ScriptedEngine(script)
    described = task(policy, thinking=thinking, **options)
    engines = {"large": large, "small": small}
    generating = Generating({role: engines[role] for role in policy.roles}, described)
    events = [event async for event in generating.events()]
    run = Run(generating.snapshot(), events, large, small)
    check_promises(run.generation)
    return run


def run(policy: Policy, script: str = THINKING, **options: Any) -> Run:
    """With thinking tags where the script has them, unless told otherwise."""
    options.setdefault("thinking", Thinking() if "think>" in script else None)
    return asyncio.run(arun(policy, script, **options))


def limits(**values: Any) -> Limits:
    return Limits(**values)


def tokens(text: str) -> int:
    return len(ScriptedTokenizer().encode(text))


def words(ids: Sequence[int | None]) -> str:
    tokenizer = ScriptedTokenizer()
    data = b"".join(tokenizer.data(id) for id in ids if id is not None)
    return data.decode(errors="replace")
