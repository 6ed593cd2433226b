"""The words of the project as types: roles, stages, pieces, deltas.

Pure data, shared by every layer; nothing here imports anything else of ours but the errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ._errors import UsageError

Role = Literal["large", "small"]
"""Which model of the pair."""

ROLES: tuple[Role, Role] = ("large", "small")
"""Both, the large one first."""

Writer = Literal["large", "small", "inserted"]
"""Who wrote a segment; ``inserted`` is a logged insertion by the loop, in neither model's share."""

Stage = Literal["reasoning", "answer"]
"""``reasoning`` up to the end of thinking, then ``answer``."""

Kind = Literal["delegate", "lead"]
"""How a role was given the word: ``delegate`` for one segment, ``lead`` without a limit."""

End = Literal["turn", "length", "context", "hint"]
"""Why an engine ended: end-of-turn token, the request's token limit, its context is full, or one of
the request's `stop_ids`, which is then the last piece."""


def other(role: Role) -> Role:
    """The other role of the pair."""
    return "small" if role == "large" else "large"


@dataclass(frozen=True, slots=True)
class Piece:
    """One token as an engine sent it.

    ``id`` is None where the engine hides ids (text mode). ``data`` are its exact bytes, which may
    end inside a UTF-8 character. ``top`` holds the k most probable next tokens *before* this token
    was drawn, as (id, natural-log probability), best first; empty where not asked for or unknown.
    """

    id: int | None
    data: bytes
    top: tuple[tuple[int, float], ...] = ()

    @property
    def margin(self) -> float | None:
        """p(top-1) - p(top-2) in [0, 1]; None where the engine did not give two candidates."""
        if len(self.top) < 2:
            return None
        return math.exp(self.top[0][1]) - math.exp(self.top[1][1])

    @property
    def entropy(self) -> float | None:
        """Entropy of the candidates in nats, their probabilities scaled to sum 1.

        None where the engine did not give two candidates.
        """
        if len(self.top) < 2:
            return None
        shares = [math.exp(logarithm) for _, logarithm in self.top]
        total = sum(shares)
        return -sum(share / total * math.log(share / total) for share in shares if share > 0)


@dataclass(frozen=True, slots=True)
class Delta:
    """What one chunk of an engine's stream brought.

    The last delta of a stream has ``end``. ``cached`` and ``evaluated`` are prompt tokens found in
    the engine's prefix cache and prompt tokens computed, where the engine tells (None: hidden).
    ``repaired`` counts ids that the engine lost and the adapter restored. ``drafted`` and
    ``accepted`` are tokens that were guessed since the last delta, and those of them that were
    right (None: nothing new, nothing is drafted, or the engine does not tell).
    """

    pieces: tuple[Piece, ...] = ()
    end: End | None = None
    cached: int | None = None
    evaluated: int | None = None
    repaired: int = 0
    drafted: int | None = None
    accepted: int | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Every field is always sent: engines' own defaults differ.

    Penalties are for one-model policies: engines count them from the start of each request, which
    is not the start of the text.

    Attributes:
        temperature: 0 is greedy, 2 the most.
        top_p: probability mass of the likeliest tokens to draw from, 0 to 1; 1 is off.
        top_k: how many of the likeliest tokens to draw from; 0 is off.
        min_p: least probability, as a share of the likeliest token's, 0 to 1; 0 is off.
        logit_bias: added to the logits, by token id.
        presence_penalty: taken from the logit of each token that occurred, -2 to 2; 0 is off.
        frequency_penalty: the same for each time that it occurred, -2 to 2; 0 is off.
        repetition_penalty: divides what speaks for tokens that occurred, above 0 up to 2; 1 is off.

    Raises:
        UsageError: a value is out of range.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # no misspelt entries

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20
    min_p: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 2.0:
            raise UsageError(f"temperature must be between 0 and 2, not {self.temperature}")
        for name, value in (("top_p", self.top_p), ("min_p", self.min_p)):
            if not 0.0 <= value <= 1.0:
                raise UsageError(f"{name} must be between 0 and 1, not {value}")
        if self.top_k < 0:
            raise UsageError(f"top_k must be 0 (off) or more, not {self.top_k}")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -2.0 <= getattr(self, name) <= 2.0:
                raise UsageError(f"{name} must be between -2 and 2, not {getattr(self, name)}")
        if not 0.0 < self.repetition_penalty <= 2.0:
            raise UsageError(
                f"repetition_penalty must be above 0 and at most 2, not {self.repetition_penalty}"
            )

    @property
    def penalizes(self) -> bool:
        """Whether any penalty is on."""
        return (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) != (0, 0, 1)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A form that the answer must have, kept by the engine's guided decoding.

    ``value`` is a JSON schema (``json_schema``), nothing (``json_object``), a pattern (``regex``),
    a list of strings (``choice``) or a grammar in the engine's own notation (``grammar``).
    """

    kind: Literal["json_schema", "json_object", "regex", "choice", "grammar"]
    value: Any = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function call that the assistant wrote; ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation, in the chat template's terms.

    ``reasoning`` is an earlier turn's thinking, which most templates drop; ``tool_call_id`` says
    which call a ``tool`` message answers.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a chat template renders: every message, never only the last one.

    ``prefill`` opens the assistant's turn with given text (for example ``<think>\\n``);
    ``template_kwargs`` reach the template unchanged (for example ``enable_thinking``). A final
    assistant message is left open where ``continue_final``, else a new turn begins behind it.
    ``tools`` are function definitions in OpenAI's form. ``raw`` is a text (or its ids) to be
    continued as it is, without a template; then there are no messages.
    """

    messages: tuple[Message, ...]
    prefill: str = ""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    continue_final: bool = True
    tools: tuple[Mapping[str, Any], ...] = ()
    raw: str | tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered chat prompt: its ids, its text, and the open assistant part of that text.

    ``assistant`` is the end of ``text`` that belongs to the assistant's turn: what the template or
    a prefill began it with, such as ``<think>``. Markers of thinking are looked for there alone,
    for a user may write them too. "" where the turn is empty.
    """

    ids: tuple[int, ...]
    text: str
    assistant: str = ""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of itself.

    ``context`` is the tokens one conversation may hold. ``vocabulary`` is a fingerprint: equal
    strings mean that every id, added tokens included, means the same on both engines; "" is
    unknown and never equal. ``slots`` are conversations whose prefix cache can live at once.
    ``text_only``: the engine hides token ids, so requests carry text and pieces have no ids.
    ``stop_ids``: it can stop at given ids, so hints are of use. ``kind`` names the server.
    ``drafts``: it decodes speculatively, and tokens that were drafted come without candidates.
    ``experimental``: the adapter was made from the server's source and never run against one.
    ``version``: the server's, as it says it; "" where it does not.
    """

    model: str
    context: int
    vocabulary: str = ""
    slots: int = 1
    rollback: Literal["free", "costly", "unknown"] = "unknown"
    text_only: bool = False
    stop_ids: bool = False
    kind: str = ""
    drafts: bool = False
    experimental: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True)
class SegmentRequest:
    """One engine's turn: continue ``ids`` by at most ``max_tokens`` tokens.

    ``session`` names the conversation (its cache slot); ``top`` asks for that many candidates with
    each piece, best first. ``seed`` None lets the engine draw one. ``text`` stands for the ids
    where the engine hides them. The turn does not end before ``min_tokens`` of this request. At an
    id of ``stop_ids`` the engine stops with end ``hint``; it is asked of engines that say they can.
    ``constraint`` holds from the first token on. ``fresh`` asks for nothing of the prefix cache, so
    that the text does not depend on what the engine computed before; an engine that cannot do so
    ignores it.
    """

    ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    session: str
    seed: int | None = None
    top: int = 0
    text: str | None = None
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    constraint: Constraint | None = None
    fresh: bool = False
