"""A request from its first byte to its last, for who counts and for who traces.

See `_metrics` and `_tracing`. Nothing is done for a token of text: what tokens tell is in the usage
when a generation ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from .._events import Event
from .._results import Generation
from ..relay import Generating
from ._responses import finish_of
from ._tasks import Order

CHAT_ROUTE, TEXT_ROUTE = "/v1/chat/completions", "/v1/completions"

_OUTCOMES = {
    "client_gone": "client_gone",
    "client_stalled": "client_stalled",
    "rate_limit_exceeded": "full",
    "shutting_down": "shutting_down",
    "engine_error": "engine_error",
    "engine_unreachable": "engine_unreachable",
    "internal_error": "internal_error",
}
"""What became of a request, by the code of its error; every other code is the request's fault."""

OUTCOMES = ("ok", "invalid", "unauthorized", *_OUTCOMES.values())
"""All there are."""


@dataclass(slots=True)
class Exchange:
    """One request and its reply. Times are `time.perf_counter` seconds.

    Attributes:
        id: the request's, as in the log.
        method: of HTTP.
        path: as the client sent it; see `route`.
        headers: of the request.
        began: when its head was there.
        began_ns: the same as nanoseconds since the epoch.
        order: what is to be generated; None before that is known.
        waited: seconds for a place among the requests that run; None before it has one.
        started: when the generation started; None where it did not.
        generating: the generation; None likewise.
        moments: its events but the text, with the time of each; kept for traces only.
        ended: when the reply was sent.
        status: of HTTP.
        code: of the error; "" where there is none.
        generation: what was written, at the end; None where nothing was generated.
    """

    id: str
    method: str
    path: str
    headers: Mapping[bytes, str]
    began: float = field(default_factory=time.perf_counter)
    began_ns: int = field(default_factory=time.time_ns)
    order: Order | None = None
    waited: float | None = None
    started: float | None = None
    generating: Generating | None = None
    moments: list[tuple[float, Event]] = field(default_factory=list)
    ended: float = 0.0
    status: int = 0
    code: str = ""
    generation: Generation | None = None

    @property
    def route(self) -> str:
        """One of a few: a path is whatever a client wrote."""
        if self.path in (CHAT_ROUTE, TEXT_ROUTE):
            return self.path
        return "/v1/models" if self.path.split("/")[:3] == ["", "v1", "models"] else "other"

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`. A stream that broke is no success, whatever its status was."""
        if self.code in _OUTCOMES:
            return _OUTCOMES[self.code]
        if self.status == 401:
            return "unauthorized"
        if self.status >= 500:
            return "internal_error"
        return "invalid" if self.code or self.status >= 400 else "ok"

    def since_began(self, seconds: float | None) -> float | None:
        """Seconds of the generation's own clock, from the request's beginning on."""
        if seconds is None or self.started is None:
            return None
        return self.started - self.began + seconds


class Observer(Protocol):
    """Who is told."""

    def waited(self, exchange: Exchange) -> None:
        """It has its place."""
        ...

    def event(self, exchange: Exchange, event: Event) -> None:
        """An event of the generation that is no text."""
        ...

    def ended(self, exchange: Exchange) -> None:
        """The reply was sent, or nobody reads it any more."""
        ...


class Watcher:
    """Tells observers of requests.

    Args:
        observers: in this order.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def placed(self, exchange: Exchange, asked: float) -> None:
        """The request may generate; it asked for its place at `asked`."""
        exchange.waited = time.perf_counter() - asked
        for observer in self._observers:
            observer.waited(exchange)

    def start(self, exchange: Exchange, order: Order, generating: Generating) -> None:
        """The generation starts now."""
        exchange.order, exchange.generating = order, generating
        exchange.started = time.perf_counter()

    def event(self, exchange: Exchange, event: Event) -> None:
        """An event that is no text."""
        for observer in self._observers:
            observer.event(exchange, event)

    def end(self, exchange: Exchange, status: int, code: str) -> None:
        """The reply was sent, or nobody reads it any more."""
        exchange.ended = time.perf_counter()
        exchange.status, exchange.code = status, code
        if exchange.generating is not None:
            made = exchange.generating.snapshot()
            whole = exchange.outcome == "ok"
            exchange.generation = replace(made, finish=finish_of(made)) if whole else made
        for observer in self._observers:
            observer.ended(exchange)
