"""Any server with OpenAI's ``/v1/completions`` as an engine, in text mode."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from .._errors import ContextLengthError, EngineError, EngineReplyError, UsageError
from .._types import (
    Constraint,
    Conversation,
    Delta,
    End,
    EngineInfo,
    Piece,
    Prompt,
    SegmentRequest,
)
from ._cards import card
from ._chat import split
from ._events import Events
from ._jinja import ChatTemplate
from ._openai import FAILURES, sampling_fields
from ._replies import taken
from ._wire import Wire, WireOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_KEEP_S = 3.0
_WORDS = re.compile(r" ?\w+| ?[^\w\s]|\s+")
_ENDS: dict[str, End] = {"stop": "turn", "eos": "turn", "eos_token": "turn", "length": "length"}
_CONTEXTS = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx")
"""Where servers put their context in a model's card."""


class CompletionsEngine:
    """A server that takes and gives text. Nothing is opened before the first call.

    It hides its tokens, so each piece is a word, a sign or a stretch of white space, and counts of
    pieces are counts of words: a limit of tokens is sent to the server as it is, which then stops
    somewhat earlier than after so many words. It gives no candidates and has no stop ids.

    Args:
        url: ``http://host:port``.
        model: the served name, where the server has several; else its first.
        context: tokens that a conversation may hold, where the server does not tell.
        template: the model's Jinja chat template; without it there are only raw texts.
        options: see `WireOptions`.

    Raises:
        UsageError: `url` is no HTTP address, or an option makes no sense.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        context: int | None = None,
        template: str | None = None,
        **options: Unpack[WireOptions],
    ) -> None:
        if context is not None and context < 1:
            raise UsageError(f"context must be at least 1, not {context}")
        self._wire = Wire(url, keep=_KEEP_S, **options)
        self._asked = model
        self._context = context
        self._source = template
        self._template: ChatTemplate | None = None
        self._info: EngineInfo | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._wire.url

    async def info(self) -> EngineInfo:
        """Asked until it is answered once.

        Raises:
            EngineError: the server does not answer, or not with models.
            UsageError: it does not tell its context.
        """
        if self._info is None:
            models = await self._wire.get("/v1/models")
            found = card(models, self._asked, self.url, self._wire.role)
            if not found:
                raise EngineReplyError(
                    f"{self.url} lists no models",
                    role=self._wire.role,
                    hint="give the address of a server with OpenAI's routes, without a path",
                )
            context = self._context or _context(found)
            if context is None:
                raise UsageError(
                    f"{self.url} does not tell how many tokens its model's context holds",
                    hint="give the number (context)",
                )
            self._info = EngineInfo(
                str(found["id"]), context, "", text_only=True, kind="completions"
            )
        return self._info

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation in the given chat template; no ids.

        Raises:
            EngineReplyError: the template refuses the conversation.
            MissingExtraError: jinja2 is not installed.
            UsageError: there is no template, or it is wrong; or a raw prompt of ids.
        """
        raw = conversation.raw
        if isinstance(raw, tuple):
            raise UsageError(f"{self.url} takes texts, not token ids")
        if raw is not None:
            return Prompt((), raw, raw)
        if self._template is None:
            if self._source is None:
                raise UsageError(
                    f"{self.url} has no chat template",
                    hint="give the model's (--template FILE), or use /v1/completions",
                )
            self._template = ChatTemplate(self._source)
        messages, begun = split(conversation)
        closed = self._template.render(messages, conversation, False)
        opened = self._template.render(messages, conversation, True)
        assistant = opened.removeprefix(closed) if opened.startswith(closed) else ""
        return Prompt((), opened + begun, assistant + begun)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """There is nothing to ask.

        Raises:
            EngineReplyError: always.
        """
        raise EngineReplyError(
            f"{self.url} takes texts, and hides its tokens", role=self._wire.role
        )

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """Generate. Closing the generator closes the connection.

        Raises:
            ContextLengthError: the text does not fit.
            EngineUnreachableError: refused, reset or stalled.
            EngineReplyError: an answer that makes no sense, a stream without a finish reason, or a
                constraint that such servers do not know.
        """
        info, text = await self.info(), request.text
        if text is None:
            raise EngineReplyError(f"{self.url} takes texts, not token ids", role=self._wire.role)
        room = info.context - len(_WORDS.findall(text))
        if room < 1:
            raise ContextLengthError(
                f"the prompt has more than the {info.context} tokens that the context holds",
                role=self._wire.role,
                hint="start the engine with a larger context, or shorten the prompt",
            )
        limit = min(request.max_tokens, room)
        if limit < 1:
            yield Delta(end="length")
            return
        reader = _TextReader(self._wire.role)
        events = await self._wire.open(
            "/v1/completions", _body(request, info.model, limit), request.session
        )
        pieces: list[Piece] = []
        begun = False
        try:
            while batch := await events.read():
                try:
                    for chunk in batch:
                        pieces += reader.read(chunk)
                except EngineReplyError:
                    if pieces:  # they came before the failure
                        yield Delta(tuple(pieces))
                    raise
                if reader.end is not None:
                    pieces += await self._rest(events, reader)
                    break
                if pieces:
                    begun = True
                    yield Delta(tuple(pieces))
                    pieces = []
        except EngineReplyError as error:
            if begun:
                taken(error)
            raise
        finally:
            events.close()
        if reader.end is None:
            raise EngineReplyError(
                "the stream stopped without a finish reason", role=self._wire.role, retryable=True
            )
        end = "context" if reader.end == "length" and limit < request.max_tokens else reader.end
        yield Delta(tuple(pieces), end, cached=reader.cached, evaluated=reader.evaluated)

    @staticmethod
    async def _rest(events: Events, reader: _TextReader) -> list[Piece]:
        """What follows the finish reason: usually the usage, which is not needed."""
        found: list[Piece] = []
        events.hasten()
        with contextlib.suppress(EngineError):
            while batch := await events.read():
                found += [piece for chunk in batch for piece in reader.read(chunk)]
            await events.drain()
        return [*found, *reader.rest()]

    async def release(self, session: str) -> None:
        """The conversation's routing token, if there was one, is forgotten."""
        self._wire.forget(session)

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice; a later call opens new ones."""
        await self._wire.aclose()


def _context(card: dict[str, Any]) -> int | None:
    meta = card.get("meta")
    for found in (card, meta if isinstance(meta, dict) else {}):
        for name in _CONTEXTS:
            value = found.get(name)
            if type(value) is int and value > 0:
                return value
    return None


def _body(request: SegmentRequest, model: str, limit: int) -> dict[str, Any]:
    sent: dict[str, Any] = {
        "model": model,
        "prompt": request.text,
        "max_tokens": limit,
        "stream": True,
        "stream_options": {"include_usage": True},
        **sampling_fields(request.sampling),
    }
    if request.min_tokens:
        sent["min_tokens"] = min(request.min_tokens, limit)
    if request.seed is not None:
        sent["seed"] = request.seed
    if request.constraint is not None:
        sent["response_format"] = _format(request.constraint)
    return sent


def _format(constraint: Constraint) -> dict[str, Any]:
    if constraint.kind == "json_object":
        return {"type": "json_object"}
    if constraint.kind == "json_schema":
        return {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": constraint.value},
        }
    raise EngineReplyError(
        f"a plain completions server has no constraint of the kind {constraint.kind!r}",
        hint="use json_schema or json_object",
        refused=True,
    )


class _TextReader:
    """The chunks of one streamed completion.

    Attributes:
        end: why it ended, None while it has not.
        cached: prompt tokens found in the cache, None while unknown.
        evaluated: prompt tokens computed, None while unknown.
    """

    def __init__(self, role: str) -> None:
        self._role = role
        self._half = ""
        self.end: End | None = None
        self.cached: int | None = None
        self.evaluated: int | None = None

    def read(self, chunk: dict[str, Any]) -> list[Piece]:
        """The pieces of a chunk.

        Raises:
            EngineReplyError: the chunk makes no sense.
        """
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage(usage)
        choices = chunk.get("choices")
        if not choices:
            return []
        try:
            text, why = choices[0]["text"], choices[0].get("finish_reason")
        except (LookupError, TypeError, AttributeError):
            text = why = None
        if not isinstance(text, str):
            raise EngineReplyError(f"a chunk without a text: {str(chunk)[:200]}", role=self._role)
        if why is not None:
            if why not in _ENDS:
                raise EngineReplyError(
                    f"the server stopped for the reason {why!r}",
                    role=self._role,
                    retryable=why in FAILURES,
                )
            self.end = _ENDS[why]
        return self._pieces(text)

    def _pieces(self, text: str) -> list[Piece]:
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":  # JSON may cut a character into two escapes
            text, self._half = text[:-1], text[-1]
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return [Piece(None, word.encode()) for word in _WORDS.findall(text)]

    def rest(self) -> tuple[Piece, ...]:
        """What waited for the rest of its character."""
        return (Piece(None, "\ufffd".encode()),) if self._half else ()

    def _usage(self, usage: dict[str, Any]) -> None:
        details, prompt = usage.get("prompt_tokens_details"), usage.get("prompt_tokens")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if type(cached) is int and type(prompt) is int:
            self.cached, self.evaluated = cached, prompt - cached
