"""Hints save work and change nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import EngineUnreachableError, Generation, Thinking, _retry
from relaygen._hints import HintIds, go_on_unhinted
from relaygen._types import Delta, Role, Sampling, SegmentRequest
from relaygen.engines.scripted import Failure, ScriptedEngine, ScriptedTokenizer
from relaygen.policies import RelayPolicy
from relaygen.relay import Generating

from .support import CUES, PLAIN, THINKING, check_promises, task

ENCODE = ScriptedTokenizer().encode


def request(script: str, *, stops: str = "", **options: Any) -> SegmentRequest:
    options.setdefault("max_tokens", 100)
    return SegmentRequest(
        ids=(), sampling=Sampling(), session="s", stop_ids=ENCODE(stops), **options
    )


def deltas(engine: ScriptedEngine, asked: SegmentRequest) -> tuple[list[Delta], int]:
    stops = 0

    def stopped() -> None:
        nonlocal stops
        stops += 1

    async def collect() -> list[Delta]:
        return [delta async for delta in go_on_unhinted(engine.stream, asked, stopped)]

    return asyncio.run(collect()), stops


def text(found: list[Delta]) -> str:
    return b"".join(piece.data for delta in found for piece in delta.pieces).decode()


class Asked(ScriptedEngine):
    """Says what it was asked to tokenize; answers when it may, and fails when told so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.under_way = self.most = 0
        self.may = asyncio.Event()
        self.error: Exception | None = None

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        self.asked.append(text)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.may.wait()
            await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
            return await super().tokenize(text, special=special)
        finally:
            self.under_way -= 1


TEXTS = (" Thus", "two words", " So", " Thus")


def test_texts_of_one_token_become_ids_and_are_asked_once() -> None:
    engine = Asked()
    table = HintIds(engine)
    engine.may.set()

    async def both() -> list[tuple[int, ...]]:
        return [await table.ids(TEXTS), await table.ids(TEXTS), await table.ids(TEXTS[:2])]

    first, second, part = asyncio.run(both())
    assert first == second == tuple(sorted(ENCODE(" Thus") + ENCODE(" So")))
    assert part == ENCODE(" Thus")
    assert engine.asked == [" Thus", "two words", " So"]


def test_many_texts_are_asked_at_a_time_but_the_first_alone() -> None:
    engine = Asked()
    table = HintIds(engine)

    async def go() -> None:
        asking = asyncio.ensure_future(table.ids(f" w{n}" for n in range(40)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert engine.asked == [" w0"]
        engine.may.set()
        assert len(await asking) == 40

    asyncio.run(go())
    assert engine.most == 16


def test_who_wants_the_same_at_the_same_time_shares_the_answers() -> None:
    engine = Asked()
    table = HintIds(engine)

    async def go() -> list[tuple[int, ...]]:
        asking = [asyncio.ensure_future(table.ids(TEXTS)) for _ in range(5)]
        await asyncio.sleep(0)
        engine.may.set()
        return await asyncio.gather(*asking)

    assert len(set(asyncio.run(go()))) == 1
    assert len(engine.asked) == 3


def test_a_failure_is_everybodys_and_is_not_remembered() -> None:
    engine = Asked()
    table = HintIds(engine)
    engine.error = EngineUnreachableError("gone")

    async def go() -> list[Any]:
        asking = [asyncio.ensure_future(table.ids(TEXTS)) for _ in range(3)]
        await asyncio.sleep(0)
        engine.may.set()
        failed = await asyncio.gather(*asking, return_exceptions=True)
        assert len(engine.asked) == 1
        engine.error = None
        assert await table.ids(TEXTS)
        return failed

    assert all(isinstance(each, EngineUnreachableError) for each in asyncio.run(go()))


def test_who_waits_asks_itself_where_the_first_one_gives_up() -> None:
    engine = Asked()
    table = HintIds(engine)

    async def go() -> tuple[int, ...]:
        first, second = (asyncio.ensure_future(table.ids(TEXTS)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        engine.may.set()
        return await second

    assert len(asyncio.run(go())) == 2


def test_a_table_outlives_its_event_loop() -> None:
    engine = ScriptedEngine()
    table = HintIds(engine)
    assert asyncio.run(table.ids((" Thus",))) == ENCODE(" Thus")
    assert set(asyncio.run(table.ids((" Thus", " So")))) == {*ENCODE(" Thus"), *ENCODE(" So")}


def test_a_stop_without_a_hand_off_goes_on_without_hints() -> None:
    engine = ScriptedEngine("We add. Thus it is so. Thus done.")
    found, stops = deltas(engine, request("", stops=" Thus"))
    assert text(found) == "We add. Thus it is so. Thus done."
    assert [delta.end for delta in found if delta.end] == ["turn"]
    assert stops == 1
    assert [bool(each.stop_ids) for each in engine.requests] == [True, False]
    written = len(ENCODE("We add. Thus"))
    assert engine.requests[1].ids == ENCODE("We add. Thus")
    assert engine.requests[1].max_tokens == 100 - written


def test_a_stop_at_the_limit_asks_for_nothing_more() -> None:
    engine = ScriptedEngine("We add. Thus it is so.")
    limit = len(ENCODE("We add. Thus"))
    found, stops = deltas(engine, request("", stops=" Thus", max_tokens=limit))
    assert text(found) == "We add. Thus"
    assert found[-1].end == "length"
    assert (len(engine.requests), stops) == (1, 1)


def test_tokens_before_a_stop_count_for_the_least_length() -> None:
    engine = ScriptedEngine("We add. Thus it is so.")
    deltas(engine, request("", stops=" Thus", min_tokens=6))
    assert [each.min_tokens for each in engine.requests] == [6, 6 - len(ENCODE("We add. Thus"))]


def test_a_reader_who_hands_off_asks_for_nothing_more() -> None:
    engine = ScriptedEngine("We add. Thus it is so.")

    async def read() -> None:
        stream = go_on_unhinted(engine.stream, request("", stops=" Thus"), lambda: None)
        async for delta in stream:
            if delta.pieces[-1].data == b" Thus":
                break
        await stream.aclose()

    asyncio.run(read())
    assert len(engine.requests) == 1
    assert engine.aborted == 0  # it had stopped by itself


def generate(script: str, *, hints: bool, burst: int = 1) -> tuple[Generation, dict[Role, Any]]:
    engines: dict[Role, Any] = {
        role: ScriptedEngine(script, burst=burst) for role in ("large", "small")
    }
    thinking = Thinking() if "think>" in script else None
    policy = RelayPolicy.of(CUES)
    tables = {role: HintIds(engine) for role, engine in engines.items()} if hints else None

    async def all() -> Generation:
        generating = Generating(engines, task(policy, thinking=thinking), hints=tables)
        async for _ in generating.events():
            pass
        return generating.snapshot()

    generation = asyncio.run(all())
    check_promises(generation)
    return generation, engines


def shape(generation: Generation) -> list[tuple[str, str]]:
    return [(segment.role, segment.text) for segment in generation.segments]


@pytest.mark.parametrize("script", [PLAIN, THINKING])
@pytest.mark.parametrize("burst", [1, 4])
def test_results_are_the_same_with_and_without(script: str, burst: int) -> None:
    plain, _ = generate(script, hints=False, burst=burst)
    hinted, engines = generate(script, hints=True, burst=burst)
    assert shape(hinted) == shape(plain)
    assert hinted.text == script
    assert any(each.stop_ids for each in engines["large"].requests)
    assert hinted.usage.large.hint_stops == 0


def test_a_hinted_cue_is_where_the_large_model_stops() -> None:
    generation, _ = generate(PLAIN, hints=True, burst=8)
    assert generation.usage.large.discarded == 0  # without hints, a burst runs beyond the cue
    plain, _ = generate(PLAIN, hints=False, burst=8)
    assert plain.usage.large.discarded > 0
    assert generation.usage.large.hint_stops == 0


def test_a_cue_in_code_stops_the_engine_once_and_counts() -> None:
    script = "We write `a Thus b` here. Thus it ends. Done."
    generation, engines = generate(script, hints=True)
    plain, _ = generate(script, hints=False)
    assert shape(generation) == shape(plain)
    assert generation.usage.large.hint_stops == 1
    assert [bool(each.stop_ids) for each in engines["large"].requests][:2] == [True, False]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                " Thus",
                " So",
                " it",
                " is",
                ".",
                "\n",
                "\n\n",
                " 3.14",
                "!",
                " `",
                "$",
                " Now",
                " e.g.",
            ]
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 5),
)
def test_any_text_is_the_same_with_and_without(parts: list[str], burst: int) -> None:
    script = "We add." + "".join(parts)
    plain, _ = generate(script, hints=False, burst=burst)
    hinted, _ = generate(script, hints=True, burst=burst)
    assert shape(hinted) == shape(plain)


def test_the_rest_behind_a_stop_is_a_request_that_is_repeated_like_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_retry, "_FIRST_S", 0.0)
    script = "We add. Sober men go. Done."
    reset = EngineUnreachableError("reset by the test")
    engine = ScriptedEngine(script, failures=[Failure(reset, request=1)])
    policy = RelayPolicy.of(["So"])
    monkeypatch.setattr(RelayPolicy, "hints", (" men",))  # no cue: every stop is in vain
    described = task(policy, thinking=None, retries=1)
    engines: dict[Role, ScriptedEngine] = {"large": engine, "small": ScriptedEngine(script)}
    hints = {role: HintIds(each) for role, each in engines.items()}

    async def generate() -> Generation:
        generating = Generating(engines, described, hints=hints)
        async for _ in generating.events():
            pass
        return generating.snapshot()

    made = asyncio.run(generate())
    assert made.text == script
    assert (made.usage.large.hint_stops, made.usage.large.retries) == (1, 1)
