"""A streamed reply: server-sent events, every token its own, sent when it is there.

Plain ASGI: between an event of the relay and the socket there is no task, no queue and no model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .._errors import RelayGenError
from .._events import Event, Text
from .._results import Generation
from ._attend import Attendance, Cut, Gone
from ._chunks import PING, Chunks, error_events
from ._errors import ApiError, api_error, internal, is_defect, unavailable
from ._guard import reply
from ._ready import Ready
from ._tasks import Order
from ._tools import CallParser

_MOST_TOGETHER = 64
"""Events in one body message, so that a burst is not held back for its end."""

ABORT = "relaygen.abort"
"""Our server's extension of ASGI: a function that ends the connection without sending what waits
for a client that does not read."""

Source = Callable[[], AsyncGenerator[Event, None]]


class StreamReply(Response):
    """An ASGI response that runs a generation.

    The status line waits for the first event (or the first ping), so that a failure before it is
    answered with its status.

    Args:
        order: what is answered.
        events: starts the generation; closing what it gives aborts the engines.
        snapshot: what has been written so far.
        chunks: makes the reply's parts.
        attendance: where the work is known.
        headers: of the reply.
        ping, write_timeout: seconds, see `Settings`.
        ended: told how it went: a code where it failed, and an exception that nobody expected.
    """

    def __init__(
        self,
        order: Order,
        events: Source,
        snapshot: Callable[[], Generation],
        chunks: Chunks,
        attendance: Attendance,
        *,
        headers: Mapping[str, str],
        ping: float,
        write_timeout: float,
        ended: Callable[[str | None, Exception | None], None],
    ) -> None:
        super().__init__()
        self._order = order
        self._events = events
        self._snapshot = snapshot
        self._chunks = chunks
        self._attendance = attendance
        self._extra = headers
        self._ping = ping
        self._write_timeout = write_timeout
        self._ended = ended
        self._calls = CallParser() if order.tools else None
        self._waiting: list[bytes] = []
        self._aside: list[bytes] = []  # goes out with the next text
        self._started = False
        self._since: float | None = None  # of the send in progress
        self._latest = time.monotonic()  # of the last send
        self._pinging: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply."""
        self._send = send
        abort = scope.get("extensions", {}).get(ABORT, _nothing)
        problem: ApiError | None = None
        defect: Exception | None = None
        code: str | None = None
        timer = asyncio.ensure_future(self._watch(work := _Work()))
        try:
            await self._attendance.attend(receive, work.run(self._run()))
        except Gone:
            code = "client_gone"
        except Cut:
            if work.stalled:
                code = "client_stalled"
                abort()
            else:
                problem = unavailable("the server is shutting down", code="shutting_down")
        except ApiError as error:
            problem = error
        except RelayGenError as error:
            problem, defect = api_error(error), error if is_defect(error) else None
        except Exception as error:
            problem, defect = internal(), error
        finally:
            others = [task for task in (timer, self._pinging) if task is not None]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        if problem is not None:
            code = problem.code or problem.type
        self._ended(code, defect)
        if problem is not None:
            try:
                await asyncio.wait_for(self._fail(problem), self._write_timeout)
            except asyncio.TimeoutError:
                abort()

    async def _fail(self, problem: ApiError) -> None:
        if not self._started:
            await reply(self._send, problem)
            return
        data = b"".join(self._waiting) + error_events(problem.body)
        await self._send({"type": "http.response.body", "body": data})

    async def _run(self) -> None:
        async with aclosing(self._events()) as events:
            async for event in Ready(events, self._flush):
                if type(event) is not Text:
                    self._aside.append(self._chunks.told(event))
                    continue
                self._tell()
                if self._calls is not None and event.stage == "answer":
                    self._parts(event)
                    if self._order.one_call and self._calls.calls:
                        break
                else:
                    self._waiting.append(self._chunks.text(event))
                if len(self._waiting) >= _MOST_TOGETHER:
                    await self._flush()
        self._tell()
        called = False
        if self._calls is not None:
            last = Text("", "large", "answer")
            self._waiting.extend(self._chunks.part(part, last) for part in self._calls.flush())
            called = bool(self._calls.calls)
        self._waiting.append(self._chunks.end(self._snapshot(), called=called))
        await self._flush(last=True)

    def _tell(self) -> None:
        """What happened before this text goes out with it; alone it would send the status line."""
        if self._aside:
            self._waiting.extend(filter(None, self._aside))
            self._aside.clear()

    def _parts(self, event: Text) -> None:
        assert self._calls is not None
        for part in self._calls.feed(event.text):
            self._waiting.append(self._chunks.part(part, event))

    async def _flush(self, *, last: bool = False) -> None:
        """Send what is waiting."""
        if not self._waiting and not last:
            return
        if self._pinging is not None:
            await self._pinging
        self._since = time.monotonic()
        if not self._started:
            await self._start()
        data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})
        self._latest, self._since = time.monotonic(), None

    async def _start(self) -> None:
        self._started = True
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **self._extra,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        if opening := self._chunks.opening():
            self._waiting.insert(0, opening)

    async def _watch(self, work: _Work) -> None:
        """Pings a silent stream, and stops the work for a client that does not read."""
        while True:
            await asyncio.sleep(min(self._ping, self._write_timeout) / 4)
            now = time.monotonic()
            if self._since is not None:
                if now - self._since >= self._write_timeout:
                    work.stall()
            elif self._pinging is None and now - self._latest >= self._ping:
                self._pinging = asyncio.ensure_future(self._send_ping())

    async def _send_ping(self) -> None:
        self._since = time.monotonic()
        try:
            if not self._started:
                await self._start()
            opening = b"".join(self._waiting)
            self._waiting.clear()
            message: dict[str, Any] = {"type": "http.response.body", "body": opening + PING}
            await self._send({**message, "more_body": True})
        finally:
            self._latest, self._since = time.monotonic(), None
            self._pinging = None


def _nothing() -> None:
    """Other servers have no such thing."""


class _Work:
    """The task that writes, and whether it was stopped because nobody reads."""

    def __init__(self) -> None:
        self.stalled = False
        self._task: asyncio.Task[Any] | None = None

    async def run(self, work: Any) -> None:
        self._task = asyncio.current_task()
        await work

    def stall(self) -> None:
        self.stalled = True
        if self._task is not None:
            self._task.cancel()
