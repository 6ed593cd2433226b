"""One generation: tokens at their times."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from ._cache import Chain, PrefixCache
from ._clock import Waiter
from ._config import MockConfig
from ._failures import SLOWDOWN, Failure, FailurePlan
from ._log import Entry, Log
from ._parameters import Call
from ._player import PAD, OffTraceError, Player
from ._stops import Text
from ._trace import Trace, load_trace
from ._vocabulary import EOS, HIDDEN, Vocabulary

_OVER = ("error", "reset", "end")  # with these the engine ends, not the client


class Engine:
    """What all requests of one mock engine share.

    Raises:
        UsageError: there is no such trace.
    """

    def __init__(self, config: MockConfig) -> None:
        self.config = config
        trace = config.trace if isinstance(config.trace, Trace) else load_trace(config.trace)
        self.trace = trace.split() if config.split else trace
        self.vocabulary = Vocabulary(self.trace)
        self.player = Player(
            self.trace, self.vocabulary, config.match, plain=config.template == "plain"
        )
        self.cache = PrefixCache(config.kv_tokens)
        self.log = Log()
        self.failures = FailurePlan()
        for failure in config.failures:
            self.failures.add(failure)


@dataclass(slots=True)
class Step:
    """What one chunk brings.

    Attributes:
        ids, emitted: tokens, and when each is sent.
        text: what they complete; stop strings hold text back.
        finish, stop: the finish reason of the last chunk, and its stop reason.
        failure: something goes wrong here, behind the tokens.
    """

    ids: list[int]
    emitted: list[float]
    text: str = ""
    finish: str | None = None
    stop: int | str | None = None
    failure: Failure | None = None


class Generation:
    """Plays one request.

    Args:
        engine: the engine.
        call: what is asked.
        entry: the log's entry, which is filled in.
        failure: what shall befall it.

    Raises:
        OffTraceError: the ids sent are not the prompt and a beginning of the trace.
    """

    def __init__(self, engine: Engine, call: Call, entry: Entry, failure: Failure | None) -> None:
        self._engine, self._call, self._entry = engine, call, entry
        self._failure = failure
        entry.prompt_tokens = len(call.ids)
        entry.token_s = engine.config.token_ms / 1000
        try:
            self._place = engine.player.locate(call.ids, text=call.from_text)
        except OffTraceError:
            entry.failure = "off trace"
            raise
        entry.start = self._place.position - bool(self._place.rest)
        self._random = random.Random(f"{engine.config.seed}/{entry.number}")

    async def steps(self, waiter: Waiter) -> AsyncGenerator[Step, None]:
        """The chunks, each at its time; it just ends where the client goes away."""
        engine, entry, log = self._engine, self._entry, self._engine.log
        config = engine.config
        chain = Chain(self._call.ids)
        entry.cached_tokens = engine.cache.match(chain)
        uncached = entry.prompt_tokens - entry.cached_tokens
        entry.prefill_s = (config.ttft_ms + config.prefill_ms * uncached) / 1000
        log.running += 1
        log.prompt_tokens += entry.prompt_tokens
        try:
            async for step in self._timed(waiter):
                yield step
        finally:
            entry.ended = time.monotonic()
            chain.extend(entry.ids)
            engine.cache.store(chain, self._computed(entry.ended))
            entry.aborted = waiter.gone and entry.finish is None and entry.failure not in _OVER
            log.running -= 1
            log.generation_tokens += entry.tokens
            log.finished[entry.finish or "abort"] += 1

    def _computed(self, now: float) -> int:
        """Tokens in the cache at the end: the last one written never is, and a prompt may have
        been read in part only."""
        entry = self._entry
        if entry.tokens:
            return entry.prompt_tokens + entry.tokens - 1
        prefill = self._engine.config.prefill_ms / 1000
        read = (now - entry.started) / prefill if prefill else entry.prompt_tokens
        return min(entry.prompt_tokens, entry.cached_tokens + int(read))

    async def _timed(self, waiter: Waiter) -> AsyncGenerator[Step, None]:
        entry, config, random_ = self._entry, self._engine.config, self._random
        token_s, jitter = entry.token_s, config.jitter
        base = entry.started + entry.prefill_s  # due times are base + count * token_s
        for step in self._grouped():
            count = entry.tokens + len(step.ids)
            late = jitter * random_.random() if jitter else 0.0
            if not await waiter.until(base + (count + late) * token_s):
                return
            entry.tokens = count
            if step.failure is not None:
                entry.failure = step.failure.kind
                if step.failure.kind == "slow":  # from here on time runs slower
                    base += entry.tokens * token_s * (1 - SLOWDOWN)
                    token_s *= SLOWDOWN
                    continue
            now = time.monotonic()
            step.emitted = [now] * len(step.ids)
            entry.ids += step.ids
            entry.emitted += step.emitted
            entry.finish = step.finish
            yield step
            if step.failure is not None and step.failure.kind != "garbage":
                return

    def _grouped(self) -> Iterator[Step]:
        """Tokens by chunk, without times; a failure is a step of its own, or takes a token."""
        config, draw = self._engine.config, self._random.randint
        step = Step([], [])
        size = 0
        for step_of_one in self._single():
            if step_of_one.failure is not None:
                if step.ids:
                    yield step
                yield step_of_one
                step, size = Step([], []), 0
                continue
            if not size:
                bursts = draw(1, config.regroup) if config.regroup > 1 else 1
                size = sum(draw(1, config.burst) for _ in range(bursts))
            step.ids += step_of_one.ids
            step.text += step_of_one.text
            step.finish, step.stop = step_of_one.finish, step_of_one.stop
            if len(step.ids) >= size or step.finish:
                yield step
                step, size = Step([], []), 0

    def _single(self) -> Iterator[Step]:
        """One token at a time."""
        call, vocabulary, failure = self._call, self._engine.vocabulary, self._failure
        text = Text(call.stops, include=call.include_stop)
        text.prime(vocabulary.decode(call.ids[-4:]))
        following = self._engine.player.following(self._place)
        count = 0
        while True:
            if failure is not None and count == failure.token and failure.kind != "garbage":
                yield Step([], [], failure=failure)
            stoppable = count + 1 > call.min_tokens
            id = next(following, None)
            if id is None:
                id = EOS if stoppable and not call.ignore_eos else PAD
            count += 1
            finish: str | None = None
            stop: int | str | None = None
            if id == EOS:
                finish = "stop"
            elif stoppable and id in call.stop_ids:
                finish, stop = "stop", id
            if (finish is None or call.include_stop) and not (call.skip_special and id in HIDDEN):
                found = text.feed(vocabulary.data(id), stoppable=stoppable)
                if found is not None and finish is None:
                    finish, stop = "stop", found
            if finish is None and count >= call.max_tokens:
                finish = "length"
            step = Step([id], [], text.take(last=finish is not None), finish, stop)
            if failure is not None and failure.kind == "garbage" and count == failure.token + 1:
                step.failure = failure
            yield step
            if finish is not None:
                return
