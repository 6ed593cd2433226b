"""Times, cache accounting and aborts, over a real socket."""

from __future__ import annotations

import asyncio
import itertools
import time
from itertools import pairwise
from typing import Any, cast

import pytest

from relaygen.mock import Failure, MockConfig, own_time
from relaygen.mock._clock import Waiter
from relaygen.mock._generation import Engine, Generation
from relaygen.mock._log import Entry
from relaygen.mock._parameters import Call

from .support import HEAD, Client, body, engine, until

BLOCK = 16


class Timetable:
    """Takes the part of a `Waiter`: nothing waits, due times are written down."""

    gone = False

    def __init__(self) -> None:
        self.due: list[float] = []

    async def until(self, due: float) -> bool:
        self.due.append(due)
        return True


def planned(
    tokens: int, failure: Failure | None = None, **config: Any
) -> tuple[list[float], list[int]]:
    """When each chunk of a request of time 0 is due, in tokens' times, and how long it is."""
    engine = Engine(MockConfig(token_ms=1000.0, prefill_ms=500.0, **config))
    prompt = engine.vocabulary.encode(HEAD, special=True)
    entry = Entry(0, "", "", "", 0, started=0.0)
    generation = Generation(engine, Call(prompt, False, tokens), entry, failure)
    timetable = Timetable()

    async def play() -> list[int]:
        steps = generation.steps(cast(Waiter, timetable))
        return [len(step.ids) async for step in steps]

    sizes = asyncio.run(play())
    assert sum(sizes) == tokens == entry.tokens
    assert entry.prefill_s == 0.5 * len(prompt)
    return [due - entry.prefill_s for due in timetable.due], sizes


def test_tokens_are_due_at_even_times() -> None:
    assert planned(20) == ([float(n + 1) for n in range(20)], [1] * 20)


@pytest.mark.parametrize("shape", [{"burst": 4}, {"regroup": 4}, {"burst": 2, "regroup": 2}])
def test_a_chunk_is_due_with_its_last_token(shape: dict[str, Any]) -> None:
    due, sizes = planned(60, **shape)
    assert due == [float(n) for n in itertools.accumulate(sizes)]
    assert set(sizes) == {1, 2, 3, 4}


def test_jitter_does_not_add_up() -> None:
    due, _ = planned(100, jitter=0.5)
    late = [time - count for count, time in enumerate(due, 1)]
    assert all(0 <= one <= 0.5 for one in late)
    assert len(set(late)) > 50
    assert due == sorted(due)
    assert due == planned(100, jitter=0.5)[0] != planned(100, jitter=0.5, seed=1)[0]


def test_slow_tokens_take_ten_times_as_long() -> None:
    due, _ = planned(6, Failure("slow", token=3))
    assert due == [1.0, 2.0, 3.0, 3.0, 13.0, 23.0, 33.0]  # the fourth is the change itself


def test_a_token_is_never_early_and_its_stamp_is_in_the_chunk() -> None:
    with engine(token_ms=3.0, prefill_ms=0.5, ttft_ms=4.0) as client:
        before = time.monotonic()
        reply = client.stream(HEAD, session="s", max_tokens=12)
        after = time.monotonic()
        (entry,) = client.log("s")
        prompt = len(client.ids(HEAD))
        assert entry["prefill_s"] == pytest.approx(0.004 + 0.0005 * prompt)
        assert entry["token_s"] == 0.003
        assert before <= entry["started"]
        assert entry["emitted"] == pytest.approx(reply.emitted, abs=1e-6)
        assert len(reply.emitted) == entry["tokens"] == 12
        assert all(one <= other for one, other in pairwise(entry["emitted"]))
        for count, stamp in enumerate(entry["emitted"], 1):
            assert stamp >= entry["started"] + entry["prefill_s"] + count * 0.003
        assert entry["emitted"][-1] <= entry["ended"] <= after


@pytest.mark.parametrize("shape", [{"burst": 4}, {"regroup": 4}, {"jitter": 0.5}])
def test_other_shapes_are_never_early_either(shape: dict[str, Any]) -> None:
    with engine(token_ms=1.0, **shape) as client:
        reply = client.stream(HEAD, max_tokens=30)
        started = client.log()[-1]["started"]
        assert len(reply.emitted) == 30
        count = 0
        for chunk in reply.chunks:
            count += len(chunk["emitted"])
            assert len(set(chunk["emitted"])) == 1
            assert chunk["emitted"][0] >= started + count * 0.001


def test_the_log() -> None:
    with engine() as client:
        reply = client.stream(client.ids(HEAD), session="a", max_tokens=5, temperature=0.5)
        client.stream(HEAD, session="b", max_tokens=2)
        client.complete(HEAD, max_tokens=1)
        first, second, third = client.log()
        assert [e["number"] for e in (first, second, third)] == [0, 1, 2]
        assert [e["session"] for e in (first, second, third)] == ["a", "b", ""]
        assert client.log("b") == [second]
        assert first["ids"] == reply.ids
        assert (first["start"], first["finish"], first["aborted"]) == (0, "length", False)
        assert first["request"]["temperature"] == 0.5
        assert "prompt" not in first["request"]
        assert first["headers"]["x-session-id"] == "a"
        assert first["received_bytes"] == int(first["headers"]["content-length"])
        assert client.http.delete("/mock/log").json() == {}
        assert client.log() == []
        client.complete(HEAD, max_tokens=1)
        assert client.log()[0]["number"] == 3


def test_own_time() -> None:
    with engine(token_ms=2.0, prefill_ms=0.25) as client:
        prompt = client.ids(HEAD)
        first = client.stream(prompt, max_tokens=7)
        client.stream(prompt + first.ids[:4], max_tokens=3)
        log = client.log()
        size = len(prompt)
        cached = size // BLOCK * BLOCK
        assert [e["cached_tokens"] for e in log] == [0, cached]
        assert [e["start"] for e in log] == [0, 4]
        prefill = (size + size + 4 - cached) * 0.00025
        assert own_time(log) == pytest.approx(prefill + 10 * 0.002)
        assert own_time(log, kept=6) == pytest.approx(prefill + 6 * 0.002)
        assert own_time([]) == 0


def test_cached_blocks_are_those_that_were_computed() -> None:
    with engine() as client:
        ids = client.ids(HEAD)
        before = 0  # tokens that the engine has computed: never the last one written
        for written in (3, 40, 1, 30, 20):
            reply = client.stream(ids, max_tokens=written)
            assert reply.usage is not None
            cached = reply.usage["prompt_tokens_details"]["cached_tokens"]
            assert cached == min(before, len(ids) - 1) // BLOCK * BLOCK
            ids += reply.ids
            before = len(ids) - 1
        assert client.get("/mock/cache")["blocks"] == before // BLOCK


def test_the_last_token_written_is_not_computed_yet() -> None:
    with engine() as client:
        ids = client.ids(HEAD)
        ids += client.stream(ids, max_tokens=BLOCK * 4 - len(ids)).ids
        assert len(ids) == BLOCK * 4
        more = client.get("/mock/trace")["ids"][len(ids) - len(client.ids(HEAD)) :][:2]
        client.stream(ids + more, max_tokens=1)
        assert client.log()[-1]["cached_tokens"] == BLOCK * 3
        client.stream(ids + more, max_tokens=1)
        assert client.log()[-1]["cached_tokens"] == BLOCK * 4


def test_conversations_drive_each_other_out() -> None:
    with engine(kv_tokens=64) as client:
        one, other = client.ids(f"1{'1' * 40}{HEAD}"), client.ids(f"2{'2' * 40}{HEAD}")
        for ids in (one, other):
            client.stream(ids, max_tokens=1)
        assert client.get("/mock/cache")["blocks"] == 4
        client.stream(one, max_tokens=1)
        log = client.log()
        assert all(e["prompt_tokens"] > 48 for e in log)
        assert log[-1]["cached_tokens"] < (len(one) - 1) // BLOCK * BLOCK
        assert client.get("/mock/cache")["evicted"] > 0
        client.http.delete("/mock/cache")
        client.stream(one, max_tokens=1)
        assert client.log()[-1]["cached_tokens"] == 0


def test_cached_tokens_may_be_hidden() -> None:
    with engine(show_cached=False) as client:
        reply = client.stream(HEAD)
        assert reply.usage is not None
        assert reply.usage["prompt_tokens_details"] is None


def leave(client: Client, chunks: int, **options: Any) -> None:
    """Close the connection after so many chunks."""
    sent = body(HEAD, stream=True, **options)
    with client.http.stream("POST", "/v1/completions", json=sent) as response:
        if chunks:
            for count, _ in enumerate(response.iter_raw(), 1):
                if count == chunks:
                    break


def test_a_client_that_leaves_stops_the_work() -> None:
    with engine(trace="long", token_ms=5.0) as client:
        leave(client, 3)
        entry = client.ended()
        assert entry["aborted"]
        assert entry["finish"] is None
        assert 3 <= entry["tokens"] < 2000
        assert "vllm:num_requests_running" in client.http.get("/metrics").text
        assert '"abort"' in client.http.get("/metrics").text


def test_it_stops_without_any_wait_too() -> None:
    with engine(trace="long") as client:
        leave(client, 1, ignore_eos=True, max_tokens=40_000)
        entry = client.ended()
        assert entry["aborted"]
        assert entry["tokens"] < 40_000


def test_leaving_in_the_prefill_keeps_what_was_read() -> None:
    with engine(prefill_ms=50.0) as client:
        prompt = len(client.ids(HEAD))
        leave(client, 0)
        entry = client.ended()
        assert entry["aborted"]
        assert entry["tokens"] == 0
        read = (entry["ended"] - entry["started"]) / 0.05
        assert client.get("/mock/cache")["blocks"] <= min(prompt, read) // BLOCK


def test_leaving_a_whole_reply() -> None:
    with engine(token_ms=10_000.0) as client:
        with pytest.raises(Exception, match="timed out"):
            client.http.post("/v1/completions", json=body(HEAD), timeout=0.2)
        assert client.ended()["aborted"]


def test_many_streams_at_once_stay_apart() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with engine(token_ms=1.0, regroup=3) as client, ThreadPoolExecutor(12) as pool:
        texts = list(
            pool.map(lambda n: client.stream(f"{n}{HEAD}", session=str(n)).text, range(24))
        )
        shown = client.get("/mock/trace")["text"]
        assert texts == [shown] * 24
        assert until(lambda: len(client.log())) == 24
