"""Whether an engine answers now."""

from __future__ import annotations

import asyncio
import time
import uuid

from .._checks import own_words, timed
from .._errors import RelayGenError
from .._types import Sampling, SegmentRequest
from ..engines.base import Engine
from ._errors import without_address

_PATIENCE_S = 5.0
_FRESH_S = 1.0


class Answering:
    """Whether an engine answers now; asked at most once a second.

    Args:
        engine: is asked to tokenize a word, which a server does without touching its model.
            Where that is no use, it generates a token.
        patience: seconds to wait for the answer.
    """

    def __init__(self, engine: Engine, *, patience: float = _PATIENCE_S) -> None:
        self._engine = engine
        self._patience = patience
        self._asked: asyncio.Task[str] | None = None
        self._at = 0.0
        self._number = 0

    async def ask(self) -> str:
        """ "" where it answers, else why not."""
        now = time.monotonic()
        if self._asked is None or (self._asked.done() and now - self._at > _FRESH_S):
            self._at = now
            self._number += 1
            self._asked = asyncio.ensure_future(self._ask(f"ready {self._number}"))
        # It is not cancelled: it may be starting the engine, and others wait for it.
        if not self._asked.done():
            await asyncio.wait((self._asked,), timeout=self._patience)
        if not self._asked.done():
            return f"no answer within {self._patience:g} s"
        return self._asked.result()

    async def _ask(self, text: str) -> str:
        try:
            await self._look(text)
        except RelayGenError as error:
            return without_address(own_words(error))
        except Exception as error:  # somebody's own engine may raise what it likes
            return f"its own code raised {type(error).__name__}"  # its text is not for everybody
        return ""

    async def _look(self, text: str) -> None:
        info = await self._engine.info()
        if not info.text_only:
            await self._engine.tokenize(text)
            return
        key = uuid.uuid4().hex  # all that such a server can be asked for is text
        request = SegmentRequest((), 1, Sampling(temperature=0.0), key, text=text)
        try:
            await timed(self._engine, request)
        finally:
            await self._engine.release(key)
