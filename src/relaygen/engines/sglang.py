"""An SGLang server as an engine. Experimental: from its source (0.5.23), not run against a server.

``/v1/completions`` brings each event's own ids where the server has ``return_token_ids``; where it
has not, and for candidates, which have no ids there, the native ``/generate`` is used. Its events
repeat the whole text, so it costs more the longer a segment is.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from .._errors import ContextLengthError, EngineError, EngineReplyError, EngineUnreachableError
from .._types import Conversation, Delta, EngineInfo, Message, Prompt, SegmentRequest
from ._cards import card, short_name
from ._chat import as_json
from ._events import Events
from ._fingerprint import fingerprint, probe_text
from ._id_stream import read_deltas
from ._jinja import ChatTemplate
from ._openai import IdReader, without_prompt
from ._per_loop import PerLoop
from ._pieces import RemotePieces, ids_of
from ._scoring import UNKNOWN, Expected, check_fits, data_of, parse_sglang_scores
from ._server_text import ServerText
from ._sglang import NativeChunks, native_body, openai_body, openai_chunk, score_body
from ._wire import Wire, WireOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_KEEP_S = 3.0
"""The server closes an unused connection after 5 s."""

_SPARE = 6
"""A prompt must leave so many tokens of the context free (``max_req_input_len``)."""

_ABORT_S = 5.0
_HINT = "use a newer SGLang, or the kind 'completions' with a chat template"


class SglangEngine:
    """One SGLang server. Nothing is opened before the first call.

    Seeds act only where the server was started with ``--enable-deterministic-inference``, and
    candidates are the model's own probabilities only with ``SGLANG_RETURN_ORIGINAL_LOGPROB=1``.

    Args:
        url: ``http://host:port``.
        model: the served name, where the server has several; else its first.
        template: a chat template (Jinja), for a server too old to render conversations.
        options: see `WireOptions`.

    Raises:
        UsageError: `url` is no HTTP address, or an option makes no sense.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        template: str | None = None,
        **options: Unpack[WireOptions],
    ) -> None:
        self._wire = Wire(url, keep=_KEEP_S, **options)
        self._role = options.get("role", "")
        self._model = self._asked = model
        self._source = template
        self._own: ChatTemplate | None = None
        self._text = ServerText(self._encode, self._detokenize, self._template)
        self._pieces = RemotePieces(self._text.plain, self._detokenize, self._role)
        self._native = False
        self._info: EngineInfo | None = None
        self._aborts: PerLoop[set[asyncio.Task[None]]] = PerLoop(set)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._wire.url

    async def info(self) -> EngineInfo:
        """Asked until it is answered once; one token is generated to see whether ids come back.

        Raises:
            EngineUnreachableError: the server does not answer, or is not ready.
            EngineReplyError: it is no SGLang server, or has no such model.
            EngineError: the API key is wrong.
        """
        if self._info is None:
            status, _ = await self._wire.probe("/ready")  # /health takes a second
            if status == 503:
                raise EngineUnreachableError(f"{self.url} is not ready", role=self._role)
            models = await self._wire.get("/v1/models")
            found = card(models, self._asked, self.url, self._role)
            try:
                self._model, context = str(found["id"]), int(found["max_model_len"])
            except (KeyError, TypeError, ValueError):
                raise self._stranger(found) from None
            ids = await self._met()
            self._native = not await self._returns_ids(ids[:1])
            facts = await self._facts()
            most = facts.get("max_req_input_len")  # less than the model's where memory is short
            self._info = EngineInfo(
                short_name(self._model),
                min(context, most + _SPARE) if type(most) is int else context,
                fingerprint(ids),
                stop_ids=True,
                kind="sglang",
                experimental=True,
                version=str(facts.get("version") or ""),
            )
        return self._info

    def _stranger(self, found: dict[str, Any]) -> EngineReplyError:
        if found.get("parent"):  # its card has no context
            return EngineReplyError(
                f"{found.get('id')} is a LoRA adapter, which this engine cannot ask SGLang for",
                role=self._role,
                hint="serve the adapter merged into its model",
            )
        return EngineReplyError(
            f"{self.url} does not answer as an SGLang server does",
            role=self._role,
            hint="give the address of an SGLang server, or use the kind 'completions'",
        )

    async def _met(self) -> tuple[int, ...]:
        """The ids of the text that every vocabulary is known by."""
        try:
            return await self._encode(probe_text(), False)
        except EngineReplyError as error:
            if not error.retryable:
                error.hint = error.hint or _HINT
            raise

    async def _facts(self) -> dict[str, Any]:
        """What the server says of itself; empty where it does not."""
        _, facts = await self._wire.probe("/server_info")
        if "version" not in facts:  # the older name
            _, facts = await self._wire.probe("/get_server_info")
        return facts

    async def _returns_ids(self, prompt: Sequence[int]) -> bool:
        asked = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": 1,
            "temperature": 0.0,
            "return_token_ids": True,
        }
        try:
            reply = await self._wire.post("/v1/completions", asked)
            return isinstance(reply["choices"][0]["token_ids"], list)
        except EngineReplyError as error:
            if error.retryable:
                raise
            return False  # a router that takes texts only, for example
        except (LookupError, TypeError):
            return False

    async def _post(self, path: str, asked: dict[str, Any]) -> Any:
        if self._model is None:
            await self.info()
        return await self._wire.post(path, {"model": self._model, **asked})

    async def _encode(self, text: str, begin: bool) -> tuple[int, ...]:
        asked = {"prompt": text, "add_special_tokens": begin}
        return ids_of(await self._post("/tokenize", asked), self._wire)

    async def _detokenize(self, ids: Sequence[int]) -> str:
        asked = {"tokens": ids, "skip_special_tokens": False}
        answer = await self._post("/detokenize", asked)
        text = answer.get("text") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise EngineReplyError(f"{self.url} answered without a text", role=self._role)
        return text

    async def _template(
        self, messages: list[Message], conversation: Conversation, opened: bool
    ) -> tuple[int, ...]:
        if self._source is not None:
            self._own = self._own or ChatTemplate(self._source)
            return await self._encode(self._own.render(messages, conversation, opened), True)
        asked: dict[str, Any] = {
            "messages": [as_json(each) for each in messages],
            "add_generation_prompt": opened,
            "chat_template_kwargs": dict(conversation.template_kwargs),
        }
        if conversation.tools:
            asked["tools"] = [dict(each) for each in conversation.tools]
        try:
            return ids_of(await self._post("/tokenize", asked), self._wire)
        except EngineReplyError as error:
            if not error.retryable:
                error.hint = error.hint or (
                    "if this SGLang cannot render conversations, give the chat template "
                    "(--template FILE)"
                )
            raise

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation in the model's chat template, as the server renders it, or in the given
        one. A final assistant message is left open.

        Raises:
            EngineError: the server does not answer, or the template refuses the conversation.
            UsageError: a final assistant message that cannot be continued, or a wrong template.
        """
        return await self._text.render(conversation)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Ids of `text` as a continuation: no BOS, and no space that is not in it.

        Raises:
            EngineError: the server does not answer.
        """
        return await self._text.tokenize(text, special=special)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """Generate. Closing the generator aborts the request by its id.

        The server notices a closed connection only after two seconds. Where it has a key for
        administrators (``--admin-api-key``) it refuses the abort, and those two seconds remain.

        Raises:
            ContextLengthError: the ids leave no room in the context; nothing was sent then.
            EngineUnreachableError: refused, reset or stalled.
            EngineReplyError: an answer that makes no sense, or a stream without its last chunk.
        """
        context, size = (self._info or await self.info()).context, len(request.ids)
        if size >= context - _SPARE:
            raise ContextLengthError(
                f"the prompt has {size} tokens, the context holds {context}, of which {_SPARE} "
                "stay free",
                role=self._role,
                hint="start the engine with a larger context (--context-length, "
                "--mem-fraction-static), or shorten the prompt",
            )
        limit = min(request.max_tokens, context - size - 2)  # the server generates no more
        if limit < 1:
            yield Delta(end="length")
            return
        native = self._native or request.top > 0
        reader = IdReader(self._pieces, request, self._role)
        rid = secrets.token_hex(16)  # of one length: an abort takes all that begin with it
        try:
            events = await self._open(request, limit, rid, native=native)
            chunk = NativeChunks(self._role).chunk if native else openai_chunk
            cut = limit < request.max_tokens
            async with aclosing(
                read_deltas(events, reader, cut=cut, chunk=chunk, role=self._role)
            ) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            if not reader.finished:
                self._abort(rid)

    async def _open(self, request: SegmentRequest, limit: int, rid: str, *, native: bool) -> Events:
        if native:
            sent = native_body(request, limit, rid)
            return await self._wire.open(
                "/generate", sent, request.session, ids=request.ids, prompt="input_ids"
            )
        assert self._model is not None
        return await self._wire.open(
            "/v1/completions",
            openai_body(request, self._model, limit, rid),
            request.session,
            ids=request.ids,
            trim=without_prompt,
        )

    def _abort(self, rid: str) -> None:
        """Nobody waits for it: the other model's turn begins meanwhile."""
        aborts = self._aborts.get()
        task = asyncio.ensure_future(self._aborted(rid))
        aborts.add(task)
        task.add_done_callback(aborts.discard)

    async def _aborted(self, rid: str) -> None:
        # The answer is empty, which is no JSON; and where it fails the closed connection remains.
        with contextlib.suppress(EngineError, asyncio.TimeoutError):
            await asyncio.wait_for(self._wire.post("/abort_request", {"rid": rid}), _ABORT_S)

    async def score(
        self, ids: Sequence[int], start: int, session: str
    ) -> AsyncGenerator[Expected, None]:
        """All positions in one request; see `Scoring`. The prompt may come from the server's cache.

        Raises:
            ContextLengthError: the ids leave no room in the context.
            EngineError: the server does not answer, or gives no log-probabilities of a prompt.
        """
        check_fits(ids, (await self.info()).context - _SPARE, self._role)
        if not start and ids:
            yield UNKNOWN
        start = max(start, 1)
        if start >= len(ids):
            return
        reply = await self._wire.post("/generate", score_body(ids, start), session)
        for each in parse_sglang_scores(reply, len(ids), start):
            yield each

    async def data(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of each id of a text; a character's first tokens may have none of it.

        Raises:
            EngineError: the server does not answer.
        """
        return await data_of(self._pieces, ids)

    async def release(self, session: str) -> None:
        """The conversation's routing token, if there was one, is forgotten."""
        self._wire.forget(session)

    async def aclose(self) -> None:
        """Close the connections, once every abort was sent. Safe to call twice."""
        await asyncio.gather(*(self._aborts.take() or ()))
        await self._wire.aclose()
