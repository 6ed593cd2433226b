"""Prewarm: the small engine reads on while the large one writes, so that a hand-off waits less.

What is read ahead is asked for as one token, which is discarded. Nobody waits for it and nothing
of it is written: it changes when the small engine computes the prompt, not what it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal

PrewarmMode = Literal["off", "prompt", "continuous"]
"""``prompt``: the prompt is read at the request's start. ``continuous``: also what was written
since, again and again."""

LEAST = 256
"""Tokens of a prompt that is read ahead. A model reads so many in about two steps of decoding (as
6.5 ms a token decoded and 0.05 ms a token read have it), and reading ahead costs one."""

EVERY = 64
"""Tokens written between two requests that read what was written."""


class Prewarm:
    """Decides when to read ahead, and has at most one request under way.

    Args:
        mode: what is read ahead.
        read: asks the engine to read everything that is there.
        note: is told once where that failed; then nothing is read ahead any more.

    Attributes:
        over: nothing is read ahead, or nothing more; looking is in vain.
    """

    def __init__(
        self,
        mode: PrewarmMode,
        read: Callable[[], Coroutine[Any, Any, None]],
        note: Callable[[str], None],
    ) -> None:
        self._mode = mode
        self.over = mode == "off"
        self._read = read
        self._note = note
        self._task: asyncio.Task[None] | None = None

    def look(self, there: int, known: int) -> None:
        """The other engine writes; returns at once.

        Args:
            there: tokens that the engine could be sent.
            known: tokens that it has computed.
        """
        if self.over or (self._task is not None and not self._task.done()):
            return
        self.over = self._mode == "prompt"
        if there - known >= (EVERY if known else LEAST):
            self._task = asyncio.ensure_future(self._safely())

    async def _safely(self) -> None:
        try:
            await self._read()
        except Exception as error:  # whatever it is, the text is written without
            self.over = True
            self._note(f"the small model could not read ahead: {error}")

    async def aclose(self) -> None:
        """The engine is needed, or nobody needs it any more: end what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
