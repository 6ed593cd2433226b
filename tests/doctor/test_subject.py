from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import pytest

from relaygen import EngineReplyError
from relaygen._types import Conversation, Delta, Message, Prompt, Sampling, SegmentRequest
from relaygen.doctor._report import Rollback
from relaygen.doctor._subject import Heard, Subject, heard, held_back
from relaygen.engines.scripted import Failure, ScriptedEngine

from .support import Caching, Clock, Timed

T = TypeVar("T")
ASKED = Conversation((Message("user", "How much?"),))


def on(engine: ScriptedEngine, use: Callable[[Subject], Awaitable[T]], *, tokens: int = 100) -> T:
    """Use a subject whose text has been sent twice."""

    async def run() -> T:
        subject = Subject(engine, await engine.info(), tokens=tokens)
        await subject.prefix()
        try:
            return await use(subject)
        finally:
            await subject.release()

    return asyncio.run(run())


def rollback(engine: ScriptedEngine) -> Rollback:
    return on(engine, lambda subject: subject.rollback())


def test_what_only_grows_is_found_again_and_what_was_dropped_costs_nothing() -> None:
    engine = Caching()
    found = rollback(engine)
    assert (found.cost, found.extended, found.dropped) == ("free", 1, 1)
    whole, dropped = engine.requests[-2:]
    assert dropped.ids[: len(whole.ids)] == whole.ids
    assert len(dropped.ids) == len(whole.ids) + 4  # half of eight tokens were dropped
    assert found.text_tokens == len(dropped.ids)


def test_an_engine_that_cannot_forget_computes_everything_again() -> None:
    found = rollback(Caching(rigid=True))
    assert found.cost == "costly"
    assert found.dropped == found.text_tokens


@pytest.mark.parametrize(
    "engine",
    [Caching(shown=False), ScriptedEngine(free=lambda text: " yes"), Caching(text_only=True)],
    ids=["hidden", "no cache", "text"],
)
def test_without_counts_or_cache_roll_back_is_unknown(engine: ScriptedEngine) -> None:
    assert rollback(engine).cost == "unknown"


def test_a_turn_that_ends_at_once_leaves_nothing_to_drop() -> None:
    found = rollback(Caching(free=lambda text: ""))
    assert found.cost == "unknown"


class Chats(Caching):
    """Refuses texts that are no chat; with `ids` those in requests, too."""

    def __init__(self, *, ids: bool = False) -> None:
        super().__init__()
        self._refuses_ids = ids

    async def render(self, conversation: Conversation) -> Prompt:
        if conversation.raw is not None and not self._refuses_ids:
            raise EngineReplyError("chats only", refused=True)
        return await super().render(conversation)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        chat = self._tokenizer.encode("<user>")
        if self._refuses_ids and request.ids[: len(chat)] != chat:
            raise EngineReplyError("chats only", refused=True)
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta


@pytest.mark.parametrize("ids", [True, False])
def test_who_refuses_raw_texts_is_examined_by_a_chat(ids: bool) -> None:
    engine = Chats(ids=ids)

    async def everything(subject: Subject) -> tuple[bool, Rollback]:
        await subject.speed(2, 1.0)
        return subject.chats, await subject.rollback()

    chats, found = on(engine, everything)
    assert chats
    assert found.cost == "free"
    text = b"".join(map(engine._tokenizer.data, engine.requests[0].ids)).decode()
    assert text.startswith("<user>")
    assert text.endswith("<assistant>")
    assert len(engine.requests[0].ids) >= 100


def test_other_refusals_are_the_callers() -> None:
    engine = Caching(failures=[Failure(EngineReplyError("answered 500"))])
    with pytest.raises(EngineReplyError, match="500"):
        on(engine, lambda subject: subject.rollback())


def test_the_text_begins_as_nothing_before_and_is_sent_twice() -> None:
    engine = Caching()

    async def begin() -> tuple[Heard, Heard]:
        subject = Subject(engine, await engine.info(), tokens=100)
        try:
            return await subject.prefix()
        finally:
            await subject.release()

    for _ in "ab":
        first, second = asyncio.run(begin())
        assert (first.cached, second.cached) == (0, 99)
    mine, again, theirs, _ = engine.requests
    assert mine.ids == again.ids
    assert len(mine.ids) == 100
    assert mine.ids[0] != theirs.ids[0]
    assert engine.released == [mine.session, theirs.session]


def test_a_text_fits_the_context() -> None:
    engine = Caching(context=64)

    async def everything(subject: Subject) -> None:
        await subject.speed(3, 1.0)
        await subject.rollback()

    on(engine, everything, tokens=600)  # a longer text would be refused
    assert max(len(request.ids) + request.max_tokens for request in engine.requests) <= 64


def test_reading_is_what_a_grown_text_takes_longer(clock: Clock) -> None:
    engine = Timed(clock, read_ms=2.0, token_ms=10.0, ttft_ms=7.0)
    speed = on(engine, lambda subject: subject.speed(3, 10.0))
    assert speed.read_ms == pytest.approx(2.0)
    assert speed.request_ms == pytest.approx(7.0 + 2.0)  # the last token is always read again
    assert speed.text_tokens == 100 + 3 * 48
    assert not speed.rereads


class Forgetful(Timed):
    """Has no prefix cache."""

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        self._held = ()
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta


@pytest.mark.parametrize("shown", [True, False])
def test_reading_without_a_prefix_cache_is_that_of_the_whole_text(
    clock: Clock, shown: bool
) -> None:
    engine = Forgetful(clock, read_ms=2.0, token_ms=10.0, ttft_ms=7.0, shown=shown)
    speed = on(engine, lambda subject: subject.speed(3, 10.0))
    assert speed.rereads
    assert speed.read_ms == pytest.approx(2.0)
    assert speed.request_ms == pytest.approx(7.0)


def test_reading_of_an_engine_that_hides_its_counts(clock: Clock) -> None:
    engine = Timed(clock, read_ms=2.0, shown=False)
    speed = on(engine, lambda subject: subject.speed(1, 0.0))
    assert speed.read_ms == pytest.approx(2.0 * 47 / 48)  # 48 tokens grew, one is read anyway


class Disturbed(Timed):
    """Another's work takes its time beside the second request."""

    def _computing(self, tokens: int) -> None:
        super()._computing(tokens)
        if len(self.requests) == 1:
            self._clock.now += 0.3


def test_one_request_that_was_disturbed_is_no_missing_cache(clock: Clock) -> None:
    engine = Disturbed(clock, token_ms=5.0, read_ms=0.5, shown=False)
    found = on(engine, lambda subject: subject.speed(1, 5.0))
    assert not found.rereads
    assert [len(request.ids) for request in engine.requests[:4]] == [100, 100, 100, 148]


def test_who_has_no_cache_and_hides_it_is_asked_four_times_and_no_more(clock: Clock) -> None:
    engine = Forgetful(clock, token_ms=5.0, read_ms=0.5, shown=False)
    assert on(engine, lambda subject: subject.speed(1, 5.0)).rereads
    sizes = [len(request.ids) for request in engine.requests]
    assert sizes == [100] * 4 + [148, 48]


def test_the_median_counts(clock: Clock) -> None:
    class Hiccup(Timed):
        async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
            if len(self.requests) == 4:  # the second round's longer text
                self._clock.now += 9.0
            async with aclosing(super().stream(request)) as deltas:
                async for delta in deltas:
                    yield delta

    speed = on(Hiccup(clock, read_ms=2.0), lambda subject: subject.speed(3, 0.0))
    assert speed.read_ms == pytest.approx(2.0)


def test_no_cost_is_below_nothing(clock: Clock) -> None:
    speed = on(Timed(clock), lambda subject: subject.speed(1, 5.0))
    assert (speed.read_ms, speed.request_ms) == (0.0, 0.0)


def listened(engine: ScriptedEngine, tokens: int = 8) -> Heard:
    async def run() -> Heard:
        prompt = await engine.render(ASKED)
        return await heard(engine, SegmentRequest(prompt.ids, tokens, Sampling(), "s"))

    return asyncio.run(run())


def test_the_time_between_chunks_is_decoding(clock: Clock) -> None:
    told = listened(Timed(clock, script="a b c d e f", free=None, token_ms=3.0, ttft_ms=30.0))
    assert told.decode_ms == pytest.approx(3.0)  # the wait for the first token is no part of it
    assert told.first_s == pytest.approx(0.033)
    assert told.whole_s == pytest.approx(0.048)
    assert told.text == "a b c d e f"
    assert len(told.ids) == 6


def test_tokens_behind_the_first_chunk_count(clock: Clock) -> None:
    told = listened(Timed(clock, token_ms=3.0, ttft_ms=30.0, burst=4))
    assert told.decode_ms == pytest.approx(3.0)


def test_tokens_that_come_at_once_share_the_wait(clock: Clock) -> None:
    told = listened(Timed(clock, token_ms=3.0, ttft_ms=8.0, burst=8))
    assert told.decode_ms == pytest.approx(4.0)


def told(first_s: float, whole_s: float, tokens: int) -> Heard:
    return Heard(first_s, whole_s, None, tokens, (), "", None, None, False)


@pytest.mark.parametrize(
    ("many", "held"),
    [
        (told(0.30, 0.30, 24), 10.0),  # all of it when it is over
        (told(0.07, 0.30, 24), None),  # as it is written
        (told(0.24, 0.30, 24), None),  # late, and then as it is written
        (told(0.08, 0.08, 24), None),  # too fast to tell
        (told(0.30, 0.30, 1), None),  # one token only
    ],
)
def test_a_stream_that_is_held_back(many: Heard, held: float | None) -> None:
    found = held_back(told(0.07, 0.07, 1), [many, many, told(0.07, 0.5, 24)])
    assert found == (None if held is None else pytest.approx(held))


def test_one_token_tells_no_speed() -> None:
    assert listened(Caching(), tokens=1).decode_ms is None
    assert listened(ScriptedEngine(""), tokens=1).decode_ms is None


def test_a_generation_is_repeated_and_forgotten() -> None:
    engine = Caching()

    async def twice(subject: Subject) -> list[Heard]:
        return await subject.decoding(await engine.render(ASKED), 5, 2)

    told = on(engine, twice)
    assert [len(each.ids) for each in told] == [5, 5]
    session = engine.requests[-1].session
    assert session in engine.released
    assert engine.requests[-1].min_tokens == 5


def test_margins_are_not_asked_of_who_has_none() -> None:
    engine = Caching(text_only=True)
    assert on(engine, lambda subject: subject.margins((1, 2))) is None
    assert all(request.top == 0 for request in engine.requests)


def test_margins_of_an_engine_that_does_not_scale_them() -> None:
    engine = Caching()
    assert on(engine, lambda subject: subject.margins((1, 2))) is True
    assert engine.requests[-1].session in engine.released
