"""One token of an engine, counted and not kept: probes, and reading ahead."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace

from ._contexts import Contexts
from ._errors import EngineError
from ._events import Probed
from ._gate import blocked
from ._ledger import Ledger
from ._meter import Meter
from ._opening import Opening
from ._prewarm import PrewarmMode
from ._task import Task
from ._types import Piece, Role, SegmentRequest
from .engines.base import Engine


class Peek:
    """Asks engines for the next token beside the one that writes.

    Args:
        engines: of the roles that take part.
        task: what the generation is.
        key: the conversation's name.
        ledger: takes the counts, events and notes.
        contexts: what each engine is sent.
        known: ids that each engine has computed, which is brought up to date.
    """

    def __init__(
        self,
        engines: Mapping[Role, Engine],
        task: Task,
        key: str,
        ledger: Ledger,
        contexts: Contexts,
        known: Counter[Role],
    ) -> None:
        self._engines = engines
        self._task = task
        self._key = key
        self._ledger = ledger
        self._contexts = contexts
        self._known = known

    async def probe(self, role: Role, candidates: int) -> Piece | None:
        """The next token with its best candidates; None where that failed, which is noted."""
        started, piece = time.perf_counter(), None
        self._ledger.usage.of(role).probes += 1
        try:
            ids = await self._contexts.ids(role, self._engines[role])
            piece = await self._one(role, ids, candidates)
        except EngineError as error:
            self._ledger.note(f"a probe failed: {error}")
        margin = piece.margin if piece is not None else None
        self._ledger.events.append(Probed(role, margin, time.perf_counter() - started))
        return piece

    async def read_ahead(self) -> None:
        """The small engine reads what there is, unless nothing is delegated now.

        Raises:
            EngineError: see `Engine.stream`.
        """
        if not blocked(self._task.gates, "delegate"):
            self._ledger.usage.small.prewarms += 1
            await self._one("small", self._contexts.known("small"), 0)

    async def _one(self, role: Role, ids: tuple[int, ...], candidates: int) -> Piece | None:
        usage = self._ledger.usage.of(role)
        meter = Meter(usage, expected=self._known[role])
        piece: Piece | None = None
        request = SegmentRequest(
            ids=ids,
            max_tokens=1,
            sampling=replace(self._task.sampling, temperature=0.0),
            session=self._key,
            top=candidates,
            text=self._contexts.text(role),
        )
        try:
            async with aclosing(self._engines[role].stream(request)) as stream:
                async for delta in stream:
                    meter.read(delta)
                    piece = delta.pieces[0] if delta.pieces and piece is None else piece
            self._known[role] = len(ids)
        finally:
            usage.discarded += piece is not None
            meter.stop()
        return piece


def prewarm_mode(task: Task, opening: Opening) -> PrewarmMode:
    """What is read ahead in this generation: what the task wants, as far as it can be.

    How far the reading came depends on time, which a `fresh` text must not. What the large model
    wrote can be read ahead where the ids mean the same: elsewhere it becomes ids when the small
    engine is on duty.
    """
    small = opening.infos.get("small")
    if small is None or task.fresh or "small" not in task.policy.roles:
        return "off"
    crosses = opening.shared and not small.text_only
    return task.prewarm if crosses or task.prewarm == "off" else "prompt"
