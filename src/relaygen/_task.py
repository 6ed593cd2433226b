"""What one generation is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from ._errors import UsageError
from ._gate import Gate
from ._prewarm import PrewarmMode
from ._types import Constraint, Conversation, Sampling
from .policies.base import Policy

AnswerRole = Literal["large", "small", "relay"]


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a model marks its thinking.

    Attributes:
        opening: the marker in front of it.
        closing: the marker behind it.
        insertion: what the loop writes when it has to close the thinking itself.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # no misspelt entries

    opening: str = "<think>"
    closing: str = "</think>"
    insertion: str = "\n</think>\n\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets, in tokens.

    Attributes:
        max_tokens: of the whole completion, insertions included.
        max_reasoning_tokens: after which the thinking is closed; None for no limit of its own.
        max_segment_tokens: of one delegated segment.
        max_repeats: blocks in a row after which a text counts as looping; 0 for no guard.
        min_tokens: of the whole completion, before which no model may end its turn.

    Raises:
        UsageError: a value is out of range.
    """

    max_tokens: int = 4096
    max_reasoning_tokens: int | None = None
    max_segment_tokens: int = 128
    max_repeats: int = 8
    min_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_reasoning_tokens", "max_segment_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise UsageError(
                f"min_tokens must be between 0 and max_tokens ({self.max_tokens}), "
                f"not {self.min_tokens}"
            )
        if self.max_repeats == 1 or self.max_repeats < 0:
            raise UsageError("max_repeats must be 0 (off) or at least 2")


@dataclass(frozen=True, slots=True)
class Task:
    """One generation.

    Attributes:
        thinking: None where the model does not mark its thinking: everything is the answer.
        answer_role: who answers after the thinking.
        stop: strings that end the answer; they are cut from it.
        seed: of the first segment; the others' seeds derive from it. None: not reproducible.
        choice: which of several generations of one request this is.
        constraint: a form that the answer must have. One model writes the whole answer then.
        calls: opening and closing tag of a tool call, which no hand-off may split; None: no tools.
        gates: asked before every hand-off to the small model.
        retries: tries more when the large engine fails before a request's first token.
        rescue: where the large engine fails for good, the small model finishes alone.
        hints: whether engines may be told ids at which to stop by themselves.
        fresh: each engine computes the whole prompt at first, whatever its prefix cache holds: what
            other generations left there moves near-ties, and so the text. llama-server and the
            embedded engine can; the others ignore it.
        prewarm: whether the small engine reads ahead while the large one writes: ``off``,
            ``prompt`` or ``continuous``. Not where `fresh`, since how far it came depends on time.
        notes: what the result says beside what happened.
    """

    conversation: Conversation
    policy: Policy
    thinking: Thinking | None = None
    answer_role: AnswerRole = "small"
    sampling: Sampling = field(default_factory=Sampling)
    limits: Limits = field(default_factory=Limits)
    stop: tuple[str, ...] = ()
    seed: int | None = None
    choice: int = 0
    constraint: Constraint | None = None
    calls: tuple[str, str] | None = None
    gates: tuple[Gate, ...] = ()
    retries: int = 0
    rescue: bool = False
    hints: bool = True
    fresh: bool = False
    prewarm: PrewarmMode = "off"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.prewarm not in get_args(PrewarmMode):
            raise UsageError(
                f"prewarm must be one of {', '.join(get_args(PrewarmMode))}, not {self.prewarm!r}"
            )
        if self.sampling.penalizes and len(self.policy.roles) > 1:
            raise UsageError(
                "penalties need a policy with one model: engines count them per request",
                hint="drop the penalties, or use the policy large or small",
            )
        if self.limits.max_reasoning_tokens is not None and self.thinking is None:
            raise UsageError(
                "max_reasoning_tokens needs a model that marks its thinking",
                hint="use a profile with thinking = 'tags', or drop the limit",
            )
