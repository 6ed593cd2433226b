"""The engine protocol: what a server of one model must offer to take part in a relay.

An engine knows nothing of policies, cues or the other engine. `relaygen.engines.scripted` is the
smallest complete one, public, and what the tests use.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from .._types import Conversation, Delta, EngineInfo, Prompt, SegmentRequest


@runtime_checkable
class Engine(Protocol):
    """One served model."""

    async def info(self) -> EngineInfo:
        """Model name, context and vocabulary; starts the engine where it must be started.

        Raises:
            EngineError: the engine does not start or does not answer.
        """
        ...

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation through this engine's own chat template, with the assistant's turn open.

        Raises:
            EngineError: the engine does not answer, or the template refuses the conversation.
        """
        ...

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Ids of `text` as a continuation: no BOS. `special` parses markers such as ``</think>``.

        Raises:
            EngineError: the engine does not answer.
        """
        ...

    def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """Generate. The last delta has `end`; end-of-turn ids are never among the pieces.

        Closing the generator early aborts the work on the engine; how is the adapter's business.

        Raises:
            ContextLengthError: the ids do not fit the engine's context.
            EngineError: refused, reset, timed out, or a reply that makes no sense, which includes
                a stream that stops without an `end`.
        """
        ...

    async def release(self, session: str) -> None:
        """The conversation is over: what is kept for it (a cache slot) may go. Never raises."""
        ...

    async def aclose(self) -> None:
        """Free connections and processes. Safe to call twice."""
        ...
