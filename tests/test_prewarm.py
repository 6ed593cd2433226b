"""Reading ahead: when, how much, and that it changes nothing of what is written."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import EngineError, EngineUnreachableError, RelayPolicy, UsageError
from relaygen._gate import Breaker
from relaygen._prewarm import EVERY, LEAST, Prewarm, PrewarmMode
from relaygen._types import Delta, SegmentRequest
from relaygen.engines.scripted import Failure, ScriptedEngine, ScriptedTokenizer
from relaygen.policies import Policy
from relaygen.policies.base import STAY, HandOff, Probe
from relaygen.relay import Generating

from .support import CUES, PLAIN, Run, check_promises, run, task, words

RELAY = RelayPolicy.of(CUES)
LONG = "word " * LEAST
MODES: tuple[PrewarmMode, ...] = ("off", "prompt", "continuous")
TALK = " ".join(f"We add {n}." for n in range(EVERY)) + " Thus the sum is 4. We check."
"""Enough before the first cue to be read more than once."""


# When.


class Engine:
    """Counts how often it is asked to read."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = self.ended = 0
        self.free = asyncio.Event()
        self.notes: list[str] = []
        self._error = error

    async def read(self) -> None:
        self.begun += 1
        if self._error is not None:
            raise self._error
        try:
            await self.free.wait()
        finally:
            self.ended += 1


def looked(mode: PrewarmMode, *looks: tuple[int, int], busy: bool = False) -> int:
    """How often the engine is asked to read, looked at again and again."""

    async def go() -> int:
        engine = Engine()
        if not busy:
            engine.free.set()
        prewarm = Prewarm(mode, engine.read, engine.notes.append)
        for there, known in looks:
            prewarm.look(there, known)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await prewarm.aclose()
        assert engine.begun == engine.ended
        return engine.begun

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("mode", "reads"), [("off", 0), ("prompt", 1), ("continuous", 2)], ids=MODES
)
def test_each_mode_reads_what_it_says(mode: PrewarmMode, reads: int) -> None:
    assert looked(mode, (LEAST, 0), (LEAST + EVERY, LEAST), (LEAST + EVERY, LEAST + EVERY)) == reads


@pytest.mark.parametrize("mode", ["prompt", "continuous"])
def test_a_short_prompt_is_not_read(mode: PrewarmMode) -> None:
    assert looked(mode, (LEAST - 1, 0)) == 0
    assert looked(mode, (LEAST, 0)) == 1


def test_a_prompt_that_was_short_at_the_start_stays_so() -> None:
    assert looked("prompt", (LEAST - 1, 0), (LEAST, 0)) == 0
    assert looked("continuous", (LEAST - 1, 0), (LEAST, 0)) == 1


def test_a_few_new_tokens_are_not_read() -> None:
    assert looked("continuous", (500 + EVERY - 1, 500)) == 0
    assert looked("continuous", (500 + EVERY, 500)) == 1


def test_one_request_is_under_way_at_most() -> None:
    assert looked("continuous", (LEAST, 0), (2 * LEAST, 0), (3 * LEAST, 0), busy=True) == 1


def test_a_failure_is_said_once_and_ends_it() -> None:
    async def go() -> Engine:
        engine = Engine(ValueError("broken"))
        prewarm = Prewarm("continuous", engine.read, engine.notes.append)
        for _ in range(3):
            prewarm.look(LEAST, 0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await prewarm.aclose()
        return engine

    engine = asyncio.run(go())
    assert engine.begun == 1
    assert engine.notes == ["the small model could not read ahead: broken"]


# In the loop.


def relayed(
    mode: PrewarmMode,
    script: str = PLAIN,
    policy: Policy = RELAY,
    *,
    small: ScriptedEngine | None = None,
    **options: Any,
) -> Run:
    options.setdefault("question", LONG)
    return run(policy, script, small=small or ScriptedEngine(script), prewarm=mode, **options)


def ahead(result: Run) -> list[SegmentRequest]:
    """What the small engine was asked to read; its segments have seeds."""
    return [request for request in result.small.requests if request.seed is None]


def test_the_prompt_is_read_while_the_large_model_writes() -> None:
    result = relayed("prompt")
    (asked,) = ahead(result)
    assert asked.ids == ScriptedTokenizer().encode(f"<user>{LONG}<assistant>")
    assert asked.max_tokens == 1
    assert asked.session == result.small.requests[1].session
    assert result.small.requests[0] is asked
    usage, without = result.generation.usage.small, relayed("off").generation.usage.small
    assert (usage.prewarms, without.prewarms, usage.probes) == (1, 0, 0)
    assert usage.discarded == without.discarded + 1
    assert usage.requests == len(result.small.requests)
    assert result.generation.text == PLAIN


def test_continuous_reads_what_is_written_too() -> None:
    result = relayed("continuous", TALK)
    sizes = [len(request.ids) for request in ahead(result)]
    assert len(sizes) > 2
    assert all(after - before >= EVERY for before, after in itertools.pairwise(sizes))
    text = words(ahead(result)[-1].ids)
    assert f"<user>{LONG}<assistant>{TALK}".startswith(text)
    assert result.generation.usage.small.prewarms == len(sizes)


@pytest.mark.parametrize(
    "options",
    [{"question": "short"}, {"fresh": True}, {"gates": "blocked"}],
    ids=["short prompt", "fresh", "delegation is paused"],
)
def test_what_reads_nothing_ahead(options: dict[str, Any]) -> None:
    if "gates" in options:
        breaker = Breaker(failures=1, cooldown=1000.0)
        breaker.failed()
        options = {"gates": (breaker,)}
    result = relayed("prompt", **options)
    assert not ahead(result)
    assert result.generation.usage.small.prewarms == 0


def test_a_hand_off_ends_what_is_under_way() -> None:
    small = Stuck(PLAIN)
    result = relayed("prompt", small=small)
    assert small.ended == 1
    assert result.generation.text == PLAIN
    assert not result.generation.notes


class Stuck(ScriptedEngine):
    """Never comes to the end of reading ahead, which must be over before anything else is asked."""

    def __init__(self, script: str) -> None:
        super().__init__(script)
        self.reached = asyncio.Event()
        self.ended = 0

    async def stream(self, request: SegmentRequest) -> Any:
        if request.seed is None and not request.top:
            self.requests.append(request)
            self.reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1
        assert self.ended == 1
        async for delta in super().stream(request):
            yield delta


class Probing(RelayPolicy):
    """Asks the small model once, about the third token."""

    def start(self, start: Any) -> Any:
        return ProbingSession()


class ProbingSession:
    def begin(self, *_: object) -> None:
        self._asked = False

    def feed(self, token: Any) -> Any:
        return Probe("small") if token.index == 3 else STAY

    def probed(self, piece: object) -> Any:
        return STAY if piece is not None else HandOff(0, "lead", "no answer")

    def answer(self, on_duty: Any) -> Any:
        return on_duty


def test_a_probe_ends_it_too() -> None:
    result = relayed("prompt", policy=Probing(RELAY.cues), small=Stuck(PLAIN))
    assert result.generation.usage.small.probes == 1
    assert result.generation.text == PLAIN


@pytest.mark.parametrize("error", [EngineUnreachableError("gone"), None], ids=["error", "cut off"])
def test_a_failure_fails_nothing(error: EngineError | None) -> None:
    small = ScriptedEngine(PLAIN, failures=[Failure(error, request=0)])
    result = relayed("prompt", small=small)
    assert result.generation.text == PLAIN
    assert result.generation.usage.fallbacks == 0
    assert result.generation.usage.small_tokens > 0
    assert bool(result.generation.notes) == (error is not None)


def test_another_vocabulary_is_sent_its_own_prompt_alone() -> None:
    """What is written is tokenized when its receiver is on duty, or it might become other ids."""
    result = relayed("continuous", TALK, small=ScriptedEngine(TALK, vocabulary="another"))
    assert len(ahead(result)) == 1
    assert result.generation.text == TALK


def test_an_engine_that_hides_ids_is_sent_text() -> None:
    result = relayed("continuous", TALK, small=ScriptedEngine(TALK, text_only=True))
    (asked,) = ahead(result)
    assert asked.text is not None
    assert asked.text.startswith(f"<user>{LONG}<assistant>")


def test_it_is_over_when_nobody_reads_on() -> None:
    async def go() -> Stuck:
        small = Stuck(PLAIN)
        engines: Any = {"large": ScriptedEngine(PLAIN), "small": small}
        asked = task(RELAY, thinking=None, question=LONG, prewarm="prompt")
        events = Generating(engines, asked).events()
        await anext(events)
        await asyncio.sleep(0)
        await events.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return small

    small = asyncio.run(go())
    assert small.ended == 1
    assert len(small.released) == 1


def test_it_is_over_when_the_generation_is_cancelled() -> None:
    class Endless(ScriptedEngine):
        async def stream(self, request: SegmentRequest) -> Any:
            yield Delta()
            await asyncio.Event().wait()

    async def go() -> Stuck:
        small = Stuck(PLAIN)
        engines: Any = {"large": Endless(PLAIN), "small": small}
        asked = task(RELAY, thinking=None, question=LONG, prewarm="prompt")

        async def read() -> None:
            async for _ in Generating(engines, asked).events():
                pass

        reading = asyncio.ensure_future(read())
        await small.reached.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return small

    assert asyncio.run(go()).ended == 1


SENTENCES = st.lists(
    st.sampled_from(["We add 3.14", "Thus x = 2", "So", "naïve 龘🦄", "Therefore it is"]),
    min_size=1,
    max_size=80,
)


@settings(max_examples=40, deadline=None)
@given(parts=SENTENCES, burst=st.integers(1, 5), other=st.booleans())
def test_every_mode_writes_the_same(parts: list[str], burst: int, other: bool) -> None:
    script = ". ".join(parts) + "."

    def played(mode: PrewarmMode) -> Any:
        small = ScriptedEngine(
            free=lambda text: script[len(text) :],
            burst=burst,
            vocabulary="another" if other else "scripted",
        )
        large = ScriptedEngine(free=lambda text: script[len(text) :])
        result = relayed(mode, script, large=large, small=small)
        check_promises(result.generation)
        return result.roles(), result.generation.ids, result.generation.notes

    first, *others = map(played, MODES)
    assert all(other == first for other in others)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="one of off, prompt, continuous, not 'always'"):
        task(RELAY, thinking=None, prewarm="always")
