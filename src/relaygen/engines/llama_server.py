"""A llama.cpp server (``llama-server``) as an engine, over its native HTTP routes.

Token ids go in and come out; the text is made from the ids' bytes. What the routes do is written
down in llama.cpp's ``tools/server/README.md``; where it was seen to differ, a comment says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from .._errors import ContextLengthError, EngineError, EngineReplyError, EngineUnreachableError
from .._types import Conversation, Delta, End, EngineInfo, Message, Piece, Prompt, SegmentRequest
from ._completion import ChunkReader, body
from ._fingerprint import fingerprint, probe_text
from ._pieces import LocalPieces, RemotePieces, ids_of, tokenize
from ._slots import Slots
from ._vocabulary import Vocabulary
from ._wire import Wire

_LOADING_POLL_S = 0.2
_SETTLING_S, _SETTLING_CHECKS = 0.005, 2000
_SPACED = (1, 4)
"""Values of llama.cpp's ``vocab_type`` (SentencePiece, unigram) that put a space before a text."""


class LlamaServerEngine:
    """One llama-server. Nothing is opened before the first call.

    Args:
        url: ``http://host:port``.
        api_key: where the server wants one.
        vocabulary: of the model file, where it is at hand; without it, bytes of ids and lost ids
            are asked from the server.
        timeout: seconds without an answer, or without an event in a stream, after which a call
            fails. While a long prompt is computed the server's pings count as life.
        load_timeout: seconds to wait for a server that is loading its model.
        role: for error messages.

    Attributes:
        redrawn: tokens generated a second time because the stream had lost their ids and they
            could not be told from the text.

    Raises:
        UsageError: `url` is no HTTP address.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        vocabulary: Vocabulary | None = None,
        timeout: float = 120.0,
        load_timeout: float = 600.0,
        role: str = "",
    ) -> None:
        self._wire = Wire(url, api_key=api_key, timeout=timeout, role=role)
        self._role = role
        self._vocabulary = vocabulary
        self._load_timeout = load_timeout
        self._pieces = (
            LocalPieces(self._wire, vocabulary) if vocabulary else RemotePieces(self._wire)
        )
        self._slots = Slots(0)
        self._spaced = False
        self._info: EngineInfo | None = None
        self.redrawn = 0

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._wire.url

    @property
    def slotless(self) -> int:
        """Conversations that found no free cache slot, so that their cached prefix may be lost."""
        return self._slots.slotless

    @property
    def ambiguous(self) -> int:
        """Repairs of lost ids in which the longest split was taken because nothing decided."""
        return self._pieces.ambiguous

    async def info(self) -> EngineInfo:
        """Asked once. Waits while the server is loading its model.

        Raises:
            EngineUnreachableError: the server does not answer or does not finish loading.
            EngineReplyError: it is no llama-server.
            EngineError: the API key is wrong.
        """
        if self._info is None:
            await self._loaded()
            props, models = await self._wire.get("/props"), await self._wire.get("/v1/models")
            try:
                model = models["data"][0]
                meta = model.get("meta") or {}
                name = str(model["id"])
                context = int(props["default_generation_settings"]["n_ctx"])
                total = int(props["total_slots"])
            except (KeyError, IndexError, TypeError, ValueError, AttributeError):
                raise EngineReplyError(
                    f"{self._wire.url} does not answer as a llama-server does",
                    role=self._role,
                    hint="give the address of a llama-server, without a path",
                ) from None
            self._spaced = meta.get("vocab_type") in _SPACED
            vocabulary = await self._fingerprint(props, meta)
            if self._info is None:  # unless a concurrent call was faster
                self._slots = Slots(total)
                name = name.replace("\\", "/").split("/")[-1] if name.endswith(".gguf") else name
                self._info = EngineInfo(name, context, vocabulary, slots=total)
        return self._info

    async def _loaded(self) -> None:
        deadline = time.monotonic() + self._load_timeout
        while not await self._wire.healthy():
            if time.monotonic() > deadline:
                raise EngineUnreachableError(
                    f"{self._wire.url} is still loading its model after {self._load_timeout:g} s",
                    role=self._role,
                )
            await asyncio.sleep(_LOADING_POLL_S)

    async def _fingerprint(self, props: dict[str, Any], meta: dict[str, Any]) -> str:
        if self._vocabulary is not None:
            return self._vocabulary.fingerprint
        probe = {"content": probe_text(), "add_special": False, "parse_special": True}
        return fingerprint(
            props, meta, await self._wire.post("/tokenize", {**probe, "with_pieces": True})
        )

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation in the model's chat template, as the server's chat route renders it.

        A final assistant message is left open: it is appended to the rendering of the rest. The
        server would do the same, but not for an empty one, nor for models that can think.

        Raises:
            EngineError: the server does not answer, or the template refuses the conversation.
        """
        messages = list(conversation.messages)
        begun = ""
        while messages and messages[-1].role == "assistant":
            begun = messages.pop().content + begun
        begun += conversation.prefill
        closed, opened = await asyncio.gather(
            self._template(messages, conversation, opened=False),
            self._template(messages, conversation, opened=True),
        )
        assistant = opened.removeprefix(closed) if opened.startswith(closed) else ""
        text = opened + begun
        # The template's BOS is not in the server's rendering; its tokenizer adds it (`begin`).
        ids = await tokenize(self._wire, text, special=True, begin=True)
        return Prompt(ids, text, assistant + begun)

    async def _template(
        self, messages: list[Message], conversation: Conversation, *, opened: bool
    ) -> str:
        answer = await self._wire.post(
            "/apply-template",
            {
                "messages": [{"role": each.role, "content": each.content} for each in messages],
                "chat_template_kwargs": dict(conversation.template_kwargs),
                "add_generation_prompt": opened,
            },
        )
        text = answer.get("prompt") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise EngineReplyError(f"{self._wire.url} rendered no prompt", role=self._role)
        return text

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Ids of `text` as a continuation: no BOS, and no space that is not in it.

        Raises:
            EngineError: the server does not answer.
        """
        if not text:
            return ()
        await self.info()
        if self._spaced:  # a line break takes the space, and no token spans it
            anchor = await tokenize(self._wire, "\n", special=special)
            ids = await tokenize(self._wire, "\n" + text, special=special)
            if ids[: len(anchor)] == anchor:
                return ids[len(anchor) :]
        return await tokenize(self._wire, text, special=special)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """Generate. Closing the generator closes the connection, which aborts at the next step.

        A step may be a batch of prompt tokens: an abort while a prompt is computed waits for it.

        Raises:
            ContextLengthError: the ids leave no room in the context; nothing was sent then.
            EngineUnreachableError: refused, reset or stalled.
            EngineReplyError: an answer that makes no sense, or a stream without its last chunk.
        """
        context, size = (await self.info()).context, len(request.ids)
        if size >= context:
            raise ContextLengthError(
                f"the prompt has {size} tokens, the context holds {context}",
                role=self._role,
                hint="start the engine with a larger context (--ctx), or shorten the prompt",
            )
        slot = self._slots.lease(request.session, request.ids)
        goal = size + min(request.max_tokens, context - size)
        ids, pieces = list(request.ids), self._pieces.reader()
        turn = told = False
        cached: int | None = None
        evaluated: int | None = None
        while not turn and len(ids) < goal:
            reader = ChunkReader(pieces, request.top, self._role)
            sent = body(request, ids, goal - len(ids), slot)
            async with aclosing(self._read(sent, reader)) as deltas:
                async for delta in deltas:
                    if not told and reader.cached is not None:
                        told = True
                        delta = replace(delta, cached=reader.cached, evaluated=reader.evaluated)
                    yield delta
            if not told:
                cached, evaluated = reader.cached, reader.evaluated
            ids += reader.ids
            turn = reader.turn
            if not reader.lost:
                break
            sent = body(request, ids, min(reader.lost, goal - len(ids)), slot)
            again, turn = await self._redraw(sent)
            ids += again
            known = await pieces.read(again, "")
            yield Delta(tuple(Piece(*each) for each in known), repaired=len(again))
        end: End = "turn" if turn else "length"
        if not turn and len(ids) - size < request.max_tokens and len(ids) >= context:
            end = "context"
        yield Delta(end=end, cached=cached, evaluated=evaluated)

    async def _read(self, sent: dict[str, Any], reader: ChunkReader) -> AsyncGenerator[Delta, None]:
        """One streamed request, until its last chunk or until ids are lost for good."""
        async with aclosing(self._wire.events("/completion", {**sent, "stream": True})) as events:
            async for chunk in events:
                delta = await reader.read(chunk)
                if delta is not None:
                    yield delta
                if reader.done or reader.lost:
                    return
        raise EngineReplyError(
            "the stream stopped without its last chunk", role=self._role, retryable=True
        )

    async def _redraw(self, sent: dict[str, Any]) -> tuple[list[int], bool]:
        """Generate a few tokens without streaming, which loses no ids; whether the turn ended.

        Greedy decoding gives the lost tokens again. Otherwise they are drawn anew, which is as
        good, since nobody has seen them.
        """
        answer = await self._wire.post("/completion", {**sent, "stream": False, "n_probs": 0})
        ids = list(ids_of(answer, self._wire))
        if not ids:
            raise EngineReplyError(f"{self._wire.url} generated nothing", role=self._role)
        turn = answer.get("stop_type") == "eos"
        if turn:
            ids.pop()
        self.redrawn += len(ids)
        return ids, turn

    async def settled(self, session: str) -> None:
        """Wait until the server computes nothing for this conversation. Never raises.

        Needs the server's ``/slots``; gives up after about ten seconds, since a step may be a batch
        of prompt tokens.
        """
        slot = self._slots.held(session)
        with contextlib.suppress(EngineError):
            for _ in range(_SETTLING_CHECKS):
                slots = await self._wire.get("/slots")
                if slot is None or not _busy(slots, slot):
                    return
                await asyncio.sleep(_SETTLING_S)

    async def release(self, session: str) -> None:
        """The conversation's cache slot is free for another."""
        self._slots.release(session)

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice; a later call opens new ones."""
        await self._wire.aclose()


def _busy(slots: object, number: int) -> bool:
    if not isinstance(slots, list) or number >= len(slots) or not isinstance(slots[number], dict):
        return False
    return bool(slots[number].get("is_processing"))
