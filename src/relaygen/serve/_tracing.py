"""OpenTelemetry traces: a span per generating request, one below it per segment; extra ``[otel]``.

Spans are made when a request is over, from what it left behind: nothing is done for a token. Names
of attributes are those of OpenTelemetry's conventions for HTTP and generative AI where they have
one, else they begin with ``relaygen.``. No word of a prompt or an answer is in them but the cues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._errors import MissingExtraError
from .._events import Done, Event, FellBack, HandedOff, StageChanged
from .._results import Generation, Segment
from .._version import __version__
from ._responses import FINISH_REASONS
from ._tasks import Order
from ._watch import CHAT_ROUTE, TEXT_ROUTE, Exchange

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

_PATIENCE_S = 3.0  # at the end, for a collector that does not answer
_LAST_S = 1.0  # then, for the sending to stop
_OURS = ("internal_error", "engine_error", "engine_unreachable")


def check_extra() -> None:
    """Whether spans can be made and sent.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
    """
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace.export  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "opentelemetry", extra="otel") from None


def open_traces(url: str) -> Traces:
    """Spans by OTLP over HTTP, sent by a thread of their own.

    OpenTelemetry's variables set the rest: the service's name (`relaygen` if they do not), headers,
    sampling, the length of the queue.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
    """
    check_extra()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "relaygen"}))
    provider = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(endpoint=url)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Traces(provider, give_up=exporter.shutdown)


class Traces:
    """Makes spans. It is an observer of requests; see `Watcher`.

    Args:
        provider: of OpenTelemetry; it is closed with this.
        give_up: ends the sending of spans that nobody takes.
    """

    def __init__(
        self, provider: TracerProvider, *, give_up: Callable[[], object] | None = None
    ) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._give_up = give_up or provider.shutdown
        self._tracer = provider.get_tracer("relaygen", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def close(self) -> None:
        """Send what waits; blocks meanwhile, for some seconds at most, whoever does not take it."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_PATIENCE_S)
        if closing.is_alive():
            self._give_up()
            closing.join(_LAST_S)  # a request under way does not hear of it

    # Observing.

    def waited(self, exchange: Exchange) -> None:
        """Told with the rest."""

    def event(self, exchange: Exchange, event: Event) -> None:
        """Remember it."""
        exchange.moments.append((_moment(event), event))

    def ended(self, exchange: Exchange) -> None:
        """Make the spans of a generating request, however it ended."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        if exchange.route not in (CHAT_ROUTE, TEXT_ROUTE):
            return
        operation = "chat" if exchange.route == CHAT_ROUTE else "text_completion"
        order = exchange.order
        span = self._tracer.start_span(
            operation if order is None else f"{operation} {order.model.partition('@')[0]}",
            context=self._parent(exchange.headers),
            kind=SpanKind.SERVER,
            start_time=exchange.began_ns,
            attributes={"gen_ai.operation.name": operation, **_request(exchange)},
        )
        if span.is_recording():
            _judge(span, exchange)
            if order is not None and exchange.generation is not None:
                span.set_attributes(_generated(exchange, order, exchange.generation))
                _mark(span, exchange)
                self._segments(exchange, exchange.generation, set_span_in_context(span))
        span.end(_ns(exchange, exchange.ended))

    def _parent(self, headers: Mapping[bytes, str]) -> Context:
        names = ("traceparent", "tracestate")
        return self._propagator.extract({name: headers.get(name.encode(), "") for name in names})

    def _segments(self, exchange: Exchange, generation: Generation, parent: Context) -> None:
        from opentelemetry.trace import Status, StatusCode

        segments = generation.segments
        times = spans(segments, exchange.moments, _began(exchange), exchange.ended)
        failed = {(e.role, e.token) for _, e in exchange.moments if isinstance(e, FellBack)}
        kept = 0
        for segment, (start, end) in zip(segments, times, strict=True):
            kept += segment.tokens
            child = self._tracer.start_span(
                f"segment {segment.role}",
                context=parent,
                start_time=_ns(exchange, start),
                attributes={
                    "relaygen.role": segment.role,
                    "relaygen.stage": segment.stage,
                    "relaygen.cue": segment.cue,
                    "relaygen.why": segment.why,
                    "gen_ai.usage.output_tokens": segment.tokens,
                },
            )
            if (segment.role, kept) in failed:
                child.set_status(Status(StatusCode.ERROR, "its engine failed here"))
            child.end(_ns(exchange, end))


def spans(
    segments: Sequence[Segment],
    moments: Sequence[tuple[float, Event]],
    began: float,
    ended: float,
) -> list[tuple[float, float]]:
    """When each segment was written: start and end, in order and without overlap.

    Events say how many tokens were kept before them, so one with as many as a segment's end is the
    moment of that end. A segment began its engine's seconds before that. Turns that kept nothing
    are no segments and leave a gap.

    Args:
        segments: of a generation.
        moments: its events and when they were (a hand-off: when it was decided).
        began, ended: of the generation; all times on one clock.
    """
    marks: dict[int, float] = {}  # the first event after so many tokens
    for moment, event in moments:
        if isinstance(event, (HandedOff, StageChanged)):
            marks.setdefault(event.token, moment)
        elif isinstance(event, Done):
            ended = min(ended, moment)
    kept = sum(segment.tokens for segment in segments)
    found: list[tuple[float, float]] = []
    following = ended
    for segment in reversed(segments):
        end = max(began, min(following, marks.get(kept, following)))
        kept -= segment.tokens
        earliest = max(began, marks.get(kept, began))
        start = min(end, max(earliest, end - segment.seconds))
        found.append((start, end))
        following = start
    return found[::-1]


def _moment(event: Event) -> float:
    """When it happened: a hand-off, which is shown with its first token, when it was decided."""
    now = time.perf_counter()
    return now - event.seconds if isinstance(event, HandedOff) else now


def _began(exchange: Exchange) -> float:
    return exchange.began if exchange.started is None else exchange.started


def _ns(exchange: Exchange, moment: float) -> int:
    return exchange.began_ns + round((moment - exchange.began) * 1e9)


def _request(exchange: Exchange) -> dict[str, Any]:
    made: dict[str, Any] = {
        "gen_ai.provider.name": "relaygen",
        "http.request.method": exchange.method,
        "http.route": exchange.route,
        "http.response.status_code": exchange.status,
        "relaygen.request_id": exchange.id,
    }
    if exchange.outcome != "ok":
        made["error.type"] = exchange.outcome
    return made


def _judge(span: Span, exchange: Exchange) -> None:
    """Only what is the server's fault is an error of the server's span."""
    from opentelemetry.trace import Status, StatusCode

    if exchange.outcome in _OURS:
        span.set_status(Status(StatusCode.ERROR, exchange.outcome))


def _generated(exchange: Exchange, order: Order, generation: Generation) -> dict[str, Any]:
    task, usage = order.task, generation.usage
    made: dict[str, Any] = {
        "gen_ai.request.model": order.model,
        "gen_ai.request.max_tokens": task.limits.max_tokens,
        "gen_ai.request.temperature": task.sampling.temperature,
        "gen_ai.request.top_p": task.sampling.top_p,
        "gen_ai.request.top_k": task.sampling.top_k,
        "gen_ai.request.stream": order.stream,
        "gen_ai.response.finish_reasons": [FINISH_REASONS[generation.finish]],
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "relaygen.policy": order.policy,
        "relaygen.level": order.level,
        "relaygen.finish": generation.finish,
        "relaygen.tokens.large": usage.large_tokens,
        "relaygen.tokens.small": usage.small_tokens,
        "relaygen.tokens.inserted": usage.inserted_tokens,
        "relaygen.tokens.discarded": usage.discarded_tokens,
        "relaygen.handoffs": usage.handoffs,
        "relaygen.fallbacks": usage.fallbacks,
        "relaygen.queue_seconds": exchange.waited,
        "gen_ai.request.seed": task.seed,
        "gen_ai.response.time_to_first_chunk": exchange.since_began(usage.first_token_seconds),
    }
    return {name: value for name, value in made.items() if value is not None}


def _mark(span: Span, exchange: Exchange) -> None:
    for name, moment, attributes in _marks(exchange):
        span.add_event(name, attributes, _ns(exchange, moment))


def _marks(exchange: Exchange) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """What is a moment and no segment."""
    generation = exchange.generation
    if generation is not None:
        usage = generation.usage
        for name, seconds in (
            ("first token", usage.first_token_seconds),
            ("first answer token", usage.first_answer_seconds),
        ):
            if seconds is not None:
                yield name, _began(exchange) + seconds, {}
    for moment, event in exchange.moments:
        if isinstance(event, FellBack):
            yield "fallback", moment, {"relaygen.role": event.role}
