"""How an embedded engine drafts: speculative decoding is fixed when an engine starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from .._errors import UsageError

SpeculationKind = Literal["draft", "ngram"]
"""``draft``: a smaller model guesses the next tokens; ``ngram``: what followed when the last tokens
stood in the text before."""

_TOKENS = {"draft": 3, "ngram": 8}


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding of one embedded engine.

    What is drafted is checked by the model itself in one step, so the text is the model's own: with
    greedy sampling the same text up to near ties, which a step of several tokens may round
    differently.

    Args:
        kind: who drafts.
        model: the GGUF file that drafts, of the same vocabulary; for ``draft`` only. `Relay` takes
            the small model's where the large one drafts without saying by what.
        tokens: drafted at once, at most; None for 3 of a model (llama.cpp's own number) and 8 of an
            n-gram.
        lookup: tokens in a row that must have stood in the text before, for ``ngram``.

    Raises:
        UsageError: a value makes no sense.
    """

    kind: SpeculationKind
    model: str | os.PathLike[str] | None = None
    tokens: int | None = None
    lookup: int = 6

    def __post_init__(self) -> None:
        if self.kind not in _TOKENS:
            raise UsageError(
                f"there is no speculation {self.kind!r}", hint=f"one of {', '.join(_TOKENS)}"
            )
        if self.kind == "ngram" and self.model is not None:
            raise UsageError("n-grams need no draft model", hint="drop model, or use kind 'draft'")
        for name, value in (("tokens", self.tokens), ("lookup", self.lookup)):
            if value is not None and value < 1:
                raise UsageError(f"{name} of a speculation must be at least 1, not {value}")

    @property
    def most(self) -> int:
        """Tokens drafted at once, at most."""
        return _TOKENS[self.kind] if self.tokens is None else self.tokens
