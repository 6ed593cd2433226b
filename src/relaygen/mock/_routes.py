"""The two routes that generate, as plain ASGI: one send per chunk and nothing in between."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any

from ._clock import Receive, Waiter
from ._failures import GARBAGE, Failure
from ._format import DONE, ChatFormat, CompletionFormat, event
from ._generation import Engine, Generation, Step
from ._log import Entry
from ._parameters import BadRequestError, Call, read_call, read_ids, whole
from ._player import OffTraceError
from ._template import render

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

RESET = "relaygen.reset"  # the ASGI extension that breaks the connection

_BROKEN = BadRequestError(
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    status=500,
    kind="InternalServerError",
)


async def read_body(receive: Receive) -> bytes | None:
    """The request's body; None where the client left in the middle of it."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def parse_body(data: bytes) -> dict[str, Any]:
    """The body's JSON object.

    Raises:
        BadRequestError: it is none.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise BadRequestError("The body is not JSON", kind="Bad Request") from None
    if not isinstance(body, dict):
        raise BadRequestError("The body is no JSON object", kind="Bad Request")
    return body


async def send_json(send: Send, value: Any, status: int = 200) -> None:
    """A whole reply."""
    await send_bytes(send, json.dumps(value).encode(), status)


async def send_bytes(send: Send, data: bytes, status: int = 200) -> None:
    """A whole reply, which calls itself JSON."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


class CompletionRoute:
    """``POST /v1/completions``."""

    path = "/v1/completions"
    prefix = "cmpl"
    format: type[CompletionFormat] = CompletionFormat
    prompt_fields = frozenset(("prompt",))

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, body: Mapping[str, Any]) -> Call:
        """What is asked.

        Raises:
            BadRequestError: it makes no sense.
        """
        prompt = body.get("prompt")
        from_text = isinstance(prompt, str)
        ids = (
            self._engine.vocabulary.encode(prompt, special=True)
            if isinstance(prompt, str)
            else read_ids(prompt)
        )
        max_tokens = whole(body, "max_tokens")
        return read_call(
            body,
            ids,
            from_text=from_text,
            context=self._engine.config.context,
            max_stops=self._engine.config.max_stops,
            max_tokens=16 if max_tokens is None else max_tokens,
            top=whole(body, "logprobs"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        started = time.monotonic()
        data = await read_body(receive)
        if data is None:
            return
        try:
            body = parse_body(data)
            check_model(self._engine, body)
            call = self.read(body)
        except BadRequestError as error:
            await send_json(send, error.body, error.status)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        entry = self._engine.log.open(
            id=f"{self.prefix}-{headers.get('x-request-id') or uuid.uuid4().hex}",
            session=headers.get("x-session-id", ""),
            path=self.path,
            received_bytes=len(data),
            started=started,
            request={k: v for k, v in body.items() if k not in self.prompt_fields},
            headers=headers,
        )
        failure = self._engine.failures.take(entry.number, entry.session)
        try:
            await self._answer(call, entry, failure, scope, receive, send)
        finally:
            if entry.ended is None:
                entry.ended = time.monotonic()
            if failure is not None and not entry.failure:
                self._engine.failures.give_back(failure)

    async def _answer(
        self,
        call: Call,
        entry: Entry,
        failure: Failure | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        if failure is not None and failure.kind == "http500":
            entry.failure = "http500"
            await send_json(send, _BROKEN.body, _BROKEN.status)
            return
        try:
            generation = Generation(self._engine, call, entry, failure)
        except OffTraceError as error:
            await self._refuse(call, BadRequestError(str(error)), send)
            return
        waiter = Waiter(receive)
        reply = self.format(self._engine.config, self._engine.vocabulary, call, entry)
        reset = _breaker(scope, waiter)
        try:
            if call.stream:
                await self._stream(generation, reply, waiter, reset, send)
            else:
                await self._whole(generation, reply, waiter, reset, send)
        finally:
            await waiter.aclose()

    async def _refuse(self, call: Call, error: BadRequestError, send: Send) -> None:
        if not call.stream:
            await send_json(send, error.body, error.status)
            return
        await _start(send)
        await send({"type": "http.response.body", "body": event(error.body) + DONE})

    async def _stream(
        self,
        generation: Generation,
        reply: CompletionFormat,
        waiter: Waiter,
        reset: Callable[[], Awaitable[None]],
        send: Send,
    ) -> None:
        await _start(send)
        opening = reply.opening()
        if opening:
            await send({"type": "http.response.body", "body": opening, "more_body": True})
        async with aclosing(generation.steps(waiter)) as steps:
            async for step in steps:
                if step.failure is None:
                    body = reply.chunk(step)
                elif step.failure.kind == "garbage":
                    body = GARBAGE
                elif step.failure.kind == "stall":
                    return await waiter.forever()
                elif step.failure.kind == "reset":
                    return await reset()
                else:
                    error = step.failure.kind == "error"
                    body = event(_BROKEN.body) + DONE if error else b""
                    return await send({"type": "http.response.body", "body": body})
                await send({"type": "http.response.body", "body": body, "more_body": True})
        if not waiter.gone:
            await send({"type": "http.response.body", "body": reply.closing()})

    async def _whole(
        self,
        generation: Generation,
        reply: CompletionFormat,
        waiter: Waiter,
        reset: Callable[[], Awaitable[None]],
        send: Send,
    ) -> None:
        written: list[Step] = []
        async with aclosing(generation.steps(waiter)) as steps:
            async for step in steps:
                kind = "" if step.failure is None else step.failure.kind
                if kind == "garbage":
                    return await send_bytes(send, GARBAGE)
                if kind == "stall":
                    return await waiter.forever()
                if kind == "reset":
                    return await reset()
                if kind == "error":
                    return await send_json(send, _BROKEN.body, _BROKEN.status)
                written.append(step)
        if not waiter.gone:
            await send_json(send, reply.reply(written))


class ChatRoute(CompletionRoute):
    """``POST /v1/chat/completions``."""

    path = "/v1/chat/completions"
    prefix = "chatcmpl"
    format = ChatFormat
    prompt_fields = frozenset(("messages",))

    def read(self, body: Mapping[str, Any]) -> Call:
        """What is asked.

        Raises:
            BadRequestError: it makes no sense.
        """
        text = render_body(self._engine, body)
        asked = whole(body, "max_completion_tokens")
        shown = bool(body.get("logprobs"))
        return read_call(
            body,
            self._engine.vocabulary.encode(text, special=True),
            from_text=True,
            context=self._engine.config.context,
            max_stops=self._engine.config.max_stops,
            max_tokens=whole(body, "max_tokens") if asked is None else asked,
            top=(whole(body, "top_logprobs") or 0) if shown else None,
        )


def render_body(engine: Engine, body: Mapping[str, Any]) -> str:
    """The chat prompt of a body with ``messages``.

    Raises:
        BadRequestError: it makes no sense.
    """
    generation = body.get("add_generation_prompt", True)
    continue_final = body.get("continue_final_message", False)
    if generation and continue_final:
        raise BadRequestError(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
            kind="Bad Request",
        )
    try:
        return render(
            body["messages"],
            generation=bool(generation),
            continue_final=bool(continue_final),
            tools=body.get("tools") or (),
            kwargs=body.get("chat_template_kwargs"),
            plain=engine.config.template == "plain",
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadRequestError(f"the chat template failed: {error}", param="messages") from None


def check_model(engine: Engine, body: Mapping[str, Any]) -> None:
    """A model that is named must be the served one.

    Raises:
        BadRequestError: it is not.
    """
    if body.get("model") not in (None, engine.config.model):
        raise BadRequestError(
            f"The model `{body['model']}` does not exist.",
            status=404,
            kind="NotFoundError",
            param="model",
        )


async def _start(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


def _breaker(scope: Scope, waiter: Waiter) -> Callable[[], Awaitable[None]]:
    """Breaks the connection as a dying process does."""
    break_off = scope.get("extensions", {}).get(RESET)

    async def reset() -> None:
        if break_off is None:
            raise ConnectionResetError("a planned failure")
        break_off()
        await waiter.forever()

    return reset
