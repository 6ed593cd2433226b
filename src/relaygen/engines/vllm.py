"""A vLLM server as an engine, over its OpenAI-compatible routes with token ids in and out."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from .._errors import ContextLengthError, EngineError, EngineReplyError, EngineUnreachableError
from .._types import Conversation, Delta, End, EngineInfo, Message, Piece, Prompt, SegmentRequest
from ._chat import as_json, split
from ._fingerprint import fingerprint, probe_text
from ._openai import IdReader, body, without_prompt
from ._pieces import RemotePieces, ids_of
from ._scoring import Expected, check_fits, data_of, parse_vllm_scores
from ._wire import Events, Wire, WireOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_KEEP_S = 3.0
"""vLLM closes an unused connection after 5 s."""

_MARKER = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
"""What may be a special token: the server parses those in any text."""


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
        self._pieces = RemotePieces(self._plain, self._detokenize, self._role)
        self._specials: dict[str, bool] = {}
        self._spaced: bool | None = None
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
            found = self._served(models)
            try:
                self._model, context = str(found["id"]), int(found["max_model_len"])
            except (KeyError, TypeError, ValueError):
                raise EngineReplyError(
                    f"{self.url} does not answer as a vLLM server does",
                    role=self._role,
                    hint="give the address of a vLLM server, or use the kind 'completions'",
                ) from None
            ids = await self._ids({"prompt": probe_text(), "add_special_tokens": False})
            name = self._model.replace("\\", "/").rstrip("/")
            name = name.split("/")[-1] if name.startswith(("/", ".")) else name
            self._info = EngineInfo(
                name, context, fingerprint(ids), rollback="free", stop_ids=True, kind="vllm"
            )
        return self._info

    def _served(self, models: Any) -> dict[str, Any]:
        listed = models.get("data") if isinstance(models, dict) else None
        cards = [card for card in listed or () if isinstance(card, dict)]
        for card in cards:
            if self._asked is None or card.get("id") == self._asked:
                return card
        if cards:
            raise EngineReplyError(
                f"{self.url} does not serve {self._asked}",
                role=self._role,
                hint=f"it serves {', '.join(str(card.get('id')) for card in cards)}",
            )
        return {}

    async def _named(self) -> str:
        """The served model's name."""
        if not self._model:
            await self.info()
        return self._model

    async def _ids(self, asked: dict[str, Any]) -> tuple[int, ...]:
        """The server's ``/tokenize``."""
        sent = {"model": await self._named(), **asked}
        return ids_of(await self._wire.post("/tokenize", sent), self._wire)

    async def _plain(self, text: str) -> tuple[int, ...]:
        return await self._ids({"prompt": text, "add_special_tokens": False})

    async def _detokenize(self, ids: Sequence[int]) -> str:
        sent = {"model": await self._named(), "tokens": ids}
        answer = await self._wire.post("/detokenize", sent)
        text = answer.get("prompt") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise EngineReplyError(f"{self.url} answered without a text", role=self._role)
        return text

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation in the model's chat template, as the server's chat route renders it.

        A final assistant message is left open: it is appended to the rendering of the rest, as
        `LlamaServerEngine.render` does.

        Raises:
            EngineError: the server does not answer, or the template refuses the conversation.
            UsageError: a final assistant message that cannot be continued.
        """
        raw = conversation.raw
        if raw is not None:
            if isinstance(raw, str):
                return Prompt(
                    await self._ids({"prompt": raw, "add_special_tokens": True}), raw, raw
                )
            text = await self._detokenize(raw)
            return Prompt(raw, text, text)
        messages, begun = split(conversation)
        closed_ids, ids = await asyncio.gather(
            self._template(messages, conversation, opened=False),
            self._template(messages, conversation, opened=True),
        )
        closed, text = await asyncio.gather(self._detokenize(closed_ids), self._detokenize(ids))
        assistant = text.removeprefix(closed) if text.startswith(closed) else ""
        if begun:
            ids = await self._extended(ids, text, begun)
        return Prompt(ids, text + begun, assistant + begun)

    async def _template(
        self, messages: list[Message], conversation: Conversation, *, opened: bool
    ) -> tuple[int, ...]:
        asked: dict[str, Any] = {
            "messages": [as_json(each) for each in messages],
            "add_generation_prompt": opened,
            "chat_template_kwargs": dict(conversation.template_kwargs),
        }
        if conversation.tools:
            asked["tools"] = [dict(each) for each in conversation.tools]
        return await self._ids(asked)

    async def _extended(self, ids: tuple[int, ...], text: str, begun: str) -> tuple[int, ...]:
        """The ids of both texts, cut as one where the server gives the same ids for the first."""
        alone, whole = await asyncio.gather(self._plain(text), self._plain(text + begun))
        return whole if alone == ids else ids + await self.tokenize(begun, special=True)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Ids of `text` as a continuation: no BOS, and no space that is not in it.

        The server parses special tokens in every text. Without `special` a marker that is one is
        cut behind its first character, so that its parts are plain text.

        Raises:
            EngineError: the server does not answer.
        """
        if not text:
            return ()
        parts = [text] if special else await self._harmless(text)
        found: list[int] = []
        for part in parts:
            found += await self._continuation(part)
        return tuple(found)

    async def _harmless(self, text: str) -> list[str]:
        cuts = []
        for match in _MARKER.finditer(text):
            marker = match.group()
            if marker not in self._specials:
                self._specials[marker] = len(await self._continuation(marker)) == 1
            if self._specials[marker]:
                cuts.append(match.start() + 1)
        return [
            text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)
        ]

    async def _continuation(self, text: str) -> tuple[int, ...]:
        if self._spaced is None:  # some tokenizers put a space before a text
            line, both = await asyncio.gather(self._plain("\n"), self._plain("\na"))
            self._spaced = both[len(line) :] != await self._plain("a")
        if self._spaced:  # a line break takes the space, and no token spans it
            line, both = await asyncio.gather(self._plain("\n"), self._plain("\n" + text))
            if both[: len(line)] == line:
                return both[len(line) :]
        return await self._plain(text)

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
        pieces: list[Piece] = []
        try:
            while batch := await events.read():
                pieces = await _pieces(reader, batch)
                if reader.finished:  # the last tokens come with the end: nothing is left to abort
                    await self._usage(events, reader)
                    break
                if pieces:
                    yield Delta(tuple(pieces))
        finally:
            events.close()
        if not reader.finished:
            raise EngineReplyError(
                "the stream stopped without its last chunk", role=self._role, retryable=True
            )
        end: End = "turn" if reader.turn else "hint" if reader.hint else "length"
        if end == "length" and limit < request.max_tokens:
            end = "context"
        yield Delta(
            tuple(pieces),
            end,
            cached=reader.cached,
            evaluated=reader.evaluated,
            drafted=reader.drafted,
            accepted=reader.accepted,
        )

    @staticmethod
    async def _usage(events: Events, reader: IdReader) -> None:
        """What follows the last tokens; nothing of it is needed."""
        with contextlib.suppress(EngineError):
            while batch := await events.read():
                await _pieces(reader, batch)
            await events.drain()

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


async def _pieces(reader: IdReader, batch: list[dict[str, Any]]) -> list[Piece]:
    found: list[Piece] = []
    for chunk in batch:
        piece = reader.quick(chunk)
        if piece is not None:
            found.append(piece)
        else:
            found += await reader.read(chunk)
    return found
