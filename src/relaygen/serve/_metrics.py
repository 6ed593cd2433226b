"""What Prometheus is told: the page of ``/metrics``, described in ``docs/metrics.md``.

A registry of its own, so that several applications fit into one process. Labels have few values
(see `_labels`), so the page does not grow with the requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .._events import Event, FellBack, HandedOff
from .._gate import Breaker, PayGate
from .._profile import Profile
from .._results import Finish, Generation, ModelUsage
from .._types import ROLES, Role, Stage
from .._version import __version__
from ..policies.base import Policy
from ._labels import Allowed
from ._limits import Admission
from ._watch import CHAT_ROUTE, OUTCOMES, TEXT_ROUTE, Exchange

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text format, which every Prometheus reads."""

_STATES = ("closed", "half-open", "open")
_CUT = ("client_gone", "client_stalled", "shutting_down")
_PHASES = ("first", "decode", "rest")
_KINDS = ("segment", "probe", "prewarm")
_SOURCES = ("cached", "evaluated")

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "requests": (
        "Requests that were answered or given up, but for /health, /ready and /metrics.",
        ("route", "outcome"),
    ),
    "generations": ("Generations that ended, by why.", ("policy", "level", "finish")),
    "tokens": ("Tokens kept, by who wrote them.", ("model", "stage", "policy", "level")),
    "prompt_tokens": ("Tokens of the requests' prompts, each once.", ()),
    "handoffs": ("Changes from one model to the other.", ("direction", "reason", "cue")),
    "fallbacks": ("Segments that failed and that the other model carried on.", ("model",)),
    "delegation_pauses": ("Times that a conversation's delegation was paused.", ()),
    "engine_seconds": (
        "Time of engine requests: until the first token, from there to the last, and the rest.",
        ("model", "phase"),
    ),
    "engine_requests": (
        "Requests to an engine, by what for; one that was repeated counts once.",
        ("model", "kind"),
    ),
    "engine_prompt_tokens": (
        "Prompt tokens of engine requests, found in the prefix cache or computed.",
        ("model", "source"),
    ),
}
"""Name without prefix and suffix -> what it counts, and its labels."""

_OF_MODELS: dict[str, tuple[str, str]] = {
    "decoded_tokens": ("decoded", "Tokens that the phase decode of the engines' time went to."),
    "discarded_tokens": ("discarded", "Tokens received beyond a hand-off and never shown."),
    "reevaluated_tokens": ("reevaluated", "Prompt tokens computed that had been before."),
    "repaired_ids": ("repaired", "Token ids that an engine lost in its stream, restored."),
    "engine_retries": ("retries", "Engine requests repeated as they failed at their start."),
    "hint_stops": ("hint_stops", "Stops at a hinted token where no hand-off was due."),
    "drafted_tokens": ("drafted", "Tokens that speculative decoding guessed."),
    "accepted_tokens": ("accepted", "Guessed tokens that were right."),
}
"""Name -> field of `ModelUsage`, and what it counts; the label is the model."""

_FIRST_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "segment_tokens": (
        "Length of segments.",
        ("model", "stage"),
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    ),
    "handoff_seconds": (
        "From the decision to hand over to the receiver's first token, or to its failure before.",
        ("direction",),
        (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 10),
    ),
    "queue_seconds": (
        "Wait for a place among the requests that run.",
        (),
        (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60),
    ),
    "time_to_first_token_seconds": ("From the request to the first shown text.", (), _FIRST_S),
    "time_to_first_answer_token_seconds": (
        "From the request to the first shown text of the answer.",
        (),
        _FIRST_S,
    ),
    "request_seconds": (
        "From the request to the end of the reply, where it generated.",
        (),
        (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200),
    ),
}
"""Name -> what it measures, its labels, its buckets."""


class Metrics:
    """The counts of one application. It is an observer of requests; see `Watcher`.

    Args:
        profile: of the pair.
        policy: the server's own.
        name: of the pair, as clients call it.
        admission: who runs and who waits.
        breaker: of the small engine.
    """

    def __init__(
        self, profile: Profile, policy: Policy, name: str, admission: Admission, breaker: Breaker
    ) -> None:
        self._allowed = Allowed.of(profile, policy)
        self._registry = registry = CollectorRegistry()
        about = {
            "version": __version__,
            "profile": profile.name,
            "level": profile.level,
            "policy": policy.name,
            "served_model_name": name,
        }
        text = "Always 1; the labels say what is served."
        Gauge("relaygen_info", text, about, registry=registry).labels(**about).set(1)
        registry.register(_Now(admission, breaker))
        kinds = {
            **_COUNTERS,
            **{name: (text, ("model",)) for name, (_, text) in _OF_MODELS.items()},
        }
        self._counters = {
            name: Counter(f"relaygen_{name}", text, labels, registry=registry)
            for name, (text, labels) in kinds.items()
        }
        self._histograms = {
            name: Histogram(f"relaygen_{name}", text, labels, registry=registry, buckets=buckets)
            for name, (text, labels, buckets) in _HISTOGRAMS.items()
        }
        for role in ROLES:  # a rate needs a value before: there with 0 from the start
            self._spend(role, ModelUsage())
            self._count("fallbacks", 0, role)
        for route in (CHAT_ROUTE, TEXT_ROUTE):
            for outcome in OUTCOMES:
                self._count("requests", 0, route, outcome)
        for direction in ("large_to_small", "small_to_large"):
            self._histograms["handoff_seconds"].labels(direction)
        for stage in get_args(Stage):  # a share needs what is shared, also where one has nothing
            for role in ROLES:
                self._count("tokens", 0, role, stage, policy.name, profile.level)
        for finish in (*get_args(Finish), "error"):
            self._count("generations", 0, policy.name, profile.level, finish)

    def page(self) -> bytes:
        """Everything in the text format."""
        return generate_latest(_Shown(self._registry))

    def _count(self, name: str, amount: float, *labels: str) -> None:
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(amount)

    def _measure(self, name: str, value: float | None, *labels: str) -> None:
        histogram = self._histograms[name]
        if value is not None:
            (histogram.labels(*labels) if labels else histogram).observe(value)

    # Observing.

    def waited(self, exchange: Exchange) -> None:
        """A request has its place."""
        self._measure("queue_seconds", exchange.waited)

    def event(self, exchange: Exchange, event: Event) -> None:
        """Hand-offs and failures are counted while the generation goes on."""
        if isinstance(event, HandedOff):
            direction, reason, cue = self._allowed.handoff(event)
            self._count("handoffs", 1, direction, reason, cue)
            self._measure("handoff_seconds", event.seconds, direction)
        elif isinstance(event, FellBack):
            self._count("fallbacks", 1, event.role)

    def ended(self, exchange: Exchange) -> None:
        """A request is over, however it ended."""
        self._count("requests", 1, exchange.route, exchange.outcome)
        order, generation = exchange.order, exchange.generation
        if order is None or generation is None:
            return
        policy, level = self._allowed.order(order)
        failed = generation.finish == "cancelled" and exchange.outcome not in ("ok", *_CUT)
        self._count("generations", 1, policy, level, "error" if failed else generation.finish)
        pauses = sum(gate.pauses for gate in order.task.gates if isinstance(gate, PayGate))
        self._count("delegation_pauses", pauses)
        self._write(generation, policy, level)
        usage = generation.usage
        for role in ROLES:
            self._spend(role, usage.of(role))
        self._measure("request_seconds", exchange.ended - exchange.began)
        first, answer = usage.first_token_seconds, usage.first_answer_seconds
        self._measure("time_to_first_token_seconds", exchange.since_began(first))
        self._measure("time_to_first_answer_token_seconds", exchange.since_began(answer))

    def _write(self, generation: Generation, policy: str, level: str) -> None:
        self._count("prompt_tokens", generation.usage.prompt_tokens)
        for segment in generation.segments:
            self._count("tokens", segment.tokens, segment.role, segment.stage, policy, level)
            if segment.role != "inserted":
                self._measure("segment_tokens", segment.tokens, segment.role, segment.stage)

    def _spend(self, role: Role, usage: ModelUsage) -> None:
        first, decode = usage.first_seconds, usage.decode_seconds
        rest = max(0.0, usage.seconds - first - decode)
        segments = usage.requests - usage.probes - usage.prewarms
        for name, values, amounts in (
            ("engine_seconds", _PHASES, (first, decode, rest)),
            ("engine_requests", _KINDS, (segments, usage.probes, usage.prewarms)),
            ("engine_prompt_tokens", _SOURCES, (usage.cached or 0, usage.evaluated or 0)),
        ):
            for value, amount in zip(values, amounts, strict=True):
                self._count(name, amount, role, value)
        for name, (field, _) in _OF_MODELS.items():
            self._count(name, getattr(usage, field) or 0, role)


class _Now(Collector):
    """What is read off at the moment of asking."""

    def __init__(self, admission: Admission, breaker: Breaker) -> None:
        self._admission = admission
        self._breaker = breaker

    def collect(self) -> Iterator[Metric]:
        """Who runs, who waits, and the breaker."""
        running, waiting = self._admission.running, self._admission.waiting
        yield GaugeMetricFamily("relaygen_requests_running", "Requests that generate now.", running)
        yield GaugeMetricFamily("relaygen_requests_waiting", "Requests that wait.", waiting)
        text = "1 for the state that the small engine's breaker is in, else 0."
        state = GaugeMetricFamily("relaygen_breaker_state", text, labels=["state"])
        now = self._breaker.state
        for each in _STATES:
            state.add_metric([each], each == now)
        yield state
        text = "Times that the small engine's breaker opened."
        yield CounterMetricFamily("relaygen_breaker_opened", text, self._breaker.opened)


class _Shown(Collector):
    """A registry without the library's series of when each series began, which are as many again.

    Args:
        registry: of the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Every metric, its values only."""
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric
