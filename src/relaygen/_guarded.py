"""An engine as the loop meets it: whoever wrote it, what goes wrong is one of our errors.

Anybody may have written it, so an exception that is none of ours ends no text that the other model
can go on with, and a stream that breaks its promises breaks none of ours.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

from ._errors import EngineError, EngineReplyError, RelayGenError, UsageError
from ._own import DEBUG_HINT, lacking, told
from ._types import Conversation, Delta, End, EngineInfo, Prompt, Role, SegmentRequest
from .engines.base import Engine

T = TypeVar("T")

_ENDS = get_args(End)
_WORDS = 16
"""Pieces that a token may be, on an average, where an engine hides its tokens: words and signs."""


def check_engine(engine: object, role: Role) -> None:
    """Refuse what is no engine.

    Raises:
        UsageError: it is a class, or lacks something; the message says what.
    """
    if isinstance(engine, type):
        raise UsageError(
            f"the {role} engine is the class {engine.__name__}",
            hint=f"make one of it: {engine.__name__}(…)",
        )
    missing = lacking(engine, Engine)
    if missing:
        raise UsageError(
            f"the {role} engine is of type {type(engine).__name__}, "
            f"which lacks {', '.join(missing)}",
            hint="it must be one of relaygen.Engine, or the name of a model or a server",
        )


class Guarded:
    """An engine whose mistakes are errors of ours, in one line. It is an engine itself.

    Args:
        engine: anybody's.
        role: whose it is, which errors say.
        note: is told what can fail nothing any more.
    """

    def __init__(
        self, engine: Engine, role: Role, note: Callable[[str], None] = lambda line: None
    ) -> None:
        self._engine = engine
        self._role = role
        self._note = note

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        info = await self._asked(EngineInfo, "info")
        if not isinstance(info.context, int) or info.context < 1:
            raise EngineReplyError(
                f"its info gave a context of {info.context!r} tokens", role=self._role
            )
        return info

    async def render(self, conversation: Conversation) -> Prompt:
        """See `Engine.render`."""
        return await self._asked(Prompt, "render", conversation)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """See `Engine.tokenize`."""
        ids = await self._asked(object, "tokenize", text, special=special)
        if isinstance(ids, str) or not isinstance(ids, Sequence):
            raise self._wrong("tokenize", ids, "a tuple of ids")
        return tuple(ids)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """See `Engine.stream`. It ends at the request's `max_tokens`, whatever the engine does.

        Pieces without ids are no tokens: `max_tokens` of those may be several times as many.
        """
        deltas = self._started(request)
        left, over = request.max_tokens * (1 if request.text is None else _WORDS), False
        try:
            async for delta in deltas:
                if not isinstance(delta, Delta):
                    raise self._wrong("stream", delta, "a Delta")
                if over:
                    raise EngineReplyError("its stream went on behind its end", role=self._role)
                left -= len(delta.pieces)
                if left < 0:
                    yield replace(delta, pieces=delta.pieces[:left], end="length")
                    return
                if delta.end is not None:
                    over = True
                    if delta.end not in _ENDS:
                        raise EngineReplyError(
                            f"its stream ended with {delta.end!r}, which is none of "
                            f"{', '.join(_ENDS)}",
                            role=self._role,
                        )
                yield delta
        except RelayGenError:
            raise
        except Exception as error:
            raise self._broken("stream", error) from error
        finally:
            await self._close(deltas)

    def _started(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        try:
            deltas: Any = self._engine.stream(request)
        except RelayGenError:
            raise
        except Exception as error:
            raise self._broken("stream", error) from error
        if not isinstance(deltas, AsyncGenerator):
            if inspect.iscoroutine(deltas):
                deltas.close()  # or Python warns that nobody awaited it
            raise self._wrong("stream", deltas, "an async generator: an async def with a yield")
        return deltas

    async def _close(self, deltas: AsyncGenerator[Delta, None]) -> None:
        """Abort. Whoever does that wants nothing more of the stream, and no error either."""
        try:
            await deltas.aclose()
        except Exception as error:
            self._note(f"the {self._role} engine's stream could not be closed: {told(error)}")

    async def release(self, session: str) -> None:
        """See `Engine.release`. It never raises: where it does, that stays what it is."""
        await self._engine.release(session)

    async def aclose(self) -> None:
        """See `Engine.aclose`.

        Raises:
            EngineError: it failed.
        """
        try:
            await self._engine.aclose()
        except RelayGenError:
            raise
        except Exception as error:
            raise self._broken("aclose", error) from error

    async def _asked(self, kind: type[T], method: str, *said: Any, **options: Any) -> T:
        try:
            answer = await getattr(self._engine, method)(*said, **options)
        except RelayGenError:
            raise
        except Exception as error:
            raise self._broken(method, error) from error
        if not isinstance(answer, kind):
            raise self._wrong(method, answer, kind.__name__)
        return answer

    def _broken(self, method: str, error: Exception) -> EngineError:
        return EngineError(f"its {method} raised {told(error)}", role=self._role, hint=DEBUG_HINT)

    def _wrong(self, method: str, answer: object, wanted: str) -> EngineReplyError:
        return EngineReplyError(
            f"its {method} gave a {type(answer).__name__}, not {wanted}", role=self._role
        )
