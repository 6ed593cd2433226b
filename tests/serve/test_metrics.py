"""Metrics: exact counts of known generations, and pages that do not grow."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import httpx
import prometheus_client
import pytest

import relaygen
from relaygen import EngineReplyError, EngineUnreachableError, Relay
from relaygen._events import FellBack, HandedOff
from relaygen._results import Generation, ModelUsage, Segment, Usage
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.mock import MockConfig, serving
from relaygen.policies import HandOff, Policy, RelayPolicy
from relaygen.policies.base import STAY, After, Decision, Start, Token
from relaygen.profiles import load
from relaygen.serve._app import make_app
from relaygen.serve._labels import REASONS, Allowed
from relaygen.serve._settings import Settings
from relaygen.serve._watch import CHAT_ROUTE, OUTCOMES, Exchange

from .metering import Page, page, read, scrape
from .support import (
    CALL,
    CHAT,
    PLAIN,
    TEXT,
    THINKING,
    TOOL,
    Pair,
    call,
    get,
    pair,
    post,
    running,
    until,
)

SECRET = "sk-1"
SOURCES = Path(relaygen.__file__).parent


def ended(served: Pair) -> Page:
    """Everything is over: nobody runs and nobody waits."""
    found = scrape(served)
    assert (found.value("requests_running"), found.value("requests_waiting")) == (0, 0)
    return found


# One known generation.


@pytest.mark.parametrize("stream", [False, True])
def test_a_relayed_generation_token_by_token(stream: bool) -> None:
    served = pair()
    assert post(served, body={"stream": stream}).status_code == 200
    found = ended(served)
    assert found.of("handoffs_total", direction="large_to_small") == {
        ("Now", "cue"): 1,
        ("So", "cue"): 1,
        ("", "stage"): 1,
    }
    assert found.of("handoffs_total", direction="small_to_large") == {("", "sentence"): 2}
    assert found.of("tokens_total", policy="relay", level="") == {
        ("large", "reasoning"): 12,
        ("small", "reasoning"): 10,
        ("small", "answer"): 11,
    }
    assert found.of("discarded_tokens_total") == {("small",): 2}
    assert found.value("prompt_tokens_total") == 10
    assert found.of("engine_requests_total") == {("segment", "large"): 3, ("segment", "small"): 3}
    assert found.of("segment_tokens_count") == {
        ("large", "reasoning"): 3,
        ("small", "reasoning"): 2,
        ("small", "answer"): 1,
    }
    assert found.value("segment_tokens_sum", model="large", stage="reasoning") == 12
    assert found.value("segment_tokens_bucket", model="small", stage="answer", le="8.0") == 0
    assert found.value("segment_tokens_bucket", model="small", stage="answer", le="16.0") == 1
    assert found.of("handoff_seconds_count") == {("large_to_small",): 3, ("small_to_large",): 2}
    assert found.of("generations_total") == {("stop", "", "relay"): 1}
    assert found.of("requests_total") == {("ok", CHAT): 1}
    assert found.of("fallbacks_total") == {}
    assert found.value("delegation_pauses_total") == 0
    for name in ("queue", "time_to_first_token", "time_to_first_answer_token", "request"):
        assert found.value(f"{name}_seconds_count") == 1


def test_what_is_counted_is_what_the_reply_says() -> None:
    served = pair()
    told = post(served).json()
    relay, usage = told["relay"], told["usage"]
    found = ended(served)
    for model in ("large", "small"):
        assert found.total("tokens_total", model=model) == relay["tokens"][model]
        seconds = found.total("engine_seconds_total", model=model)
        assert seconds == pytest.approx(relay["seconds"][model])
    assert found.total("tokens_total") == usage["completion_tokens"]
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    assert found.total("tokens_total", stage="reasoning") == reasoning
    assert found.value("prompt_tokens_total") == usage["prompt_tokens"]
    assert found.total("handoffs_total") == relay["handoffs"]


def test_times_run_from_the_request_on() -> None:
    served = pair()
    told = post(served).json()["relay"]["seconds"]
    found = ended(served)
    first = found.value("time_to_first_token_seconds_sum")
    answer = found.value("time_to_first_answer_token_seconds_sum")
    whole = found.value("request_seconds_sum")
    assert told["first_token"] + found.value("queue_seconds_sum") < first < answer < whole
    assert told["total"] < whole


def test_an_insertion_is_nobodys_share() -> None:
    served = pair("<think>\nHm. We go on and on and on.\n</think>\n\nThree.")
    post(served, body={"max_reasoning_tokens": 6})
    found = ended(served)
    assert found.total("tokens_total", model="inserted", stage="reasoning") == 4
    assert found.total("segment_tokens_count") == found.total("engine_requests_total")
    assert found.of("segment_tokens_count", stage="reasoning") == {("large",): 1}


def test_policies_and_levels_are_told_apart(tmp_path: Path) -> None:
    profile = tmp_path / "leveled.toml"
    shipped = (SOURCES / "profiles/data/embedded.toml").read_text("utf-8")
    profile.write_text(f'{shipped}\n[levels.fast]\ncues = ["Thus"]\n', "utf-8")
    served = pair(PLAIN, profile=str(profile))
    for model in ("relaygen", "relaygen@fast", "relaygen@large", "relaygen@random:0.5"):
        assert post(served, body={"model": model}).status_code == 200
    policies = {(level, policy) for _, level, policy in ended(served).of("generations_total")}
    assert policies == {("", "relay"), ("fast", "relay"), ("", "large"), ("", "random")}


def test_engines_over_http_tell_their_cache() -> None:
    config = MockConfig(trace="short", token_ms=0.0, prefill_ms=0.0)
    with serving(config) as large, serving(config) as small:
        relay = Relay(large, small, profile="qwen3-32b+1.7b")
        served = Pair(ScriptedEngine(), ScriptedEngine(), make_app(relay))
        told = post(served).json()
    assert told["relay"]["handoffs"] > 2
    found = page(served)
    assert found.total("handoffs_total") == told["relay"]["handoffs"]
    for model in ("large", "small"):
        asked = found.of("engine_prompt_tokens_total", model=model)
        share = asked["cached",] / (asked["cached",] + asked["evaluated",])
        assert share == pytest.approx(told["relay"]["cached_share"][model])


# Generations that end otherwise.


def test_a_client_that_leaves_is_counted_with_what_was_written() -> None:
    text = " ".join(f"w{n}" for n in range(2000))
    served = pair(text, large=ScriptedEngine(text, token_ms=5), policy="large")
    with running(served) as (url, _):
        with httpx.stream(
            "POST",
            url + CHAT,
            json={"messages": [{"role": "user", "content": "?"}], "stream": True},
        ) as reply:
            lines: Iterator[str] = reply.iter_lines()
            for _ in range(10):
                next(lines)
        until(lambda: page(served).total("generations_total") > 0)
    found = page(served)
    assert found.of("generations_total") == {("cancelled", "", "large"): 1}
    assert found.of("requests_total") == {("client_gone", CHAT): 1}
    (line,) = served.lines
    assert found.total("tokens_total") == line["large_tokens"] > 0
    assert found.value("requests_running") == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_generation_is_counted_with_what_was_written(stream: bool) -> None:
    dies = Failure(EngineReplyError("garbage"), request=None, token=3)
    served = pair(large=ScriptedEngine(THINKING, failures=[dies]))
    post(served, body={"stream": stream})
    found = ended(served)
    assert found.of("generations_total") == {("error", "", "relay"): 1}
    assert found.of("requests_total") == {("engine_error", CHAT): 1}
    assert found.of("tokens_total") == {("", "large", "relay", "reasoning"): 3}


def test_a_generation_that_never_began_is_no_generation() -> None:
    served = pair()
    served.service.drain()
    post(served)
    post(pair(), body={"n": 2})
    found = ended(served)
    assert found.of("requests_total") == {("shutting_down", CHAT): 1}
    assert found.of("generations_total") == {}
    assert found.value("request_seconds_count") == found.value("queue_seconds_count") == 0


def test_a_small_engine_that_fails_falls_back_and_opens_the_breaker() -> None:
    down = Failure(EngineUnreachableError("refused"), request=None)
    served = pair(small=ScriptedEngine(THINKING, failures=[down]))
    assert page(served).of("breaker_state") == {("closed",): 1}
    post(served)
    found = ended(served)
    assert found.of("fallbacks_total") == {("small",): 3}
    assert found.of("breaker_state") == {("open",): 1}
    assert found.value("breaker_opened_total") == 1
    served.service.breaker._until = 0.0
    assert page(served).of("breaker_state") == {("half-open",): 1}


def test_a_delegation_that_does_not_pay_is_a_pause() -> None:
    script = "We add. So it is. " * 12
    slow = ScriptedEngine(script, ttft_ms=20)
    served = pair(script, profile="embedded", small=slow, settings=Settings(pause="auto"))
    post(served)
    assert ended(served).value("delegation_pauses_total") == 1
    post(served, body={"seed": 1})
    assert ended(served).value("delegation_pauses_total") == 1


def test_requests_by_route_and_outcome() -> None:
    served = pair(PLAIN, profile="embedded", settings=Settings(api_keys=(SECRET,)))
    key = {"authorization": f"Bearer {SECRET}"}
    post(served, TEXT, {"max_tokens": 4}, headers=key)
    post(served, TEXT, {"max_tokens": -4}, headers=key)
    post(served)
    get(served, "/v1/models", headers=key)
    get(served, "/v1/models/relaygen", headers=key)
    get(served, "/v1/models/none", headers=key)
    get(served, "/secret/path", headers=key)
    get(served, CHAT, headers=key)
    get(served, "/health")
    get(served, "/ready")
    assert ended(served).of("requests_total") == {
        ("ok", TEXT): 1,
        ("invalid", TEXT): 1,
        ("unauthorized", CHAT): 1,
        ("ok", "/v1/models"): 2,
        ("invalid", "/v1/models"): 1,
        ("invalid", "other"): 1,
        ("invalid", CHAT): 1,
    }


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (200, "", "ok"),
        (200, "client_gone", "client_gone"),
        (200, "client_stalled", "client_stalled"),
        (200, "engine_error", "engine_error"),
        (200, "context_length_exceeded", "invalid"),
        (400, "unsupported", "invalid"),
        (405, "", "invalid"),
        (401, "", "unauthorized"),
        (408, "body_too_slow", "invalid"),
        (429, "rate_limit_exceeded", "full"),
        (500, "", "internal_error"),
        (500, "internal_error", "internal_error"),
        (502, "engine_error", "engine_error"),
        (503, "engine_unreachable", "engine_unreachable"),
        (503, "shutting_down", "shutting_down"),
    ],
)
def test_outcomes(status: int, code: str, outcome: str) -> None:
    exchange = Exchange("r", "POST", CHAT, {}, status=status, code=code)
    assert exchange.outcome == outcome
    assert outcome in OUTCOMES


def test_a_defect_is_counted_as_ours() -> None:
    class Broken(ScriptedEngine):
        async def release(self, session: str) -> None:
            raise ZeroDivisionError

    served = pair(large=Broken(THINKING), policy="large")
    post(served)
    found = ended(served)
    assert found.of("requests_total") == {("internal_error", CHAT): 1}
    assert found.of("generations_total") == {("stop", "", "large"): 1}


# Every count has its metric.


def test_every_field_of_a_models_usage_is_counted() -> None:
    numbers = {field.name: 2**n for n, field in enumerate(fields(ModelUsage))}
    numbers |= {"requests": 2**20, "seconds": 2**21}  # the whole of what others are parts of
    served = pair()
    for _ in range(2):
        served.service.metrics.ended(finished(Usage(small=ModelUsage(**numbers))))
    found = page(served)
    seen = {"tokens"}  # counted by segment

    def twice(metric: str, field: str, *without: str, **labels: str) -> None:
        seen.update((field, *without))
        amount = numbers[field] - sum(numbers[name] for name in without)
        assert found.of(f"{metric}_total", **labels) == {("small",): 2 * amount}

    for name in ("decoded", "discarded", "reevaluated", "drafted", "accepted"):
        twice(f"{name}_tokens", name)
    twice("repaired_ids", "repaired")
    twice("engine_retries", "retries")
    twice("hint_stops", "hint_stops")
    twice("engine_prompt_tokens", "cached", source="cached")
    twice("engine_prompt_tokens", "evaluated", source="evaluated")
    twice("engine_requests", "probes", kind="probe")
    twice("engine_requests", "prewarms", kind="prewarm")
    twice("engine_requests", "requests", "probes", "prewarms", kind="segment")
    twice("engine_seconds", "first_seconds", phase="first")
    twice("engine_seconds", "decode_seconds", phase="decode")
    twice("engine_seconds", "seconds", "first_seconds", "decode_seconds", phase="rest")
    assert seen == set(numbers)


def finished(usage: Usage, *segments: Segment) -> Exchange:
    """A generation that left this behind."""
    service = pair().service
    order, _ = service._order({"messages": [{"role": "user", "content": "?"}]}, "chat")
    generation = Generation("", "", "", segments, usage, "stop")
    return Exchange("r", "POST", CHAT, {}, order=order, generation=generation, status=200)


def test_what_engines_hide_is_not_counted() -> None:
    served = pair()
    served.service.metrics.ended(finished(Usage()))
    assert page(served).of("engine_prompt_tokens_total") == {}
    assert page(served).of("drafted_tokens_total") == {}


def test_who_runs_and_who_waits() -> None:
    served = pair(settings=Settings(max_concurrent=1))
    admission = served.service.admission

    async def scenario() -> Page:
        async def hold() -> None:
            async with admission.place():
                pass

        async with admission.place():
            waiting = [asyncio.ensure_future(hold()) for _ in range(2)]
            await asyncio.sleep(0)
            found = page(served)
        await asyncio.gather(*waiting)
        return found

    found = asyncio.run(scenario())
    assert (found.value("requests_running"), found.value("requests_waiting")) == (1, 2)
    assert page(served).value("requests_running") == 0


def test_hand_offs_are_counted_while_the_generation_runs() -> None:
    script = "We add. So it is. " + "and on " * 2000
    served = pair(script, profile="embedded", large=ScriptedEngine(script, token_ms=2))

    async def scenario(client: httpx.AsyncClient) -> Page:
        body = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 4000}
        asking = asyncio.ensure_future(client.post(CHAT, json=body))
        while not page(served).total("handoffs_total"):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.005)
        found = read((await client.get("/metrics")).text)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return found

    found = call(served, scenario)
    assert found.total("generations_total") == 0
    assert found.value("requests_running") == 1


# The page.


def test_it_is_open_and_leaves_no_line() -> None:
    served = pair(settings=Settings(api_keys=(SECRET,), root_path="/llm"))
    response = get(served, "/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert get(served, "/llm/metrics").status_code == 200
    assert served.lines == []
    assert page(served).of("requests_total") == {}


def test_names_follow_prometheus() -> None:
    served = pair()
    post(served)
    text = get(served, "/metrics").text
    assert "_created" not in text
    for family in read(text).families.values():
        assert family.name.startswith("relaygen_")
        assert family.type in ("counter", "gauge", "histogram")
        assert family.name.endswith("_total") is (family.type == "counter")
        assert not family.name.endswith(("_ms", "_milliseconds", "_count"))
        assert family.help.endswith(".")
        if "latency" in family.name or "time_to" in family.name:
            assert "_seconds" in family.name


def test_what_is_served_is_told() -> None:
    served = pair(settings=Settings(served_model_name="pair"), policy="random:0.25")
    assert page(served).value(
        "info",
        version=relaygen.__version__,
        profile="qwen3-32b+1.7b",
        level="",
        policy="random",
        served_model_name="pair",
    ) == 1  # fmt: skip


def test_what_may_happen_is_there_from_the_start() -> None:
    served = pair()
    before = page(served)
    keys = [(name, dict(labels)) for name, labels in before.series]
    assert ("relaygen_fallbacks_total", {"model": "small"}) in keys
    assert ("relaygen_requests_total", {"route": CHAT, "outcome": "engine_error"}) in keys
    assert before.total("fallbacks_total") == before.total("requests_total") == 0
    assert before.total("engine_requests_total") == before.total("tokens_total") == 0


def test_a_share_has_both_its_parts_before_anybody_wrote() -> None:
    """An alert on the small model's share must see a 0 where that writes nothing at all."""
    profile = load("embedded-calibrated").at("fast")
    relay = Relay(ScriptedEngine(), ScriptedEngine(), profile=profile)
    found = page(Pair(ScriptedEngine(), ScriptedEngine(), make_app(relay)))
    for model in ("large", "small"):
        for stage in ("reasoning", "answer"):
            labels = {"model": model, "stage": stage, "policy": relay.policy.name, "level": "fast"}
            assert found.series["relaygen_tokens_total", frozenset(labels.items())] == 0
    labels = {"policy": relay.policy.name, "level": "fast", "finish": "error"}
    assert found.series["relaygen_generations_total", frozenset(labels.items())] == 0


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_ends_behind_its_only_call_was_not_cancelled(stream: bool) -> None:
    served = pair(f"{CALL}\n{CALL}\nThat was it.", profile="embedded")
    post(served, body={"tools": [TOOL], "parallel_tool_calls": False, "stream": stream})
    found = ended(served)
    assert found.of("requests_total") == {("ok", CHAT): 1}
    assert found.of("generations_total") == {("stop", "", "relay"): 1}


def test_several_applications_in_one_process_count_apart() -> None:
    first, second = pair(), pair()
    post(first)
    assert page(first).total("handoffs_total") == 5
    assert page(second).total("handoffs_total") == 0
    assert b"relaygen" not in prometheus_client.generate_latest()


# Labels.


class Babbling:
    """Hands over at every token, for a reason and at a cue of its own each time."""

    name = "babbling"
    first = "large"
    roles = frozenset(("large", "small"))
    margins: frozenset[Any] = frozenset()

    def __init__(self) -> None:
        self.cues = 0

    def start(self, start: Start) -> Babbling:
        return self

    def begin(self, *facts: Any) -> None:
        pass

    def feed(self, token: Token) -> Decision:
        if not token.whole:
            return STAY
        self.cues += 1
        return HandOff(token.index, "delegate", f"reason {self.cues}", f'cue "{self.cues}"\n')

    def probed(self, piece: Any) -> Decision:
        return STAY

    def answer(self, on_duty: Any) -> Any:
        return on_duty


def test_odd_cues_and_reasons_do_not_make_the_page_grow() -> None:
    script = " ".join(f"w{n}" for n in range(1100))
    policy: Any = Babbling()
    relay = Relay(ScriptedEngine(script), ScriptedEngine(script), profile="embedded", policy=policy)
    served = Pair(ScriptedEngine(), ScriptedEngine(), make_app(relay))
    post(served, body={"max_tokens": 4})
    few = page(served)
    post(served, body={"max_tokens": 1050})
    many = page(served)
    assert policy.cues > 1000
    assert many.series.keys() == few.series.keys()
    assert set(many.of("handoffs_total", direction="large_to_small")) == {("other", "other")}
    assert many.total("handoffs_total") > 1000
    assert many.total("generations_total", policy="babbling") == 2


def test_a_thousand_requests_of_odd_names_do_not_make_the_page_grow() -> None:
    served = pair(PLAIN, profile="embedded")

    async def odd(client: httpx.AsyncClient, n: int) -> None:
        await client.get(f"/v1/odd{n}")
        await client.get(f"/v1/models/odd{n}")
        await client.request(f"ODD{n}", f"/odd/{n}?cue={n}")
        await client.post(CHAT, json={"model": f"odd{n}", "messages": []})

    async def scenario(client: httpx.AsyncClient) -> tuple[Page, Page]:
        for n in range(2):
            await odd(client, n)
        few = read((await client.get("/metrics")).text)
        for n in range(250):
            await odd(client, n)
        return few, read((await client.get("/metrics")).text)

    few, many = call(served, scenario)
    assert many.series.keys() == few.series.keys()
    assert many.total("requests_total") == 252 * 4


def test_a_policys_option_is_no_label() -> None:
    served = pair(PLAIN, profile="embedded")
    for share in ("0.25", "0.5", "0.75"):
        post(served, body={"model": f"relaygen@random:{share}"})
    assert page(served).of("generations_total") == {("stop", "", "random"): 3}


@pytest.mark.parametrize("cue", ['"Thus"', "\\[", "a\\nb", "{x=1}", "所以", "So, "])
def test_cues_arrive_as_they_are(cue: str) -> None:
    profile = replace(load("embedded"), cues=("Now", cue))
    relay = Relay(ScriptedEngine(), ScriptedEngine(), profile=profile)
    served = Pair(ScriptedEngine(), ScriptedEngine(), make_app(relay))
    name = cue.strip()
    handed(served, cue=name)
    assert page(served).of("handoffs_total", reason="cue") == {(name, "large_to_small"): 1}


@pytest.mark.parametrize("cue", ["So.", "so", "Now\n", "x" * 10_000])
def test_what_is_no_cue_is_other(cue: str) -> None:
    served = pair()
    handed(served, cue=cue)
    assert page(served).of("handoffs_total", reason="cue") == {("other", "large_to_small"): 1}


def handed(served: Pair, *, cue: str) -> None:
    event = HandedOff("large", "small", "delegate", "cue", cue, 3, 0, 0.02)
    served.service.metrics.event(Exchange("r", "POST", CHAT, {}), event)


def test_every_cue_that_a_request_can_choose_is_allowed() -> None:
    profile = load("embedded-calibrated")
    policy: Policy = RelayPolicy.of(["Thus"])
    allowed = Allowed.of(profile, policy).cues
    for level in profile.levels.values():
        assert set(level.cues) <= allowed
    assert set(profile.cues) <= allowed
    assert "Perhaps never a cue" not in allowed


def test_the_one_shot_policys_cues_have_their_names() -> None:
    served = pair("We add. Therefore it is three, and so on. Done.", profile="embedded")
    post(served, body={"model": "relaygen@one-shot"})
    assert page(served).of("handoffs_total", reason="cue") == {("therefore", "large_to_small"): 1}


def test_a_hand_off_is_measured_where_it_belongs() -> None:
    served = pair()
    handed(served, cue="So")
    found = page(served)
    assert found.value("handoff_seconds_sum", direction="large_to_small") == 0.02
    assert found.value("handoff_seconds_bucket", direction="large_to_small", le="0.01") == 0
    assert found.value("handoff_seconds_bucket", direction="large_to_small", le="0.025") == 1
    served.service.metrics.event(Exchange("r", "POST", CHAT, {}), FellBack("large", "why", 3))
    assert page(served).of("fallbacks_total") == {("large",): 1}


def test_the_reasons_are_those_of_the_loop_and_of_our_policies() -> None:
    """Every text that a policy or the loop gives as the reason of a hand-off is known."""
    found = set(get_args(After)) - {"start", "handoff"}
    for path in [*(SOURCES / "policies").glob("*.py"), *SOURCES.glob("_*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = (
                node.func.id
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                else ""
            )
            position = {"HandOff": 2, "Turn": 3}.get(name)
            if isinstance(node, ast.Call) and position is not None and len(node.args) > position:
                reason = node.args[position]
                texts = [n.value for n in ast.walk(reason) if isinstance(n, ast.Constant)]
                found |= {text for text in texts if isinstance(text, str) and text}
    assert found == set(REASONS)


def test_the_route_of_a_path() -> None:
    routes = {
        path: Exchange("r", "GET", path, {}).route
        for path in (CHAT, TEXT, "/v1/models", "/v1/models/a/b", "/v1/modelsx", "/", "/v1/chat")
    }
    assert routes[CHAT] == CHAT_ROUTE
    assert list(routes.values())[2:] == ["/v1/models", "/v1/models", "other", "other", "other"]
