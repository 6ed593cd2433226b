"""How a relay shares a trace, found without an engine: the basis of the ceiling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from .._errors import UsageError
from .._profile import Profile
from .._results import Generation
from .._task import Limits, Task
from .._types import Conversation, Delta, EngineInfo, Message, Piece, Prompt, SegmentRequest
from ..mock import Trace, Vocabulary
from ..policies import Policy
from ..profiles import load, make_policy
from ..relay import Generating

PROFILE = "qwen3-32b+1.7b"
"""Whose cues the shipped traces are read with."""

_CLOSING = b"</think>"
_LEAST = 40
"""Tokens of a shortened trace beside its end."""


class Playing:
    """An engine in this process that plays a trace, for its ids, in no time."""

    def __init__(self, trace: Trace) -> None:
        self._vocabulary = Vocabulary(trace)
        self._ids = [self._vocabulary.trace_id(token) for token in trace.tokens]
        self._prompt = tuple(self._vocabulary.head("assistant"))

    async def info(self) -> EngineInfo:
        """One vocabulary for both."""
        return EngineInfo("trace", 1 << 20, "trace")

    async def render(self, conversation: Conversation) -> Prompt:
        """The head of a turn, whatever was asked."""
        return Prompt(self._prompt, "<|im_start|>assistant\n")

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """As the mock engine does it."""
        return tuple(self._vocabulary.encode(text, special=special))

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """The trace from where the request's ids leave it.

        Raises:
            UsageError: they are no beginning of it.
        """
        start = len(request.ids) - len(self._prompt)
        if list(request.ids[len(self._prompt) :]) != self._ids[:start]:
            raise UsageError("the relay left the trace")
        for id in self._ids[start : start + request.max_tokens]:
            yield Delta((Piece(id, self._vocabulary.data(id)),))
            await asyncio.sleep(0)
        over = start + request.max_tokens >= len(self._ids)
        yield Delta((), "turn" if over else "length")

    async def release(self, session: str) -> None:
        """Nothing is held."""

    async def aclose(self) -> None:
        """Nothing is held."""


async def aplayed(
    trace: Trace, policy: Policy | None = None, profile: Profile | None = None
) -> Generation:
    """`played` for callers with an event loop."""
    profile = profile or load(PROFILE)
    task = Task(
        Conversation((Message("user", "?"),)),
        policy or make_policy("relay", profile),
        thinking=profile.marks,
        answer_role=profile.answer_role,
        limits=Limits(max_tokens=1 << 20),
        seed=0,
    )
    generating = Generating({"large": Playing(trace), "small": Playing(trace)}, task)
    generation = await generating.whole()
    if generation.text != trace.text:
        raise UsageError(f"the relay does not write trace {trace.name!r} as it is")
    return generation


def played(
    trace: Trace, policy: Policy | None = None, profile: Profile | None = None
) -> Generation:
    """What a relay makes of a trace: the tokens, who wrote them, no times.

    Args:
        trace: what both models would write.
        policy: None for the profile's relay.
        profile: None for `PROFILE`.

    Raises:
        UsageError: the text is not the trace's, for example because it loops.
    """
    return asyncio.run(aplayed(trace, policy, profile))


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one relayed trace.

    Attributes:
        large, small: tokens kept.
        handoffs: changes of role.
        delegated: lengths of the small model's thinking segments, in tokens.
        answer: tokens of the answer that the small model wrote.
    """

    large: int
    small: int
    handoffs: int
    delegated: tuple[int, ...]
    answer: int

    @property
    def tokens(self) -> int:
        """All that were kept."""
        return self.large + self.small

    @property
    def utilization(self) -> float:
        """The large model's share."""
        return self.large / self.tokens

    @classmethod
    def of(cls, generation: Generation) -> Figures:
        """Of what `played` gave."""
        small = [s for s in generation.segments if s.role == "small"]
        usage = generation.usage
        return cls(
            usage.large_tokens,
            usage.small_tokens,
            usage.handoffs,
            tuple(s.tokens for s in small if s.stage == "reasoning"),
            sum(s.tokens for s in small if s.stage == "answer"),
        )


def shortened(trace: Trace, tokens: int) -> Trace:
    """The beginning of a trace's thinking and its whole end, `tokens` in all.

    Raises:
        UsageError: it does not think, or its end alone is longer.
    """
    if tokens >= len(trace.tokens):
        return trace
    if _CLOSING not in trace.tokens:
        raise UsageError(f"trace {trace.name!r} does not think", hint="play the whole trace")
    end = trace.tokens[trace.tokens.index(_CLOSING) - 1 :]
    if tokens < len(end) + _LEAST:
        raise UsageError(f"trace {trace.name!r} has at least {len(end) + _LEAST} tokens")
    head = trace.tokens[: tokens - len(end)]
    return Trace(f"{trace.name}-{tokens}", head + end, trace.thinking)
