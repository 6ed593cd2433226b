"""What the routes have in common: the relay, its limits, and how one request is carried out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from .._api import Relay
from .._errors import RelayGenError
from .._events import Event, Text
from .._gate import Breaker, Gate, PayGate
from .._results import Generation
from .._types import ROLES, Role
from ..relay import Generating
from . import _body
from ._answering import Answering
from ._attend import Attendance, Cut, Gone
from ._chunks import Chunks
from ._errors import ApiError, api_error, internal, is_defect, unavailable
from ._limits import Admission
from ._logs import Log, failure, usage_fields
from ._metrics import Metrics
from ._models import Models
from ._requests import ChatRequest, CompletionRequest
from ._responses import Heading, completion
from ._settings import Settings
from ._stream import StreamReply
from ._tasks import Order, Orders
from ._tools import CallParser, Content
from ._tracing import Traces
from ._watch import Exchange, Watcher

ANNOTATE_HEADER = "x-relaygen-annotate"
IGNORED_HEADER = "x-relaygen-ignored"

_DELEGATION = {"closed": "on", "open": "paused", "half-open": "trying again"}
_CLIENT_GONE = 499  # nginx's: nobody reads this answer


class Service:
    """The served pair.

    Args:
        relay: the pair; its engines may be down.
        settings: how to serve.
        policy: how the relay's own policy is written.
        log: where requests are written down.
        traces: where spans go; None: nowhere.

    Attributes:
        admission: who may come in.
        breaker: of the small engine, shared by all requests.
        metrics: the counts.
        watcher: is told of every request.
        draining: whether the server was told to stop.
    """

    def __init__(
        self,
        relay: Relay,
        settings: Settings,
        *,
        policy: str = "",
        log: Log | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.relay = relay
        self.settings = settings
        self.log = log or Log()
        self.models = Models(
            settings.served_model_name,
            relay.profile,
            relay.policy,
            spec=policy,
            created=int(time.time()),
        )
        self.admission = Admission(settings.max_concurrent, settings.max_queue)
        self.breaker = Breaker()
        self.metrics = Metrics(
            relay.profile,
            relay.policy,
            settings.served_model_name,
            self.admission,
            self.breaker,
        )
        self.watcher = Watcher(self.metrics, *([] if traces is None else [traces]))
        self.attendance = Attendance()
        self._orders = Orders(relay.profile, self.models, settings)
        self._answering: dict[Role, Answering] = {
            role: Answering(relay.engines[role]) for role in ROLES
        }

    # Stopping.

    def drain(self) -> None:
        """Let nobody new in."""
        self.admission.draining = True

    def cut(self) -> None:
        """Stop what still runs."""
        self.attendance.cut()

    # Being there.

    async def ready(self) -> Response:
        """200 where the large engine answers; what the small one does is said beside it."""
        large, small = await asyncio.gather(*(self._answering[role].ask() for role in ROLES))
        ready = not large and not self.admission.draining
        body = {
            "status": "ready" if ready else "not ready",
            "large": large or "ok",
            "small": small or "ok",
            "delegation": _DELEGATION[self.breaker.state],
            "draining": self.admission.draining,
            "running": self.admission.running,
            "waiting": self.admission.waiting,
        }
        if ready:
            return JSONResponse(body)
        return JSONResponse(body, 503, headers={"Retry-After": str(self.admission.retry_after)})

    # Answering.

    async def complete(self, request: Request, kind: Literal["chat", "text"]) -> Response:
        """The reply to one of the two generating routes."""
        note: dict[str, Any] = request.scope["state"].setdefault("log", {})
        try:
            self.admission.check()
            body = await self._read(request)
            order, ignored = self._order(body, kind)
            note |= {"model": order.model, "policy": order.policy, "stream": order.stream}
            headers = {IGNORED_HEADER: listed(ignored)} if ignored else {}
            if order.stream:
                return self._streamed(request, order, headers, note)
            return await self._whole(request, order, headers, note)
        except ApiError as error:
            problem = error
        except (Gone, ClientDisconnect):
            note["error"] = "client_gone"
            return Response(status_code=_CLIENT_GONE)
        except Cut:
            problem = unavailable("the server is shutting down", code="shutting_down")
        except RelayGenError as error:
            problem = api_error(error)
            if is_defect(error):
                note |= failure(error)
        except Exception as error:
            note |= failure(error)
            problem = internal()
        note["error"] = problem.code or problem.type
        return response(problem)

    async def _read(self, request: Request) -> dict[str, Any]:
        """The body; a client that sends it drop by drop must not stay for ever."""
        reading = _body.read_json(request, self.settings.max_body)
        try:
            return await asyncio.wait_for(reading, self.settings.write_timeout)
        except asyncio.TimeoutError:
            raise ApiError(
                408,
                f"the body did not arrive within {self.settings.write_timeout:g} s",
                code="body_too_slow",
                headers={"Connection": "close"},
            ) from None

    def _order(
        self, body: dict[str, Any], kind: Literal["chat", "text"]
    ) -> tuple[Order, tuple[str, ...]]:
        strict = self.settings.strict
        if kind == "chat":
            chat = _body.validate(body, ChatRequest, strict=strict)
            return self._orders.chat(chat.request, self._gates), chat.ignored
        text = _body.validate(body, CompletionRequest, strict=strict)
        return self._orders.text(text.request, self._gates), text.ignored

    def _gates(self, seeded: bool) -> tuple[Gate, ...]:
        """The breaker is everybody's; whether delegation pays is each generation's own matter,
        and of no matter where the same tokens are to be drawn again."""
        if self.settings.pause == "off" or seeded:
            return (self.breaker,)
        return (self.breaker, PayGate())

    async def _whole(
        self, request: Request, order: Order, headers: dict[str, str], note: dict[str, Any]
    ) -> Response:
        heading = Heading(order)
        running = _Running(self, order, heading.key, request.scope["state"]["exchange"])
        calls = CallParser() if order.tools else None
        content: list[str] = []

        async def work() -> Generation:
            async with aclosing(running.events()) as events:
                async for event in events:
                    if calls is None or not isinstance(event, Text) or event.stage != "answer":
                        continue
                    content.extend(p.text for p in calls.feed(event.text) if isinstance(p, Content))
                    if order.one_call and calls.calls:
                        break
            return running.snapshot()

        try:
            generation = await self.attendance.attend(request.receive, work())
        finally:
            note |= running.note()
        if calls is not None:
            content.extend(p.text for p in calls.flush() if isinstance(p, Content))
        body = completion(
            order,
            generation,
            heading,
            field=self.settings.reasoning_field,
            content=None if calls is None else "".join(content),
            calls=calls.calls if calls else (),
        )
        return JSONResponse(body, headers=headers)

    def _streamed(
        self, request: Request, order: Order, headers: dict[str, str], note: dict[str, Any]
    ) -> StreamReply:
        heading = Heading(order)
        running = _Running(self, order, heading.key, request.scope["state"]["exchange"])
        annotate = order.annotate
        if annotate is None:
            wish = request.headers.get(ANNOTATE_HEADER)
            annotate = self.settings.annotate if wish is None else wish.lower() in ("1", "true")

        def ended(code: str | None, error: Exception | None) -> None:
            note.update(running.note())
            if code is not None:
                note["error"] = code
            if error is not None:
                note.update(failure(error))

        field = self.settings.reasoning_field
        return StreamReply(
            order,
            running.events,
            running.snapshot,
            Chunks(order, heading, field, annotate=annotate),
            self.attendance,
            headers=headers,
            ping=self.settings.ping,
            write_timeout=self.settings.write_timeout,
            ended=ended,
        )


class _Running:
    """One generation in its place among the others."""

    def __init__(self, service: Service, order: Order, key: str, exchange: Exchange) -> None:
        self._service = service
        self._key = key
        self._exchange = exchange
        self._order = order
        self._generating: Generating | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """Wait for a place, then generate.

        Raises:
            ApiError: there is no place.
            EngineError: an engine failed that nobody could stand in for.
        """
        relay, watcher, exchange = self._service.relay, self._service.watcher, self._exchange
        asked = time.perf_counter()
        async with self._service.admission.place():
            watcher.placed(exchange, asked)
            await relay.check_margins(self._order.task.policy)
            self._generating = relay.generating(
                self._order.task, key=self._key, compare_templates=False
            )
            watcher.start(exchange, self._order, self._generating)
            async with aclosing(self._generating.events()) as events:
                async for event in events:
                    if type(event) is not Text:
                        watcher.event(exchange, event)
                    yield event

    def snapshot(self) -> Generation:
        """What has been written so far."""
        assert self._generating is not None
        return self._generating.snapshot()

    def note(self) -> dict[str, Any]:
        """For the log."""
        if self._generating is None:
            return {}
        return usage_fields(self._generating.snapshot().usage)


def response(error: ApiError) -> Response:
    """An error as a response."""
    return JSONResponse(error.body, error.status, headers=error.headers)


def listed(names: tuple[str, ...], most: int = 1000) -> str:
    """Field names for a header: a client may have sent any text as one."""
    safe = ("".join(c if c.isascii() and c.isprintable() else "?" for c in n) for n in names)
    text = ", ".join(name[:100] for name in safe)
    return text if len(text) <= most else text[: most - 3] + "..."
