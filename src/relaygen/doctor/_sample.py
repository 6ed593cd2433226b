"""A few answers of the large model: which cues would fire in them, and who may answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from .. import _checks
from .._agreement import same_answer
from .._api import Relay
from .._errors import ContextLengthError
from .._profile import Profile
from .._questions import PROMPT
from .._results import Generation
from .._task import Limits, Task
from .._types import Conversation, EngineInfo, Message, Prompt, Role
from ..engines.scripted import ScriptedEngine, ScriptedTokenizer
from ..policies import LargeOnly, MarginPolicy, Policy, SmallOnly
from ..relay import Generating
from ._report import Answered

_ANSWER = Limits(max_tokens=512)
_SEED = 1


def questions(number: int) -> list[str]:
    """The first shipped calibration questions."""
    from ..calibrate._traces import load_questions

    return [each.question for each in load_questions()[:number]]


def readable(policy: Policy) -> Policy | None:
    """A policy that can be tried on a text without its models: most are.

    ``margin`` hands over at the same cues as ``relay``. Where margins alone decide, a text does
    not tell what would happen: None.
    """
    if isinstance(policy, MarginPolicy):
        return policy.relay
    return None if policy.margins else policy


def cue_names(policy: Policy) -> tuple[str, ...]:
    """The cues at which a policy hands over; none where it has no such rule.

    A comma form whose bare form is listed too is not among them: that one fires first.
    """
    cues = getattr(policy, "cues", None)
    names: tuple[str, ...] = getattr(cues, "names", ())
    return tuple(name for name in names if name.rstrip(",") == name or name[:-1] not in names)


async def answered(
    relay: Relay,
    question: str,
    policy: Policy,
    infos: Mapping[Role, EngineInfo],
    *,
    limits: Limits,
    small: bool,
) -> tuple[Answered, Generation]:
    """Let the large model answer, then the small one from the same thinking.

    Args:
        relay: the pair.
        question: what is asked.
        policy: by which the text is shared, see `readable`.
        infos: of both engines.
        limits: budgets of the large model's text.
        small: whether the small model is asked, too.

    Raises:
        EngineError: an engine fails.
    """
    said = PROMPT.replace("{question}", question)
    task = relay.task(said, policy=LargeOnly(), limits=limits, seed=_SEED)
    generation = await relay.generating(task).whole()
    prompt = await relay.engines["large"].render(task.conversation)
    shared = await shares(generation, prompt, relay.profile, policy)
    same = None
    if small and generation.finish == "stop" and generation.reasoning and generation.answer:
        with suppress(ContextLengthError):  # how much is missing is a finding of its own
            theirs = await _small_answer(relay, task, generation, prompt, infos)
            same = await asyncio.to_thread(same_answer, generation.answer, theirs)
    delegated = [s for s in shared.segments if s.role == "small"]
    return Answered(
        prompt_tokens=generation.usage.prompt_tokens or len(prompt.ids),
        tokens=generation.usage.completion_tokens,
        finish=generation.finish,
        large=shared.usage.large_tokens,
        small=shared.usage.small_tokens,
        handoffs=shared.usage.handoffs,
        segments=tuple(s.tokens for s in delegated if s.cue or s.stage == "reasoning"),
        cues=dict(Counter(s.cue for s in delegated if s.cue)),
        same=same,
    ), generation


async def shares(
    generation: Generation, prompt: Prompt, profile: Profile, policy: Policy
) -> Generation:
    """How a policy would share a text that is there: both models play it, words for tokens."""
    opened = prompt.assistant if profile.marks and profile.marks.opening in prompt.assistant else ""
    engines = {role: ScriptedEngine(generation.text) for role in policy.roles}
    task = Task(
        Conversation((Message("user", "?"),), opened),
        policy,
        thinking=profile.marks,
        answer_role=profile.answer_role,
        # A text that was cut ends here and is not closed by anybody.
        limits=Limits(max_tokens=max(1, len(ScriptedTokenizer().encode(generation.text)))),
        seed=0,
        hints=False,
    )
    return await Generating(engines, task).whole()


async def _small_answer(
    relay: Relay,
    task: Task,
    generation: Generation,
    prompt: Prompt,
    infos: Mapping[Role, EngineInfo],
) -> str:
    """What the small model answers behind the large one's thinking, whose ids it gets if it can."""
    thinking = [s for s in generation.segments if s.stage == "reasoning"]
    ids = tuple(id for segment in thinking for id in segment.ids if id is not None)
    if _checks.shared(infos):
        conversation = Conversation((), raw=prompt.ids + ids)
    else:
        begun = task.conversation.prefill + "".join(segment.text for segment in thinking)
        conversation = Conversation(task.conversation.messages, begun)
    asked = relay.task(conversation, policy=SmallOnly(), limits=_ANSWER, seed=_SEED)
    return (await relay.generating(asked).whole()).answer
