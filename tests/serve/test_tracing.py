"""Traces: one span per request, one below it per segment, at their times."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen import EngineError, MissingExtraError, Relay
from relaygen._errors import EngineReplyError
from relaygen._events import Done, Event, HandedOff, StageChanged
from relaygen._results import Generation, Segment, Usage
from relaygen._types import Role
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.serve import _tracing
from relaygen.serve._app import make_app
from relaygen.serve._logs import Log
from relaygen.serve._settings import Settings
from relaygen.serve._tracing import Traces, check_extra, open_traces, spans

from .support import CHAT, PLAIN, TAGS, TEXT, THINKING, Pair, get, post, running, until

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced(Pair):
    """A served pair and its spans."""

    memory: InMemorySpanExporter

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.memory.get_finished_spans()

    @property
    def root(self) -> ReadableSpan:
        (found,) = (span for span in self.spans if not span.name.startswith("segment "))
        return found

    @property
    def segments(self) -> list[ReadableSpan]:
        found = [span for span in self.spans if span.name.startswith("segment ")]
        return sorted(found, key=lambda span: (span.start_time or 0, span.end_time or 0))


def traced(
    script: str = THINKING,
    *,
    large: ScriptedEngine | None = None,
    small: ScriptedEngine | None = None,
    profile: str = TAGS,
    settings: Settings | None = None,
    provider: TracerProvider | None = None,
) -> Traced:
    large, small = large or ScriptedEngine(script), small or ScriptedEngine(script)
    provider = provider or TracerProvider()
    memory = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    relay, written = Relay(large, small, profile=profile), io.StringIO()
    app = make_app(relay, settings, log=Log(written), traces=Traces(provider))
    made = Traced(large, small, app, written)
    made.memory = memory
    return made


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# What is in them.


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_and_its_segments(stream: bool) -> None:
    served = traced()
    post(served, body={"stream": stream, "max_tokens": 50, "seed": 5})
    root = served.root
    assert root.name == "chat relaygen"
    assert root.kind is SpanKind.SERVER
    assert root.parent is None
    assert root.status.status_code is StatusCode.UNSET
    said = facts(root)
    assert said["relaygen.queue_seconds"] >= 0
    assert said["gen_ai.response.time_to_first_chunk"] > 0
    assert len(said["relaygen.request_id"]) == 32
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "relaygen",
        "gen_ai.request.model": "relaygen",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.seed": 5,
        "gen_ai.request.stream": stream,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 33,
        "gen_ai.usage.reasoning.output_tokens": 22,
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "relaygen.policy": "relay",
        "relaygen.finish": "stop",
        "relaygen.tokens.large": 12,
        "relaygen.tokens.small": 21,
        "relaygen.tokens.inserted": 0,
        "relaygen.tokens.discarded": 2,
        "relaygen.handoffs": 5,
        "relaygen.fallbacks": 0,
    }
    assert said | expected == said
    assert "error.type" not in said
    rows = [
        (span.name, said["relaygen.stage"], said["relaygen.cue"], said["relaygen.why"])
        for span in served.segments
        for said in [facts(span)]
    ]
    assert rows == [
        ("segment large", "reasoning", "", ""),
        ("segment small", "reasoning", "Now", "cue"),
        ("segment large", "reasoning", "", "sentence"),
        ("segment small", "reasoning", "So", "cue"),
        ("segment large", "reasoning", "", "sentence"),
        ("segment small", "answer", "", "stage"),
    ]
    assert sum(facts(s)["gen_ai.usage.output_tokens"] for s in served.segments) == 33
    assert {facts(s)["relaygen.role"] for s in served.segments} == {"large", "small"}
    for span in served.segments:
        assert span.parent is not None
        assert span.parent.span_id == root.context.span_id
        assert span.context.trace_id == root.context.trace_id


def test_no_word_of_a_prompt_or_an_answer_is_in_a_span() -> None:
    served = traced()
    post(served, body={"messages": [{"role": "user", "content": "Geheimnis"}], "user": "someone"})
    text = "".join(span.to_json() for span in served.spans)
    for secret in ("Geheimnis", "three", "someone"):
        assert secret not in text


def test_names_are_those_of_the_conventions() -> None:
    conventions = pytest.importorskip("opentelemetry.semconv._incubating.attributes")
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv.attributes import error_attributes, http_attributes

    assert conventions
    modules = (gen_ai_attributes, http_attributes, error_attributes)
    known = {
        value for module in modules for value in vars(module).values() if isinstance(value, str)
    }
    served = traced()
    post(served, body={"seed": 1})
    post(served, body={"n": 2})
    names = {name for span in served.spans for name in facts(span)}
    assert {name for name in names if not name.startswith("relaygen.")} <= known


def test_a_plain_completion_and_another_policy() -> None:
    served = traced(PLAIN, profile="embedded")
    post(served, TEXT, {"model": "relaygen@random:0.5", "max_tokens": 5})
    assert served.root.name == "text_completion relaygen"
    said = facts(served.root)
    assert said["gen_ai.request.model"] == "relaygen@random:0.5"
    assert said["relaygen.policy"] == "random:0.5"
    assert said["gen_ai.response.finish_reasons"] == ("length",)


# Requests that end otherwise.


def test_a_refused_request_has_a_span_without_segments() -> None:
    served = traced()
    post(served, body={"n": 2})
    assert served.root.name == "chat"
    said = facts(served.root)
    assert (said["error.type"], said["http.response.status_code"]) == ("invalid", 400)
    assert served.root.status.status_code is StatusCode.UNSET
    assert served.segments == []


def test_an_engines_failure_is_an_error_and_what_was_written_is_there() -> None:
    dies = Failure(EngineReplyError("garbage"), request=None, token=3)
    served = traced(large=ScriptedEngine(THINKING, failures=[dies]))
    post(served)
    assert served.root.status.status_code is StatusCode.ERROR
    assert facts(served.root)["error.type"] == "engine_error"
    (segment,) = served.segments
    assert facts(segment)["gen_ai.usage.output_tokens"] == 3
    assert "garbage" not in "".join(span.to_json() for span in served.spans)


def test_a_fallback_is_a_moment() -> None:
    dies = Failure(EngineReplyError("garbage"), token=1)
    served = traced(small=ScriptedEngine(THINKING, failures=[dies]))
    post(served)
    events = {event.name: event for event in served.root.events}
    assert set(events) == {"first token", "first answer token", "fallback"}
    assert dict(events["fallback"].attributes or {}) == {"relaygen.role": "small"}
    assert events["first token"].timestamp < events["first answer token"].timestamp


def test_a_segment_whose_engine_failed_is_an_error() -> None:
    dies = Failure(EngineReplyError("garbage"), token=2)
    served = traced(small=ScriptedEngine(THINKING, failures=[dies]))
    post(served)
    states = [
        (facts(span)["relaygen.role"], span.status.status_code is StatusCode.ERROR)
        for span in served.segments
    ]
    assert states[:3] == [("large", False), ("small", True), ("large", False)]
    assert not any(error for _, error in states[2:])
    assert served.root.status.status_code is StatusCode.UNSET  # the answer is whole
    assert "garbage" not in "".join(span.to_json() for span in served.spans)


def test_a_client_that_leaves() -> None:
    text = " ".join(f"w{n}" for n in range(2000))
    served = traced(text, large=ScriptedEngine(text, token_ms=5), profile="embedded")
    body = {"messages": [{"role": "user", "content": "?"}], "stream": True}
    with running(served) as (url, _):
        with httpx.stream("POST", url + CHAT, json=body) as reply:
            lines: Iterator[str] = reply.iter_lines()
            for _ in range(10):
                next(lines)
        until(lambda: bool(served.spans))
    assert facts(served.root)["error.type"] == "client_gone"
    assert facts(served.root)["relaygen.finish"] == "cancelled"
    (segment,) = served.segments
    assert facts(segment)["gen_ai.usage.output_tokens"] > 0


def test_only_generating_routes_have_spans() -> None:
    served = traced()
    for path in ("/health", "/ready", "/metrics", "/v1/models", "/nowhere"):
        get(served, path)
    assert served.spans == ()


# Whose child it is.


@pytest.mark.parametrize("stream", [False, True])
def test_the_callers_trace_goes_on(stream: bool) -> None:
    served = traced()
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    post(served, body={"stream": stream}, headers=headers)
    assert served.root.parent is not None
    assert f"{served.root.parent.span_id:016x}" == "b7ad6b7169203331"
    assert served.root.parent.is_remote
    assert {f"{span.context.trace_id:032x}" for span in served.spans} == {PARENT[3:35]}
    assert served.root.context.trace_state.to_header() == "vendor=1"


@pytest.mark.parametrize(
    "parent", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "ff" + PARENT[2:]]
)
def test_a_parent_that_is_none_is_none(parent: str) -> None:
    served = traced()
    post(served, headers={"traceparent": parent})
    assert served.root.parent is None


def test_a_caller_that_does_not_sample_is_heeded() -> None:
    served = traced(provider=TracerProvider(sampler=ParentBased(TraceIdRatioBased(1.0))))
    post(served, headers={"traceparent": PARENT[:-1] + "0"})
    assert served.spans == ()
    post(served, headers={"traceparent": PARENT})
    assert len(served.spans) == 7


# When it was.


def test_spans_lie_within_their_request_one_after_the_other() -> None:
    served = traced(
        large=ScriptedEngine(THINKING, ttft_ms=10, token_ms=2),
        small=ScriptedEngine(THINKING, ttft_ms=5, token_ms=1),
    )
    told = post(served).json()["relay"]["seconds"]
    root = served.root
    at = [root.start_time or 0]
    spent: dict[str, float] = {"large": 0.0, "small": 0.0}
    for span in served.segments:
        start, end = span.start_time or 0, span.end_time or 0
        at += [start, end]
        spent[facts(span)["relaygen.role"]] += (end - start) / 1e9
    at.append(root.end_time or 0)
    assert at == sorted(at)
    for role in ("large", "small"):  # an engine's time is its segments', but for ends that overlap
        assert told[role] / 2 < spent[role] <= told[role] + 0.001
    first = next(event for event in root.events if event.name == "first token")
    assert at[1] < first.timestamp <= at[2]


def segment(role: Any, seconds: float, tokens: int = 2, stage: Any = "reasoning") -> Segment:
    return Segment(role, stage, "x", (1,) * tokens, seconds=seconds)


def handed(target: Role, token: int) -> HandedOff:
    source: Role = "small" if target == "large" else "large"
    return HandedOff(source, target, "lead", "cue", "", token, 0, 0.0)


def done() -> Done:
    return Done(Generation("", "", "", (), Usage(), "stop"))


def test_events_say_when_segments_end_and_seconds_when_they_began() -> None:
    segments = [segment("large", 1.0), segment("small", 0.5), segment("large", 2.0)]
    moments: list[tuple[float, Event]] = [
        (11.5, handed("small", 2)),
        (12.0, handed("large", 4)),
        (14.5, done()),
    ]
    assert spans(segments, moments, 10.0, 99.0) == [(10.5, 11.5), (11.5, 12.0), (12.5, 14.5)]


def test_a_turn_that_kept_nothing_leaves_a_gap() -> None:
    segments = [segment("large", 1.0), segment("large", 1.0)]
    moments: list[tuple[float, Event]] = [(11.0, handed("small", 2)), (12.0, handed("large", 2))]
    assert spans(segments, moments, 10.0, 13.0) == [(10.0, 11.0), (12.0, 13.0)]


def test_an_end_that_no_event_tells_is_where_the_next_segment_begins() -> None:
    segments = [segment("large", 1.0), segment("inserted", 0.0, 3), segment("large", 2.0)]
    moments: list[tuple[float, Event]] = [(11.5, StageChanged("answer", 5))]
    assert spans(segments, moments, 10.0, 14.0) == [(10.5, 11.5), (11.5, 11.5), (12.0, 14.0)]


def test_work_that_overlaps_with_the_turn_before_is_cut() -> None:
    """An engine request is closed a little after the decision that ends it."""
    segments = [segment("large", 1.0), segment("small", 0.7)]
    moments: list[tuple[float, Event]] = [(11.0, handed("small", 2))]
    assert spans(segments, moments, 10.0, 11.5) == [(10.0, 11.0), (11.0, 11.5)]


@given(st.data())
def test_spans_are_in_order_whatever_the_clocks_say(data: st.DataObject) -> None:
    seconds = st.floats(0, 10)
    segments = data.draw(
        st.lists(st.builds(segment, st.sampled_from(["large", "small", "inserted"]), seconds, st.integers(1, 3)), max_size=8)
    )  # fmt: skip
    events = st.one_of(
        st.builds(handed, st.sampled_from(["large", "small"]), st.integers(0, 20)),
        st.builds(StageChanged, st.just("answer"), st.integers(0, 20)),
        st.builds(done),
    )
    moments = data.draw(st.lists(st.tuples(st.floats(0, 40), events), max_size=8))
    began = data.draw(st.floats(0, 20))
    ended = began + data.draw(st.floats(0, 20))
    found = spans(segments, moments, began, ended)
    assert len(found) == len(segments)
    at = [began, *(moment for span in found for moment in span), ended]
    assert at == sorted(at)


# Where they go.


def test_without_settings_there_are_no_traces() -> None:
    served = Pair(
        ScriptedEngine(),
        ScriptedEngine(),
        make_app(Relay(ScriptedEngine(PLAIN), ScriptedEngine(PLAIN))),
    )
    assert len(served.service.watcher._observers) == 1


def test_spans_reach_a_collector_and_what_waits_is_sent_at_the_end() -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
    )

    from .collector import collecting

    with collecting() as (url, received):
        settings = Settings(traces_url=f"{url}/v1/traces")
        engine = ScriptedEngine(THINKING)
        app = make_app(Relay(engine, ScriptedEngine(THINKING), profile=TAGS), settings)
        with running(Pair(engine, engine, app)) as (address, _):
            body = {"messages": [{"role": "user", "content": "?"}]}
            assert httpx.post(address + CHAT, json=body).status_code == 200
    assert {path for path, _ in received} == {"/v1/traces"}
    names: list[str] = []
    services: set[str] = set()
    for _, data in received:
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            services |= {
                a.value.string_value
                for a in resource.resource.attributes
                if a.key == "service.name"
            }
            names += [span.name for scope in resource.scope_spans for span in scope.spans]
    assert sorted(names) == ["chat relaygen", *["segment large"] * 3, *["segment small"] * 3]
    assert services == {"relaygen"}


def test_the_environments_name_of_the_service_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    traces = open_traces("http://127.0.0.1:9/v1/traces")
    try:
        assert traces._provider.resource.attributes["service.name"] == "mine"
    finally:
        traces.close()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_extra()
    name = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, name, None)
    for look in (check_extra, lambda: open_traces("http://127.0.0.1:4318/v1/traces")):
        with pytest.raises(MissingExtraError) as caught:
            look()
        assert caught.value.hint.startswith("install it with: pip install 'relaygen[otel]'")
        assert "opentelemetry" in str(caught.value)


def test_a_collector_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = threading.Event()

    class Stuck(TracerProvider):
        def shutdown(self) -> None:
            gone.wait(20)

    monkeypatch.setattr(_tracing, "_PATIENCE_S", 0.01)
    Traces(Stuck(shutdown_on_exit=False), give_up=gone.set).close()
    assert gone.is_set()


def test_what_does_not_give_up_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to a collector that answers drop by drop ends with nobody's patience."""
    answered, over = threading.Event(), threading.Event()

    class Dripping(TracerProvider):
        def shutdown(self) -> None:
            answered.wait(20)
            over.set()

    monkeypatch.setattr(_tracing, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(_tracing, "_LAST_S", 0.01)
    given_up: list[bool] = []
    provider = Dripping(shutdown_on_exit=False)
    Traces(provider, give_up=lambda: given_up.append(True)).close()
    assert given_up == [True]
    assert not over.is_set()
    answered.set()


def test_closing_is_no_work_for_the_loop() -> None:
    """The end of the application waits for the spans in a thread."""
    served = traced()
    closed: list[str] = []

    class Watched(Traces):
        def close(self) -> None:
            super().close()
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                closed.append("in a thread")

    relay = Relay(served.large, served.small)
    app = make_app(relay, traces=Watched(TracerProvider(shutdown_on_exit=False)))
    with running(Pair(served.large, served.small, app)):
        assert not closed
    assert closed == ["in a thread"]


def test_spans_are_sent_though_an_engine_cannot_be_closed() -> None:
    class Stuck(ScriptedEngine):
        async def aclose(self) -> None:
            raise KeyError("weights")

    closed: list[str] = []

    class Watched(Traces):
        def close(self) -> None:
            super().close()
            closed.append("closed")

    async def run() -> None:
        relay = Relay(Stuck(PLAIN), ScriptedEngine(PLAIN))
        app = make_app(relay, traces=Watched(TracerProvider(shutdown_on_exit=False)))
        with pytest.raises(EngineError, match="weights"):
            async with app.router.lifespan_context(app):
                pass

    asyncio.run(run())
    assert closed == ["closed"]
