"""A vLLM server as an engine, over its OpenAI-compatible routes with token ids in and out."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from .._errors import ContextLengthError, EngineReplyError, EngineUnreachableError
from .._types import Conversation, Delta, EngineInfo, Message, Prompt, SegmentRequest
from ._cards import card, short_name
from ._chat import as_json
from ._fingerprint import fingerprint, probe_text
from ._id_stream import read_deltas
from ._openai import IdReader, body, without_prompt
from ._pieces import RemotePieces, ids_of
from ._scoring import Expected, check_fits, data_of, parse_vllm_scores
from ._server_text import ServerText
from ._wire import Wire, WireOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_KEEP_S = 3.0
"""vLLM closes an unused connection after 5 s."""


class VllmEngine:
    """One vLLM server, 0.10.2 or newer. Nothing is opened before the first call.

    Args:
        url: ``http://host:port``.
        model: the served name, where the server has several; else its first.
        options: see `WireOptions`.

    Raises:
        UsageError: `url` is no HTTP address, or an option makes no sense.
    """

    def __init__(self, url: str, *, model: str | None = None, **options: Unpack[WireOptions]):
        self._wire = Wire(url, keep=_KEEP_S, **options)
        self._role = options.get("role", "")
        self._asked = model
        self._model = model or ""
        self._text = ServerText(self._encode, self._detokenize, self._template)
        self._pieces = RemotePieces(self._text.plain, self._detokenize, self._role)
        self._info: EngineInfo | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._wire.url

    async def info(self) -> EngineInfo:
        """Asked until it is answered once.

        Raises:
            EngineUnreachableError: the server does not answer, or its engine is not ready.
            EngineReplyError: it is no vLLM server, or has no such model.
            EngineError: the API key is wrong.
        """
        if self._info is None:
            status, _ = await self._wire.probe("/health")
            if status == 503:
                raise EngineUnreachableError(f"{self.url} is not ready", role=self._role)
            models = await self._wire.get("/v1/models")  # the only one of these that wants the key
            found = card(models, self._asked, self.url, self._role)
            try:
                self._model, context = str(found["id"]), int(found["max_model_len"])
            except (KeyError, TypeError, ValueError):
                raise EngineReplyError(
                    f"{self.url} does not answer as a vLLM server does",
                    role=self._role,
                    hint="give the address of a vLLM server, or use the kind 'completions'",
                ) from None
            ids = await self._ids({"prompt": probe_text(), "add_special_tokens": False})
            _, told = await self._wire.probe("/version")
            self._info = EngineInfo(
                short_name(self._model),
                context,
                fingerprint(ids),
                rollback="free",
                stop_ids=True,
                kind="vllm",
                version=str(told.get("version") or ""),
            )
        return self._info

    async def _named(self) -> str:
        """The served model's name."""
        if not self._model:
            await self.info()
        return self._model

    async def _ids(self, asked: dict[str, Any]) -> tuple[int, ...]:
        """The server's ``/tokenize``."""
        sent = {"model": await self._named(), **asked}
        return ids_of(await self._wire.post("/tokenize", sent), self._wire)

    async def _encode(self, text: str, begin: bool) -> tuple[int, ...]:
        return await self._ids({"prompt": text, "add_special_tokens": begin})

    async def _detokenize(self, ids: Sequence[int]) -> str:
        sent = {"model": await self._named(), "tokens": ids}
        answer = await self._wire.post("/detokenize", sent)
        text = answer.get("prompt") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise EngineReplyError(f"{self.url} answered without a text", role=self._role)
        return text

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation in the model's chat template, as the server's chat route renders it.

        A final assistant message is left open.

        Raises:
            EngineError: the server does not answer, or the template refuses the conversation.
            UsageError: a final assistant message that cannot be continued.
        """
        return await self._text.render(conversation)

    async def _template(
        self, messages: list[Message], conversation: Conversation, opened: bool
    ) -> tuple[int, ...]:
        asked: dict[str, Any] = {
            "messages": [as_json(each) for each in messages],
            "add_generation_prompt": opened,
            "chat_template_kwargs": dict(conversation.template_kwargs),
        }
        if conversation.tools:
            asked["tools"] = [dict(each) for each in conversation.tools]
        return await self._ids(asked)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Ids of `text` as a continuation: no BOS, and no space that is not in it.

        The server parses special tokens in every text. Without `special` a marker that is one is
        cut behind its first character, so that its parts are plain text.

        Raises:
            EngineError: the server does not answer.
        """
        return await self._text.tokenize(text, special=special)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """Generate. Closing the generator closes the connection, which aborts at once.

        Raises:
            ContextLengthError: the ids leave no room in the context; nothing was sent then.
            EngineUnreachableError: refused, reset or stalled.
            EngineReplyError: an answer that makes no sense, or a stream without its last chunk.
        """
        context, size = (self._info or await self.info()).context, len(request.ids)
        if size >= context:
            raise ContextLengthError(
                f"the prompt has {size} tokens, the context holds {context}",
                role=self._role,
                hint="start the engine with a larger context (--max-model-len), or shorten the "
                "prompt",
            )
        limit = min(request.max_tokens, context - size)
        if limit < 1:
            yield Delta(end="length")
            return
        reader = IdReader(self._pieces, request, self._role)
        events = await self._wire.open(
            "/v1/completions",
            body(request, self._model, limit),
            request.session,
            ids=request.ids,
            extra={"X-Request-Id": secrets.token_hex(16)},
            trim=without_prompt,
        )
        cut = limit < request.max_tokens
        async with aclosing(read_deltas(events, reader, cut=cut, role=self._role)) as deltas:
            async for delta in deltas:
                yield delta

    async def score(
        self, ids: Sequence[int], start: int, session: str
    ) -> AsyncGenerator[Expected, None]:
        """All positions in one request; see `Scoring`. It does not read the server's prefix cache.

        Raises:
            ContextLengthError: the ids leave no room in the context.
            EngineError: the server does not answer, or gives no log-probabilities of a prompt.
        """
        info = await self.info()
        check_fits(ids, info.context, self._role)
        if start >= len(ids):
            return
        sent = {
            "model": self._model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 2,
        }
        reply = await self._wire.post("/v1/completions", sent, session)
        for each in parse_vllm_scores(reply, len(ids), start):
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
        """Close the connections. Safe to call twice; a later call opens new ones."""
        await self._wire.aclose()
