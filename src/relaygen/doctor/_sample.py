"""A few answers of the large model: which cues would fire in them, and who may answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .. import _checks
from .._api import Relay
from .._errors import ContextLengthError, EngineReplyError
from .._profile import Profile
from .._questions import PROMPT
from .._results import Generation
from .._task import Limits, Task
from .._types import Conversation, EngineInfo, Message, Prompt, Role
from ..engines.scripted import ScriptedEngine, ScriptedTokenizer
from ..grading._agreement import compared
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


@dataclass(frozen=True, slots=True)
class Written:
    """What the large model wrote.

    Attributes:
        task: that it was given.
        prompt: as its template made it.
        generation: what it wrote.
    """

    task: Task
    prompt: Prompt
    generation: Generation


async def written(relay: Relay, question: str, limits: Limits) -> Written:
    """Let the large model answer.

    Args:
        relay: the pair.
        question: what is asked.
        limits: budgets of the text.

    Raises:
        EngineError: the engine fails.
    """
    said = PROMPT.replace("{question}", question)
    task = relay.task(said, policy=LargeOnly(), limits=limits, seed=_SEED)
    generation = await relay.generating(task).whole()
    prompt = await relay.engines["large"].render(task.conversation)
    return Written(task, prompt, generation)


async def answered(text: Written, profile: Profile, policy: Policy) -> Answered:
    """What the policy would do with a text, see `readable`."""
    generation = text.generation
    shared = await shares(generation, text.prompt, profile, policy)
    delegated = [s for s in shared.segments if s.role == "small"]
    return Answered(
        prompt_tokens=generation.usage.prompt_tokens or len(text.prompt.ids),
        tokens=generation.usage.completion_tokens,
        finish=generation.finish,
        large=shared.usage.large_tokens,
        small=shared.usage.small_tokens,
        handoffs=shared.usage.handoffs,
        segments=tuple(s.tokens for s in delegated if s.cue or s.stage == "reasoning"),
        cues=dict(Counter(s.cue for s in delegated if s.cue)),
    )


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


async def agrees(relay: Relay, text: Written, infos: Mapping[Role, EngineInfo]) -> bool | None:
    """Whether the small model answers likewise from the same thinking.

    None where there is no whole answer to compare with, or the text does not fit the small model.

    Raises:
        EngineError: the small engine fails.
        MissingExtraError: only mathematics could tell, and `math-verify` is not installed.
    """
    generation = text.generation
    if not (generation.finish == "stop" and generation.reasoning and generation.answer):
        return None
    try:
        theirs = await _small_answer(relay, text, infos)
    except ContextLengthError:  # how much is missing is a finding of its own
        return None
    return (await asyncio.to_thread(compared, generation.answer, theirs)).same


async def _small_answer(relay: Relay, text: Written, infos: Mapping[Role, EngineInfo]) -> str:
    """What the small model answers behind the large one's thinking, whose ids it gets if it can."""
    thinking = [s for s in text.generation.segments if s.stage == "reasoning"]
    ids = tuple(id for segment in thinking for id in segment.ids if id is not None)
    if _checks.shared(infos):
        try:
            return await _said(relay, Conversation((), raw=text.prompt.ids + ids))
        except EngineReplyError as error:
            if not _checks.refused(error):
                raise
    begun = text.task.conversation.prefill + "".join(segment.text for segment in thinking)
    return await _said(relay, Conversation(text.task.conversation.messages, begun))


async def _said(relay: Relay, conversation: Conversation) -> str:
    task = relay.task(conversation, policy=SmallOnly(), limits=_ANSWER, seed=_SEED)
    return (await relay.generating(task).whole()).answer
