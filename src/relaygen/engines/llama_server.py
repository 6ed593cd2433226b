"""A llama.cpp server (``llama-server``) as an engine, over its native HTTP routes.

Token ids go in and come out; the text is made from the ids' bytes. What the routes do is written
down in llama.cpp's ``tools/server/README.md``; where it was seen to differ, a comment says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .._errors import ContextLengthError, EngineError, EngineReplyError, EngineUnreachableError
from .._types import Conversation, Delta, End, EngineInfo, Piece, Prompt, SegmentRequest
from ._cards import card, short_name
from ._completion import ChunkReader, Drafts, body
from ._fingerprint import fingerprint, probe_text
from ._llama_chat import render
from ._pieces import LocalPieces, RemotePieces, detokenize, ids_of, tokenize
from ._scoring import UNKNOWN, Expected, check_fits, data_of, parse_llama_scores
from ._slots import Slots
from ._vocabulary import Vocabulary
from ._wire import Wire, WireOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_LOADING_POLL_S = 0.2
_SETTLING_S, _SETTLING_CHECKS = 0.005, 2000
_SPACED = (1, 4)
"""Values of llama.cpp's ``vocab_type`` (SentencePiece, unigram) that put a space before a text."""


class LlamaServerEngine:
    """One llama-server. Nothing is opened before the first call.

    Args:
        url: ``http://host:port``.
        model: the name of the model, for a server that has several (router mode).
        vocabulary: of the model file, where it is at hand; without it, bytes of ids and lost ids
            are asked from the server.
        load_timeout: seconds to wait for a server that is loading its model.
        options: see `WireOptions`.

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
        model: str | None = None,
        vocabulary: Vocabulary | None = None,
        load_timeout: float = 600.0,
        **options: Unpack[WireOptions],
    ) -> None:
        # No connection is kept: llama-server closes it after every stream and after 5 s, and an
        # aborted stream ends its connection anyway. A fresh one costs 0.3 ms on loopback.
        self._wire = wire = Wire(url, **options)
        self._role = wire.role
        self._extra = {"model": model} if model else {}
        self._vocabulary = vocabulary
        self._load_timeout = load_timeout
        self._pieces: LocalPieces | RemotePieces
        if vocabulary is not None:
            self._pieces = LocalPieces(wire, vocabulary)
        else:
            self._pieces = RemotePieces(
                partial(tokenize, wire, special=False), partial(detokenize, wire), self._role
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
            EngineReplyError: it is no llama-server, or has no such model.
            EngineError: the API key is wrong.
        """
        if self._info is None:
            await self._loaded()
            asked = self._extra.get("model")
            props = await self._wire.get(f"/props?model={quote(asked, '')}" if asked else "/props")
            found = card(await self._wire.get("/v1/models"), asked, self.url, self._role)
            try:
                name, meta = str(found["id"]), found.get("meta") or {}
                spaced = meta.get("vocab_type") in _SPACED
                context = int(props["default_generation_settings"]["n_ctx"])
                total = int(props["total_slots"])
            except (KeyError, TypeError, ValueError, AttributeError):
                raise EngineReplyError(
                    f"{self.url} does not answer as a llama-server does",
                    role=self._role,
                    hint="give the address of a llama-server, without a path",
                ) from None
            self._spaced = spaced
            vocabulary, drafts = await self._fingerprint(), await self._speculates()
            if self._info is None:  # unless a concurrent call was faster
                self._slots = Slots(total)
                self._info = EngineInfo(
                    short_name(name),
                    context,
                    vocabulary,
                    slots=total,
                    kind="llama-server",
                    drafts=drafts,
                    version=str(props.get("build_info") or ""),
                )
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

    async def _fingerprint(self) -> str:
        if self._vocabulary is not None:
            return self._vocabulary.fingerprint
        return fingerprint(await tokenize(self._wire, probe_text(), special=True))

    async def _speculates(self) -> bool:
        """Whether it drafts. Where ``/slots`` is switched off nothing tells."""
        slots: object = None
        with contextlib.suppress(EngineError):
            slots = await self._wire.get("/slots")
        return isinstance(slots, list) and any(
            isinstance(slot, dict) and slot.get("speculative") is True for slot in slots
        )

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation in the model's chat template, as the server's chat route renders it.

        A final assistant message is left open: it is appended to the rendering of the rest. The
        server would do the same, but not for an empty one, nor for models that can think.

        Raises:
            EngineError: the server does not answer, or the template refuses the conversation.
            UsageError: a final assistant message that cannot be continued.
        """
        return await render(self._wire, conversation, self._extra)

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
        The server knows no stop ids: the request's are not sent. Under a constraint `min_tokens`
        does not count, since a grammar says itself where its text may end.

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
        forced = size + (0 if request.constraint else min(request.min_tokens, goal - size))
        while not turn and len(ids) < goal:
            reader = ChunkReader(pieces, request.top, self._role)
            part = _part(request, len(ids) - size, forced - size)
            until = forced if len(ids) < forced else goal
            sent = {**body(part, ids, until - len(ids), slot), **self._extra}
            async with aclosing(self._read(sent, reader, request.session)) as deltas:
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
                if until == goal:
                    break
                continue
            sent = {**sent, "prompt": ids, "n_predict": min(reader.lost, until - len(ids))}
            drafts = Drafts()
            again, turn = await self._redraw(sent, request.session, drafts)
            ids += again
            known = await pieces.read(again, "")
            yield Delta(
                tuple(Piece(*each) for each in known), None, None, None, len(again), *drafts.take()
            )
        end: End = "turn" if turn else "length"
        if not turn and len(ids) - size < request.max_tokens and len(ids) >= context:
            end = "context"
        yield Delta(end=end, cached=cached, evaluated=evaluated)

    async def _read(
        self, sent: dict[str, Any], reader: ChunkReader, session: str
    ) -> AsyncGenerator[Delta, None]:
        """One streamed request, until its last chunk or until ids are lost for good."""
        rest = {name: value for name, value in sent.items() if name != "prompt"}
        events = await self._wire.open(
            "/completion", {**rest, "stream": True}, session, ids=tuple(sent["prompt"])
        )
        try:
            while batch := await events.read():
                for chunk in batch:
                    delta = await reader.read(chunk)
                    if delta is not None:
                        yield delta
                    if reader.done or reader.lost:
                        return
        finally:
            events.close()
        raise EngineReplyError(
            "the stream stopped without its last chunk", role=self._role, retryable=True
        )

    async def _redraw(
        self, sent: dict[str, Any], session: str, drafts: Drafts
    ) -> tuple[list[int], bool]:
        """Generate a few tokens without streaming, which loses no ids; whether the turn ended.

        Greedy decoding gives the lost tokens again. Otherwise they are drawn anew, which is as
        good, since nobody has seen them.
        """
        answer = await self._wire.post(
            "/completion", {**sent, "stream": False, "n_probs": 0}, session
        )
        ids = list(ids_of(answer, self._wire))
        if not ids:
            raise EngineReplyError(f"{self._wire.url} generated nothing", role=self._role)
        drafts.read(answer.get("timings") or {})
        turn = answer.get("stop_type") == "eos"
        if turn:
            ids.pop()
        self.redrawn += len(ids)
        return ids, turn

    async def score(
        self, ids: Sequence[int], start: int, session: str
    ) -> AsyncGenerator[Expected, None]:
        """One request per position, since the server gives nothing of a prompt; see `Scoring`.

        Each but the first computes one token, as the slot's cache holds the rest.

        Raises:
            ContextLengthError: the ids leave no room in the context.
            EngineError: the server does not answer, or gives no probabilities.
        """
        check_fits(ids, (await self.info()).context, self._role)
        slot = self._slots.lease(session, tuple(ids))
        # Tokens inside a character have no entry in the answer. A bias does not change the
        # probabilities that are reported, so a plain letter is drawn whatever is expected.
        plain = (await self.tokenize("a"))[-1]
        asked = {
            "n_predict": 1,
            "n_probs": 2,
            "post_sampling_probs": False,
            "logit_bias": [[plain, 1000]],
            "temperature": 0.0,
            "id_slot": slot,
            "response_fields": ["completion_probabilities"],
            **self._extra,
        }
        for position in range(start, len(ids)):
            if not position:
                yield UNKNOWN  # the server refuses an empty prompt
                continue
            # What the slot held before would move the margins in their last digits.
            cached = position > max(start, 1)
            sent = {**asked, "prompt": list(ids[:position]), "cache_prompt": cached}
            yield parse_llama_scores(await self._wire.post("/completion", sent, session))

    async def data(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of each id of a text; a character's first tokens may have none of it.

        Raises:
            EngineError: the server does not answer, or an id is not in the vocabulary.
        """
        return await data_of(self._pieces, ids)

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
        self._wire.forget(session)

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice; a later call opens new ones."""
        await self._wire.aclose()


def _part(request: SegmentRequest, written: int, forced: int) -> SegmentRequest:
    """What is asked after so many tokens.

    The server has no lower limit of tokens: the first of them come in a request of their own, which
    forbids the end of the turn. A seed draws the same numbers in every request, so it moves on.
    """
    seed = request.seed
    if forced and written and seed is not None:
        seed = (seed + written) % (1 << 32)
    return replace(request, min_tokens=max(forced - written, 0), seed=seed)


def _busy(slots: object, number: int) -> bool:
    if not isinstance(slots, list) or number >= len(slots) or not isinstance(slots[number], dict):
        return False
    return bool(slots[number].get("is_processing"))
