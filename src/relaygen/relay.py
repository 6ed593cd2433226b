"""The loop: two engines write one text, a policy says who.

`Generating` is one generation. It streams from the engine on duty, feeds the policy one token at a
time, and at a hand-off keeps through token k, aborts, counts the rest as discarded and goes on with
the other engine. What is kept stays as it is, so both engines' prefix caches hold.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from ._contexts import Contexts
from ._desk import Ask, Desk, Said
from ._errors import EngineError, UsageError
from ._events import Done, Event
from ._guarded import Guarded
from ._hints import HintIds, go_on_unhinted
from ._inbox import Inbox
from ._ledger import Ledger
from ._meter import Meter
from ._opening import Opening, open_generation
from ._peek import Peek, prewarm_mode
from ._prewarm import Prewarm
from ._results import Generation
from ._retry import pause_before, retried
from ._seeds import segment_seed
from ._sessions import check_policy
from ._task import Task
from ._turns import Turn
from ._types import Delta, Piece, Role, Sampling, SegmentRequest
from .engines.base import Engine
from .policies.base import streamed_candidates, suppressed

_NEVER = -100.0
"""The bias of a token that is not to be written: the lowest that OpenAI's interface has."""


class Generating:
    """One generation over two engines.

    Args:
        engines: the engines of the roles that the task's policy uses.
        task: what to do.
        key: the conversation's name, which the engines are told; None for a random one.
        hints: single-token ids of each engine; without them, no hints are given.
        compare_templates: see `open_generation`.

    Raises:
        UsageError: the policy is none.
    """

    def __init__(
        self,
        engines: Mapping[Role, Engine],
        task: Task,
        *,
        key: str | None = None,
        hints: Mapping[Role, HintIds] | None = None,
        compare_templates: bool = True,
    ) -> None:
        check_policy(task.policy)
        self._task = task
        self._hints = hints or {}
        self._tables = dict(self._hints)  # for a policy's texts, with hints or without
        self._compare_templates = compare_templates
        self._key = key or uuid.uuid4().hex
        self._started = time.perf_counter()
        self._ledger = Ledger(stops=task.stop, elapsed=self._elapsed)
        self._engines: Mapping[Role, Engine] = {
            role: Guarded(engine, role, self._ledger.note) for role, engine in engines.items()
        }
        self._requests = 0
        self._known: Counter[Role] = Counter()  # ids that each engine has computed or generated

    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    def snapshot(self) -> Generation:
        """What has been written so far; at the end, the result."""
        return self._ledger.generation()

    async def whole(self) -> Generation:
        """Run to the end, for whom the result is enough.

        Raises:
            EngineError: as `events`.
        """
        async with aclosing(self.events()) as events:
            async for _ in events:
                pass
        return self.snapshot()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run; the last event is `Done`.

        Raises:
            EngineError: an engine failed that nobody could stand in for.
        """
        try:
            await self._open()
            try:
                async with aclosing(self._prewarm):  # its cost is part of the result
                    while self._ledger.finished is None:
                        async with aclosing(self._segment()) as steps:
                            async for _ in steps:
                                for event in self._ledger.take_events():
                                    yield event
            except EngineError:
                for event in self._ledger.take_events():
                    yield event
                raise
            for event in self._ledger.take_events():
                yield event
            yield Done(self.snapshot())
        except BaseException:  # says more than an engine that does not let go
            await self._release()
            raise
        failed = await self._release()
        if failed is not None:
            raise failed

    async def _release(self) -> Exception | None:
        """Tell every engine that the conversation is over; what the first one raises at it."""
        failed: Exception | None = None
        for engine in self._engines.values():
            try:
                await engine.release(self._key)
            except Exception as error:
                failed = failed or error
        return failed

    async def _open(self) -> None:
        opening = await open_generation(
            self._engines, self._task, compare_templates=self._compare_templates
        )
        text_only = [role for role, info in opening.infos.items() if info.text_only]
        self._contexts = Contexts(opening.prompts, shared=opening.shared, text_only=text_only)
        self._opening: Opening = opening
        seed = secrets.randbits(31) if self._task.seed is None else self._task.seed
        self._desk = Desk(self._task, opening, self._ledger, self._contexts, seed)
        self._peek = Peek(
            self._engines, self._task, self._key, self._ledger, self._contexts, self._known
        )
        mode = prewarm_mode(self._task, opening)
        self._prewarm = Prewarm(mode, self._peek.read_ahead, self._ledger.note)

    async def _segment(self) -> AsyncGenerator[None, None]:
        """One engine request, from its start to the decision who goes on."""
        desk, turn = self._desk, self._desk.turns.now
        usage = self._ledger.usage.of(turn.role)
        meter = Meter(usage, expected=self._known[turn.role])
        desk.begin(meter)
        following: Turn | None = None
        try:
            if turn.role == "small":
                await self._prewarm.aclose()
            request = await self._request(turn)
            inbox = Inbox(self._stream(turn.role, request))
            try:
                async with aclosing(inbox):
                    while following is None:
                        if turn.role == "large" and not (self._prewarm.over or desk.turns.solo):
                            self._prewarm.look(self._contexts.size("small"), self._known["small"])
                        delta = await inbox.get()
                        meter.read(delta)
                        following = await self._take(delta, inbox)
                        if following is None:
                            yield
                    decided = time.perf_counter()  # leaving this block aborts the stream
            finally:
                desk.surplus = meter.pieces - desk.received + inbox.waiting
            self._known[turn.role] = len(request.ids) + max(0, desk.written - 1)
        except EngineError as error:
            error.role = error.role or turn.role
            following, decided = desk.failed(error), time.perf_counter()
        except BaseException:  # cancelled, or closed by the reader
            desk.abandon()
            raise
        desk.end(following, decided)
        if desk.turns.now.closing:
            await self._close_thinking(desk.turns.now.why)
        yield

    async def _request(self, turn: Turn) -> SegmentRequest:
        role, desk, retries = turn.role, self._desk, self._retries(turn.role)
        ids = await retried(lambda: self._contexts.ids(role, self._engines[role]), retries)
        number, self._requests = self._requests, self._requests + 1
        hinted = desk.hints if role in self._hints and self._opening.infos[role].stop_ids else ()
        return SegmentRequest(
            ids=ids,
            max_tokens=desk.turns.allowance,
            sampling=await retried(lambda: self._sampling(role), retries),
            session=self._key,
            seed=segment_seed(self._task.seed, self._task.choice, number),
            top=streamed_candidates(self._task.policy, role, turn.kind),
            text=self._contexts.text(role),
            min_tokens=desk.turns.least,
            stop_ids=await retried(lambda: self._hints[role].ids(hinted), retries)
            if hinted
            else (),
            constraint=desk.constraint,
            fresh=self._task.fresh and role not in self._known,
        )

    async def _sampling(self, role: Role) -> Sampling:
        """How tokens are drawn, the policy's suppressed ones never."""
        sampling, texts = self._task.sampling, suppressed(self._task.policy)
        if not texts:
            return sampling
        if self._opening.infos[role].text_only:
            raise UsageError(
                f"policy {self._task.policy.name!r} needs an engine that takes token ids",
                hint="use llama-server, vLLM or an embedded model, or choose another policy",
            )
        table = self._tables.setdefault(role, HintIds(self._engines[role]))
        bias = dict.fromkeys(await table.ids(texts), _NEVER)
        return replace(sampling, logit_bias={**bias, **sampling.logit_bias})

    def _retries(self, role: Role) -> int:
        leading = role == "large" or len(self._task.policy.roles) == 1
        return self._task.retries if leading else 0

    def _stream(self, role: Role, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        # A generator more costs every token, so one that only repeats is there where it may.
        stream = partial(self._tried, role) if self._retries(role) else self._engines[role].stream
        if not request.stop_ids:
            return stream(request)
        return go_on_unhinted(stream, request, lambda: self._hint_failed(role))

    async def _tried(self, role: Role, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """The deltas of one request; it is repeated where it failed before the first one."""
        usage, retries = self._ledger.usage.of(role), self._retries(role)
        for retry in range(retries + 1):
            came = False
            try:
                async with aclosing(self._engines[role].stream(request)) as deltas:
                    async for delta in deltas:
                        came = True
                        yield delta
                return
            except EngineError as error:
                if came or retry == retries or not error.retryable:
                    raise
            usage.retries += 1
            await asyncio.sleep(pause_before(retry))

    def _hint_failed(self, role: Role) -> None:
        usage = self._ledger.usage.of(role)
        usage.hint_stops += 1
        usage.requests += 1

    async def _take(self, delta: Delta, inbox: Inbox) -> Turn | None:
        """One delta, token by token, up to a hand-off."""
        for piece in delta.pieces:
            said = await self._settle(self._desk.receive(piece), inbox)
            if said is not None:
                return said
        if delta.end is None:
            return None
        said = await self._settle(self._desk.ended(), inbox)
        return said if said is not None else self._desk.close(delta.end)

    async def _settle(self, said: Said, inbox: Inbox) -> Turn | None:
        """Probe as often as asked."""
        while isinstance(said, Ask):
            said = self._desk.answered(await self._probe(said, inbox))
        return said

    async def _probe(self, ask: Ask, inbox: Inbox) -> Piece | None:
        """One token with its best candidates; the stream is read on meanwhile."""
        if ask.role == "small":
            await self._prewarm.aclose()
        task = asyncio.ensure_future(self._peek.probe(ask.role, ask.candidates))
        try:
            await inbox.until(task)
        finally:
            task.cancel()
            await asyncio.wait({task})  # its stream is closed before anybody goes on
        return task.result()

    async def _close_thinking(self, why: str) -> None:
        """Insert the end of thinking, by the ids of the pair's shared or first tokenizer."""
        thinking, ids = self._task.thinking, self._opening.insertion
        if thinking is None:
            return
        self._desk.insert("end_of_thinking", thinking.insertion, ids, why)
