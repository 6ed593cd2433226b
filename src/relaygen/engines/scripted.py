"""A public fake engine: plays a fixed text, token by token, at a given speed.

Two of them with the same script behave like two perfect models: whatever the hand-offs, the joined
text must equal the script. Most of this project's tests use it, and so can those of policies and
engines written elsewhere::

    large = ScriptedEngine("First we add. Thus 2 + 2 = 4. Done.")
    small = ScriptedEngine("First we add. Thus 2 + 2 = 4. Done.")
    relay = Relay(large=large, small=small, policy=RelayPolicy.of(["Thus"]))
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from .._errors import ContextLengthError, EngineError
from .._types import Conversation, Delta, End, EngineInfo, Piece, Prompt, SegmentRequest

_WORDS = re.compile(r" ?\w+| ?[^\w\s]|\s")
_FIRST_WORD = 256  # ids below are single bytes
_MARKERS = ("<think>", "</think>", "<|end|>")


class ScriptedTokenizer:
    """A small, lossless tokenizer: words, and bytes for anything that is not ASCII.

    Equal instances are not needed on both engines of a pair: ids derive from the text alone.
    """

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of the text."""
        ids: list[int] = []
        for part in re.split(f"({'|'.join(map(re.escape, _MARKERS))})", text):
            words = [part] if part in _MARKERS else _WORDS.findall(part)
            for word in words:
                if word.isascii():
                    ids.append(_FIRST_WORD + int.from_bytes(word.encode(), "big"))
                else:
                    ids.extend(word.encode())
        return tuple(ids)

    def data(self, id: int) -> bytes:
        """The bytes of one id."""
        if id < _FIRST_WORD:
            return bytes([id])
        number = id - _FIRST_WORD
        return number.to_bytes((number.bit_length() + 7) // 8 or 1, "big")


@dataclass(frozen=True, slots=True)
class Failure:
    """A planted fault.

    Attributes:
        error: what is raised; None ends the stream without a finish reason.
        request: in which stream of the engine's life, counted from 0; None in every one.
        token: after how many tokens of that stream.
    """

    error: EngineError | None
    request: int | None = 0
    token: int = 0


class ScriptedEngine:
    """Plays `script` from wherever the request's ids leave it.

    The position is the ids behind the prompt, so the script goes on rightly whoever wrote the ids
    before. An id that is not the script's raises `EngineError`: the truth is known byte for
    byte. With `free` the script is a function of the text so far, for engines that must disagree.

    Args:
        script: the whole assistant text; the end of the script is the end of the turn.
        free: what to write next given the text behind the prompt, instead of `script`.
        prompt: what `render` puts in front; `{content}` is the last message.
        context: tokens.
        ttft_ms: milliseconds to the first token, and `prefill_ms` more per prompt token.
        token_ms: milliseconds per token.
        burst: tokens per delta, as speculative decoding makes them.
        margin: the margin that every token reports when asked for candidates; a function of the
            token's text, or a number.
        ends_at: positions (tokens of the script) at which this engine wrongly ends its turn.
        failures: planted faults.
        vocabulary: the fingerprint it reports.
        text_only: hide token ids, as a plain completions server does.
        stop_ids: whether it can stop at given ids.
    """

    def __init__(
        self,
        script: str = "",
        *,
        free: Callable[[str], str] | None = None,
        prompt: str = "<user>{content}<assistant>",
        context: int = 32_768,
        ttft_ms: float = 0.0,
        prefill_ms: float = 0.0,
        token_ms: float = 0.0,
        burst: int = 1,
        margin: float | Callable[[str], float] = 0.9,
        ends_at: Sequence[int] = (),
        failures: Sequence[Failure] = (),
        vocabulary: str = "scripted",
        text_only: bool = False,
        stop_ids: bool = True,
    ) -> None:
        self._tokenizer = ScriptedTokenizer()
        self._script = self._tokenizer.encode(script)
        self._free = free
        self._template = prompt
        self._context = context
        self._first_ms, self._prefill_ms, self._token_ms = ttft_ms, prefill_ms, token_ms
        self._burst = burst
        self._margin = margin
        self._ends_at = frozenset(ends_at)
        self._failures = tuple(failures)
        self._vocabulary = "" if text_only else vocabulary
        self._text_only = text_only
        self._stops = stop_ids and not text_only
        self._prompts: dict[tuple[int, ...], None] = {}
        self.requests: list[SegmentRequest] = []
        self.aborted = 0
        self.released: list[str] = []

    async def info(self) -> EngineInfo:
        """Name, context and fingerprint as given."""
        return EngineInfo(
            "scripted",
            self._context,
            self._vocabulary,
            rollback="free",
            text_only=self._text_only,
            stop_ids=self._stops,
            kind="scripted",
        )

    async def render(self, conversation: Conversation) -> Prompt:
        """The template with the last message, and the prefill behind it."""
        raw = conversation.raw
        if raw is not None:
            ids = self._tokenizer.encode(raw) if isinstance(raw, str) else raw
            text = b"".join(map(self._tokenizer.data, ids)).decode(errors="replace")
            self._prompts[ids] = None
            return Prompt(() if self._text_only else ids, text, text)
        head = self._template.replace("{content}", conversation.messages[-1].content)
        ids = self._tokenizer.encode(head)
        prefill = self._tokenizer.encode(conversation.prefill)
        self._prompts[ids + prefill] = None
        text = head + conversation.prefill
        return Prompt(() if self._text_only else ids + prefill, text, conversation.prefill)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Ids of the text; markers are always parsed."""
        return self._tokenizer.encode(text)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """Play the script."""
        number = len(self.requests)
        self.requests.append(request)
        ids = request.ids
        if self._text_only:
            if ids or request.text is None:
                raise EngineError("this engine takes text, not ids")
            ids = self._tokenizer.encode(request.text)
        if len(ids) >= self._context:
            raise ContextLengthError(f"{len(ids)} tokens do not fit {self._context}")
        written = self._behind_prompt(ids)
        room = self._context - len(ids)
        finished = False
        try:
            await self._sleep(self._first_ms + self._prefill_ms * len(ids))
            sent = 0
            pieces: list[Piece] = []
            end: End | None = None
            while end is None:
                failure = self._failure(number, sent)
                if failure is not None and failure.error is not None:
                    raise failure.error
                if failure is not None:
                    return
                following = self._next(written)
                wrong = len(written) in self._ends_at and sent and sent >= request.min_tokens
                if following is None or wrong:
                    end = "turn"
                elif sent >= request.max_tokens:
                    end = "length"
                elif sent >= room:
                    end = "context"
                else:
                    await self._sleep(self._token_ms)
                    pieces.append(self._piece(following, request.top))
                    written = (*written, following)
                    sent += 1
                    if self._stops and following in request.stop_ids:
                        end = "hint"
                    elif len(pieces) < self._burst:
                        continue
                evaluated = len(ids) if sent <= len(pieces) else None
                cached = 0 if evaluated is not None else None
                yield Delta(tuple(pieces), end, cached=cached, evaluated=evaluated)
                pieces = []
            finished = True
        finally:
            self.aborted += not finished

    def _behind_prompt(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        for prompt in self._prompts:
            if ids[: len(prompt)] == prompt:
                return ids[len(prompt) :]
        if self._prompts or self._free is not None:
            return ids
        # The other engine rendered it: what is written is the longest end that begins the script.
        most = min(len(ids), len(self._script))
        lengths = (n for n in range(most, 0, -1) if ids[-n:] == self._script[:n])
        written = next(lengths, 0)
        return ids[len(ids) - written :] if written or most == 0 else ()

    def _next(self, written: tuple[int, ...]) -> int | None:
        """The id that follows, None at the end of the turn."""
        if self._free is not None:
            text = b"".join(map(self._tokenizer.data, written)).decode(errors="replace")
            following = self._tokenizer.encode(self._free(text))
            return following[0] if following else None
        if written != self._script[: len(written)]:
            raise EngineError("the ids sent are not the prompt and a beginning of the script")
        return self._script[len(written)] if len(written) < len(self._script) else None

    def _failure(self, number: int, sent: int) -> Failure | None:
        return next(
            (f for f in self._failures if f.token == sent and f.request in (None, number)), None
        )

    def _piece(self, id: int, top: int) -> Piece:
        data = self._tokenizer.data(id)
        margin = self._margin
        if callable(margin):
            margin = margin(data.decode(errors="replace"))
        first, second = (1 + margin) / 2, (1 - margin) / 2
        best = [(id, math.log(first)), (0, math.log(second) if second > 0 else -math.inf)]
        return Piece(None if self._text_only else id, data, tuple(best[:top]))

    async def _sleep(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000.0)

    async def release(self, session: str) -> None:
        """Remember that the conversation is over."""
        self.released.append(session)

    async def aclose(self) -> None:
        """Nothing to free."""
