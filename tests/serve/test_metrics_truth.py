"""Metrics against the truth: what a pair of mock engines wrote down of the same requests."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import httpx
import pytest

from relaygen import Relay
from relaygen.engines.scripted import ScriptedEngine
from relaygen.mock import MockConfig, serving
from relaygen.serve._app import make_app
from relaygen.serve._logs import Log
from relaygen.serve._settings import Settings

from .metering import Page, read
from .support import CHAT, TAGS, Pair, running, until

ROLES = ("large", "small")
ASKED = [{"role": "user", "content": "How much?"}]
Entry = dict[str, Any]
_ON_ITS_WAY_S = 0.2


@dataclass
class Told:
    """What a client learned of one request."""

    status: int = 0
    models: list[tuple[str, str]] = field(default_factory=list)  # and stages, of the shown tokens
    handoffs: list[dict[str, Any]] = field(default_factory=list)
    relay: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass
class Bench:
    """A served pair of mock engines."""

    url: str
    served: Pair
    engines: dict[str, str]
    http: httpx.Client

    def page(self) -> Page:
        """What Prometheus is told, over HTTP."""
        return read(self.http.get(f"{self.url}/metrics").text)

    def idle(self) -> Page:
        """The same once nothing is under way, with an engine neither."""
        until(lambda: not self.served.service.admission.running)
        for role in ROLES:
            until(lambda role=role: all(e["ended"] is not None for e in self.log(role)))  # type: ignore[misc]
        found = self.page()
        assert found.value("requests_running") == found.value("requests_waiting") == 0
        return found

    def log(self, role: str) -> list[Entry]:
        """The generations that an engine was asked for."""
        entries: list[Entry] = self.http.get(f"{self.engines[role]}/mock/log").json()
        return entries

    def fail(self, role: str, kind: str, **when: Any) -> None:
        sent = {"kind": kind, **when}
        self.http.post(f"{self.engines[role]}/mock/failures", json=sent).raise_for_status()

    async def _with(self, use: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
        options: dict[str, Any] = {"timeout": 60, "trust_env": False, "verify": False}
        async with httpx.AsyncClient(base_url=self.url, **options) as client:
            return await use(client)

    def ask(self, *bodies: dict[str, Any]) -> list[Told]:
        """All at once."""

        async def all_of(client: httpx.AsyncClient) -> list[Told]:
            return list(await asyncio.gather(*(chat(client, body) for body in bodies)))

        found: list[Told] = asyncio.run(self._with(all_of))
        return found

    def leave(self, body: dict[str, Any], behind: Callable[[Told], bool]) -> Told:
        """Hang up as soon as what was told says so."""

        async def one(client: httpx.AsyncClient) -> Told:
            return await chat(client, body, behind)

        found: Told = asyncio.run(self._with(one))
        return found


async def chat(
    client: httpx.AsyncClient,
    body: dict[str, Any],
    enough: Callable[[Told], bool] = lambda told: False,
) -> Told:
    told = Told()
    sent = {"messages": ASKED, "temperature": 0, **body}
    if not sent.get("stream"):
        reply = await client.post(CHAT, json=sent)
        told.status, said = reply.status_code, reply.json()
        told.relay, told.usage = said.get("relay", {}), said.get("usage", {})
        told.error = said.get("error", {}).get("code", "")
        return told
    sent["stream_options"] = {"include_usage": True}
    sent["relay"] = {**sent.get("relay", {}), "annotate": True}
    async with client.stream("POST", CHAT, json=sent) as reply:
        told.status = reply.status_code
        async for line in reply.aiter_lines():
            if told.status != 200:  # nothing had been sent yet
                told.error = json.loads(line)["error"]["code"]
            elif line.startswith("data: {"):
                hear(told, json.loads(line.removeprefix("data: ")))
                if enough(told):
                    break
    return told


def hear(told: Told, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        told.error = chunk["error"]["code"]
        return
    relay = chunk.get("relay", {})
    if not chunk["choices"]:
        told.relay, told.usage = relay, chunk["usage"]
    elif relay.get("event") == "handoff":
        told.handoffs.append(relay)
    elif "model" in relay:
        told.models.append((relay["model"], relay["stage"]))


@contextmanager
def bench(
    *, settings: Settings | None = None, large: Any = None, small: Any = None, **both: Any
) -> Iterator[Bench]:
    given = {"trace": "short", "token_ms": 1.0, "prefill_ms": 0.0, **both}
    with ExitStack() as stack:
        engines = {
            role: stack.enter_context(serving(MockConfig(**{**given, **(own or {})})))
            for role, own in (("large", large), ("small", small))
        }
        relay = Relay(engines["large"], engines["small"], profile=TAGS)
        written = io.StringIO()
        app = make_app(relay, settings, log=Log(written))
        served = Pair(ScriptedEngine(), ScriptedEngine(), app, written)
        url, _ = stack.enter_context(running(served))
        http = stack.enter_context(httpx.Client(trust_env=False, verify=False, timeout=60))
        yield Bench(url, served, engines, http)


def check_engines(found: Page, bench: Bench) -> None:
    """Every request to an engine, and every token that it wrote, is accounted for."""
    for role in ROLES:
        entries = bench.log(role)
        asked = found.total("engine_requests_total", model=role)
        assert asked + found.value("engine_retries_total", model=role) == len(entries), role
        written = sum(entry["tokens"] for entry in entries)
        turns = sum(entry["finish"] == "stop" and ended_by_turn(entry) for entry in entries)
        kept = found.total("tokens_total", model=role)
        discarded = found.value("discarded_tokens_total", model=role)
        # What was on its way when a connection was closed was written and never received.
        late = sum(stamp > e["ended"] - _ON_ITS_WAY_S for e in entries for stamp in e["emitted"])
        assert written - late <= kept + discarded + turns <= written, role


def ended_by_turn(entry: Entry) -> bool:
    return bool(entry["ids"]) and entry["ids"][-1] == 151645


def check_replies(found: Page, told: list[Told]) -> None:
    """Sums over all replies, of requests that were answered to the end."""
    for model in (*ROLES, "inserted"):
        assert found.total("tokens_total", model=model) == sum(
            each.relay["tokens"][model] for each in told
        )
    total = sum(each.usage["completion_tokens"] for each in told)
    assert found.total("tokens_total") == total
    assert found.total("segment_tokens_sum") == total - found.total(
        "tokens_total", model="inserted"
    )
    assert found.value("prompt_tokens_total") == sum(e.usage["prompt_tokens"] for e in told)
    assert found.total("handoffs_total") == sum(each.relay["handoffs"] for each in told)
    assert found.total("fallbacks_total") == sum(each.relay["fallbacks"] for each in told)
    assert found.total("discarded_tokens_total") == sum(
        each.relay["tokens"]["discarded"] for each in told
    )
    for role in ROLES:
        seconds = sum(each.relay["seconds"][role] for each in told)
        assert found.total("engine_seconds_total", model=role) == pytest.approx(seconds)


def check_events(found: Page, told: list[Told]) -> None:
    """Hand-offs one by one, as the streams told them."""
    events = [event for each in told for event in each.handoffs]
    counted = Counter((e["cue"], f"{e['source']}_to_{e['target']}", e["why"]) for e in events)
    assert found.of("handoffs_total") == dict(counted)
    for direction in ("large_to_small", "small_to_large"):
        seconds = [e["seconds"] for e in events if f"{e['source']}_to_{e['target']}" == direction]
        assert found.value("handoff_seconds_count", direction=direction) == len(seconds)
        assert found.value("handoff_seconds_sum", direction=direction) == pytest.approx(
            sum(seconds)
        )


@pytest.mark.parametrize("hints", [True, False])
def test_requests_at_once(hints: bool) -> None:
    with bench(settings=Settings(hints=hints), regroup=1 if hints else 5) as made:
        streams: list[dict[str, Any]] = [{"stream": True, "seed": n} for n in range(3)]
        told = made.ask(*streams)
        found = made.idle()
        assert [each.status for each in told] == [200] * 3
        check_replies(found, told)
        check_events(found, told)
        check_engines(found, made)
        for name in ("queue", "request", "time_to_first_token", "time_to_first_answer_token"):
            assert found.value(f"{name}_seconds_count") == 3
        whole = made.ask({}, {"model": "relaygen@large"}, {"model": "relaygen@small"})
        check_replies(made.idle(), told + whole)
        check_engines(made.idle(), made)


def test_segments_are_the_runs_of_one_model_in_one_stage() -> None:
    with bench() as made:
        (told,) = made.ask({"stream": True})
        found = made.idle()
    runs = Counter(model for model, _ in groupby(told.models))
    assert found.of("segment_tokens_count") == {(m, s): n for (m, s), n in runs.items()}
    assert sum(runs.values()) == len(told.handoffs) + 1
    first = found.value("time_to_first_token_seconds_sum")
    answer = found.value("time_to_first_answer_token_seconds_sum")
    assert first < answer < found.value("request_seconds_sum")


@pytest.mark.parametrize(
    ("slow", "direction"), [("small", "large_to_small"), ("large", "small_to_large")]
)
def test_latency_is_that_of_the_receiver(slow: str, direction: str) -> None:
    own: dict[str, Any] = {slow: {"ttft_ms": 101.0}}
    with bench(**own) as made:
        made.ask({})
        found = made.idle()
    assert found.value("handoff_seconds_count", direction=direction) > 0
    assert found.value("handoff_seconds_bucket", direction=direction, le="0.1") == 0
    asked = found.total("engine_requests_total", model=slow)
    assert found.value("engine_seconds_total", model=slow, phase="first") >= 0.1 * asked


# Failures.


@pytest.mark.parametrize("kind", ["reset", "garbage", "http500"])
def test_a_small_engine_that_fails_once(kind: str) -> None:
    with bench() as made:
        made.fail("small", kind, token=2)
        (told,) = made.ask({"stream": True})
        found = made.idle()
        assert told.error == ""
        assert [e["failure"] for e in made.log("small") if e["failure"]] == [kind]
        check_replies(found, [told])
        check_events(found, [told])
        check_engines(found, made)
    assert found.of("fallbacks_total") == {("small",): 1}
    assert found.value("breaker_opened_total") == 0
    assert found.of("breaker_state") == {("closed",): 1}
    assert found.of("requests_total") == {("ok", CHAT): 1}


def test_the_breaker_opens_and_closes() -> None:
    with bench() as made:
        made.fail("small", "http500", count=3)
        (told,) = made.ask({"stream": True})
        found = made.idle()
        assert found.value("fallbacks_total", model="small") == told.relay["fallbacks"] == 3
        assert found.of("breaker_state") == {("open",): 1}
        assert found.value("breaker_opened_total") == 1
        until(lambda: made.page().of("breaker_state") == {("half-open",): 1})
        (again,) = made.ask({"stream": True})
        found = made.idle()
        assert found.of("breaker_state") == {("closed",): 1}
        assert found.value("breaker_opened_total") == 1
        assert again.relay["fallbacks"] == 0
        check_replies(found, [told, again])
        check_engines(found, made)


@pytest.mark.parametrize("stream", [True, False])
def test_a_large_engine_that_is_asked_again(stream: bool) -> None:
    with bench() as made:
        made.fail("large", "reset", token=0)
        (told,) = made.ask({"stream": stream})
        found = made.idle()
        assert found.of("engine_retries_total") == {("large",): 1}
        assert found.of("fallbacks_total") == {}
        check_replies(found, [told])
        check_engines(found, made)


@pytest.mark.parametrize(
    ("kind", "outcome"), [("reset", "engine_unreachable"), ("garbage", "engine_error")]
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_large_engine_that_dies(kind: str, outcome: str, stream: bool) -> None:
    with bench() as made:
        made.fail("large", kind, token=4, count=None)  # it may be asked again
        (told,) = made.ask({"stream": stream})
        found = made.idle()
        assert told.error == outcome
        assert found.of("requests_total") == {(outcome, CHAT): 1}
        assert found.of("generations_total") == {("error", "", "relay"): 1}
        assert found.of("fallbacks_total") == {}
        assert found.total("tokens_total") <= 4
        check_engines(found, made)


# Clients that leave.


@pytest.mark.parametrize("role", ROLES)
def test_a_client_that_leaves_while_one_of_them_writes(role: str) -> None:
    with bench(token_ms=15.0) as made:

        def enough(told: Told) -> bool:
            return bool(told.models) and [m for m, _ in told.models[-2:]] == [role] * 2

        made.leave({"stream": True}, enough)
        until(lambda: made.page().total("requests_total") > 0)
        found = made.idle()
        assert found.of("requests_total") == {("client_gone", CHAT): 1}
        assert found.of("generations_total") == {("cancelled", "", "relay"): 1}
        assert found.value("request_seconds_count") == 1
        last = max((made.log(each)[-1] for each in ROLES if made.log(each)), key=started)
        assert last["aborted"]
        check_engines(found, made)


def started(entry: Entry) -> float:
    return float(entry["started"])


def test_one_that_runs_one_that_waits_and_two_too_many() -> None:
    with bench(settings=Settings(max_concurrent=1, max_queue=1), token_ms=5.0) as made:
        told = made.ask(*[{"stream": n % 2 == 0} for n in range(4)])
        assert sorted(each.status for each in told) == [200, 200, 429, 429]
        found = made.idle()
        assert found.of("requests_total") == {("ok", CHAT): 2, ("full", CHAT): 2}
        assert found.value("queue_seconds_count") == found.value("request_seconds_count") == 2
        assert found.value("queue_seconds_bucket", le="0.5") == 1
        check_replies(found, [each for each in told if each.status == 200])
        check_engines(found, made)


def test_one_that_leaves_while_it_waits_is_in_no_histogram() -> None:
    with bench(settings=Settings(max_concurrent=1), token_ms=10.0) as made:

        async def both(client: httpx.AsyncClient) -> Told:
            first = asyncio.ensure_future(chat(client, {"stream": True}))
            while made.served.service.admission.running < 1:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            second = asyncio.ensure_future(chat(client, {"stream": True}))
            while made.served.service.admission.waiting < 1:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            second.cancel()
            return await first

        told: Told = asyncio.run(made._with(both))
        until(lambda: made.page().total("requests_total") == 2)
        found = made.idle()
        assert found.of("requests_total") == {("ok", CHAT): 1, ("client_gone", CHAT): 1}
        assert found.value("queue_seconds_count") == found.total("generations_total") == 1
        check_replies(found, [told])


# Ends.


def test_ends_of_every_kind() -> None:
    with bench() as made:
        told = made.ask(
            {},
            {"max_tokens": 30},
            {"max_tokens": 7, "stream": True},
            {"stop": ["sum is"], "stream": True},
            {"stop": "The"},
        )
        refused = made.ask({"n": 2}, {"logprobs": True, "stream": True}, {"model": "gpt-4"})
        found = made.idle()
        assert [each.status for each in told] == [200] * 5
        assert [each.status for each in refused] == [400, 400, 404]
        ends = Counter(each.relay["finish"] for each in told)
        assert ends == {"stop": 3, "length": 2}
        assert found.of("generations_total") == {(e, "", "relay"): n for e, n in ends.items()}
        assert found.of("requests_total") == {("ok", CHAT): 5, ("invalid", CHAT): 3}
        check_replies(found, told)


def test_counters_never_fall() -> None:
    with bench(token_ms=2.0) as made:
        before = made.page()
        made.fail("small", "reset", token=1)
        for body in ({"stream": True}, {"max_tokens": 9}, {"n": 2}):
            made.ask(body)
            after = made.page()
            counted = {
                name: value
                for name, value in before.series.items()
                if not name[0].startswith(("relaygen_requests_", "relaygen_breaker_state"))
                or name[0].endswith("_total")
            }
            assert all(after.series[name] >= value for name, value in counted.items())
            before = after
