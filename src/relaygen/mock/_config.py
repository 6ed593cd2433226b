"""What a mock engine is like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .._errors import UsageError
from ._failures import Failure
from ._trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class MockConfig:
    """One mock engine.

    Attributes:
        trace: what it says: a shipped trace's name, a file, or a trace.
        model: the served model's name.
        token_ms: milliseconds per token.
        prefill_ms: milliseconds per prompt token that is not cached.
        ttft_ms: milliseconds that every request takes besides.
        jitter: each token comes late by up to this share of `token_ms`, at random; 0 to 1. It does
            not add up.
        burst: tokens come in bursts of 1 to this many at random, as speculative decoding makes
            them; each burst is due when its last token would be, so the mean speed is unchanged.
        regroup: up to this many tokens (or bursts) share a chunk, at random.
        context: tokens of prompt and completion together.
        kv_tokens: budget of the prefix cache.
        seed: of everything random.
        margin: between the two most probable tokens, always, in [0, 1].
        processed_logprobs: log-probabilities follow the temperature, as with vLLM's
            ``--logprobs-mode processed_logprobs``.
        show_cached: ``usage`` tells cached tokens, as with ``--enable-prompt-tokens-details``.
        max_stops: stop strings of a request; more are refused (vLLM's ``VLLM_MAX_STOP_STRINGS``).
        split: cut the trace's longer tokens in two: a different vocabulary for the same text.
        match: what the ids of a request are compared by: ``ids`` with the trace's own, or ``text``,
            which is what a pair with different vocabularies needs.
        template: ``thinking`` lets the model think in the trace's tags; with ``plain`` there is no
            thinking, whatever a request asks for, and a chat plays the trace's answer only.
        api_key: guards ``/v1``; "" for none.
        failures: planned ones.

    Raises:
        UsageError: a value is out of range.
    """

    trace: str | Path | Trace = "short"
    model: str = "mock"
    token_ms: float = 40.0
    prefill_ms: float = 0.3
    ttft_ms: float = 0.0
    jitter: float = 0.0
    burst: int = 1
    regroup: int = 1
    context: int = 40_960
    kv_tokens: int = 262_144
    seed: int = 0
    margin: float = 0.9
    processed_logprobs: bool = False
    show_cached: bool = True
    max_stops: int = 4
    split: bool = False
    match: Literal["ids", "text"] = "ids"
    template: Literal["thinking", "plain"] = "thinking"
    api_key: str = ""
    failures: tuple[Failure, ...] = ()

    def __post_init__(self) -> None:
        for name in ("token_ms", "prefill_ms", "ttft_ms", "kv_tokens", "max_stops"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} must be at least 0, not {getattr(self, name)}")
        for name in ("jitter", "margin"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} must be between 0 and 1, not {getattr(self, name)}")
        for name in ("burst", "regroup", "context"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.match not in ("ids", "text"):
            raise UsageError(f"match must be ids or text, not {self.match!r}")
        if self.template not in ("thinking", "plain"):
            raise UsageError(f"template must be thinking or plain, not {self.template!r}")
