"""What a generation was: segments, usage, the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ._types import Role, Stage, Writer

Finish = Literal["stop", "length", "repetition", "cancelled"]
"""``stop``: end-of-turn or a stop string; ``length``: a token budget or the context;
``repetition``: the repetition guard closed a looping answer; ``cancelled``: the caller stopped."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens written by one role in one stage.

    ``text`` is raw: markers of thinking are part of it. ``seconds`` is the time its engine worked
    on it, catch-up included. ``cue`` is the cue that brought this segment about, or "".
    """

    role: Writer
    stage: Stage
    text: str
    ids: tuple[int | None, ...]
    cue: str = ""
    why: str = ""
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens kept."""
        return len(self.ids)


@dataclass(slots=True)
class ModelUsage:
    """One model's part. Tokens and seconds; all zero where it never worked.

    Attributes:
        tokens: kept.
        discarded: received beyond a hand-off point, probes and reading ahead included; never shown.
        requests: segments, probes and reading ahead asked for.
        probes: how many of those were probes.
        prewarms: how many of those were to read ahead, while the other model wrote.
        seconds: from each request to its hand-off or end.
        first_seconds: the part of `seconds` before each request's first token (queue, catch-up and
            one decode step).
        decode_seconds: the part between first and last token of each request.
        decoded: tokens that `decode_seconds` was spent on.
        cached: prompt tokens found in the prefix cache; None where the engine hides it.
        evaluated: prompt tokens computed; None where the engine hides it.
        reevaluated: of those, tokens that had been computed or generated before.
        repaired: ids that the engine lost in its stream and the adapter restored.
        hint_stops: stops at a hinted token where there was no hand-off.
        retries: requests repeated because the engine failed before their first token.
        drafted: tokens that speculative decoding guessed; None where the engine drafts nothing or
            does not tell. vLLM tells at the end of a stream only, so what was drafted in requests
            that a hand-off aborted is missing.
        accepted: of those, tokens that were right; None likewise.
    """

    tokens: int = 0
    discarded: int = 0
    requests: int = 0
    probes: int = 0
    prewarms: int = 0
    seconds: float = 0.0
    first_seconds: float = 0.0
    decode_seconds: float = 0.0
    decoded: int = 0
    cached: int | None = None
    evaluated: int | None = None
    reevaluated: int = 0
    repaired: int = 0
    hint_stops: int = 0
    retries: int = 0
    drafted: int | None = None
    accepted: int | None = None

    @property
    def acceptance(self) -> float | None:
        """accepted / drafted; None where nothing was drafted, or the engine does not tell."""
        return (self.accepted or 0) / self.drafted if self.drafted else None

    @property
    def decode_ms(self) -> float | None:
        """Milliseconds per token of plain decoding; None before two tokens in a row."""
        return 1000.0 * self.decode_seconds / self.decoded if self.decoded else None

    @property
    def catch_up_ms(self) -> float | None:
        """Milliseconds per prompt token computed; None where the engine hides the counts."""
        if not self.evaluated or self.decode_ms is None:
            return None
        waited = 1000.0 * self.first_seconds - self.requests * self.decode_ms
        return max(0.0, waited) / self.evaluated


@dataclass(slots=True)
class Usage:
    """What a generation cost.

    Attributes:
        prompt_tokens: of the large model's prompt (the small one's where it writes alone).
        inserted_tokens: written by the loop, in neither model's share.
        reasoning_tokens: kept or inserted before the thinking closed.
        handoffs: changes from one role to the other.
        fallbacks: segments that failed and were carried on by the other model.
        paused: why delegation was paused when it was last wanted; "" where it was not.
        seconds: wall time from the request to the end.
        first_token_seconds: wall time to the first shown text; None where nothing was shown.
        first_answer_seconds: wall time to the first shown text of the answer.
    """

    large: ModelUsage = field(default_factory=ModelUsage)
    small: ModelUsage = field(default_factory=ModelUsage)
    prompt_tokens: int = 0
    inserted_tokens: int = 0
    reasoning_tokens: int = 0
    handoffs: int = 0
    fallbacks: int = 0
    paused: str = ""
    seconds: float = 0.0
    first_token_seconds: float | None = None
    first_answer_seconds: float | None = None

    def of(self, role: Role) -> ModelUsage:
        """One model's part."""
        return self.large if role == "large" else self.small

    @property
    def large_tokens(self) -> int:
        """Tokens of the large model that were kept."""
        return self.large.tokens

    @property
    def small_tokens(self) -> int:
        """Tokens of the small model that were kept."""
        return self.small.tokens

    @property
    def discarded_tokens(self) -> int:
        """Tokens of both models that were received and never shown."""
        return self.large.discarded + self.small.discarded

    @property
    def completion_tokens(self) -> int:
        """large + small + inserted."""
        return self.large.tokens + self.small.tokens + self.inserted_tokens

    @property
    def utilization(self) -> float | None:
        """large / (large + small); None where neither kept a token."""
        written = self.large.tokens + self.small.tokens
        return self.large.tokens / written if written else None

    @property
    def ms_per_token(self) -> float | None:
        """Wall milliseconds per completion token."""
        return 1000.0 * self.seconds / self.completion_tokens if self.completion_tokens else None


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished generation.

    Attributes:
        text: everything that was kept, markers of thinking included; the segments' texts joined.
        reasoning: the thinking without its markers, or "".
        answer: the answer, cut at the client's stop string.
        segments: who wrote what, in order.
        usage: what it cost.
        finish: why it ended.
        notes: what the user should know, one line each.
    """

    text: str
    reasoning: str
    answer: str
    segments: tuple[Segment, ...]
    usage: Usage
    finish: Finish
    notes: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[int | None, ...]:
        """Every kept token id in order; None where the engine hides ids."""
        return tuple(id for segment in self.segments for id in segment.ids)
