"""``/v1/completions`` with token ids: what is sent, and pieces from the chunks that come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._errors import EngineReplyError
from .._types import Constraint, Piece, Sampling, SegmentRequest
from ._pieces import BROKEN, LONGEST_RUN, RemotePieces
from ._repair import spread
from ._replies import line

if TYPE_CHECKING:
    from typing import TypeGuard

ID = "token_id:"
"""What candidates' names begin with, where the server names them by id."""

FAILURES = ("error", "abort")
"""Finish reasons by which a server gives a request up: vLLM's, and SGLang's."""

_PROMPT, _SHORT = b'"prompt_token_ids":[', 1024
_Top = tuple[tuple[int, float], ...]


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """How tokens are drawn; every field, since servers take what is missing from the model."""
    sent: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
    }
    if sampling.logit_bias:  # even an empty one is refused where the server speculates
        sent["logit_bias"] = {str(id): bias for id, bias in sampling.logit_bias.items()}
    return sent


def structured(constraint: Constraint) -> dict[str, Any]:
    """vLLM's ``structured_outputs``."""
    names = {"json_schema": "json", "json_object": "json_object"}
    value = True if constraint.kind == "json_object" else constraint.value
    return {names.get(constraint.kind, constraint.kind): value}


def body(request: SegmentRequest, model: str, limit: int) -> dict[str, Any]:
    """The request's JSON without the prompt.

    Never stop strings: they are found in the joined text, not here.

    Args:
        request: what is asked.
        model: the served name.
        limit: tokens to generate, at least 1.
    """
    sent: dict[str, Any] = {
        "model": model,
        "max_tokens": limit,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        # All that is in the ids is in the text as well, so that ids can be learned from it.
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "include_stop_str_in_output": True,
        "ignore_eos": False,
        "min_tokens": min(request.min_tokens, limit),
        **sampling_fields(request.sampling),
    }
    if request.stop_ids and not request.min_tokens:  # until then the server forbids these as well
        sent["stop_token_ids"] = request.stop_ids
    if request.seed is not None:
        sent["seed"] = request.seed
    if request.top:
        sent["logprobs"] = request.top
        sent["return_tokens_as_token_ids"] = True
    if request.constraint is not None:
        sent["structured_outputs"] = structured(request.constraint)
    return sent


def without_prompt(event: bytes) -> bytes:
    """A stream's first event without the ids of the prompt.

    The server repeats them where it is asked for ids at all, and reading 32,000 of them takes
    milliseconds. Inside a JSON string the quotes would be escaped, so this is the field.
    """
    start = event.find(_PROMPT) if len(event) > _SHORT else -1
    stop = event.find(b"]", start) if start >= 0 else -1
    return event if stop < 0 else event[:start] + b'"prompt_token_ids":[' + event[stop:]


def _are_ids(ids: object) -> TypeGuard[list[int]]:
    return isinstance(ids, list) and all(type(id) is int for id in ids)


class IdReader:
    """The chunks of one streamed completion.

    The bytes of an id are those that were learned before, else the text of a chunk that holds this
    id alone, else the server is asked. A server decodes incrementally: inside a character it writes
    nothing, and then the text of all of its tokens at once. The first text of a stream is not
    trusted: where the prompt ends inside a character, it holds more than the chunk's own tokens.

    Args:
        table: the bytes of this server's ids.
        request: what was asked.
        role: for error messages.

    Attributes:
        begun: a token came.
        finished: the chunk with the finish reason came.
        turn: it said that the model ended its turn.
        hint: it said that the model wrote one of the request's stop ids.
        cached: prompt tokens found in the cache, None while unknown.
        evaluated: prompt tokens computed, None while unknown.
        drafted, accepted: of speculative decoding; None where the server does not tell, which it
            does behind the last token if started with ``--per-request-spec-decode-metrics``.
    """

    def __init__(self, table: RemotePieces, request: SegmentRequest, role: str) -> None:
        self._table = table
        self._known = table.known
        self._request = request
        self._role = role
        self._trusted = False
        self._run: list[int] = []
        self._run_tops: list[_Top] = []
        self.begun = self.finished = self.turn = self.hint = False
        self.cached: int | None = None
        self.evaluated: int | None = None
        self.drafted: int | None = None
        self.accepted: int | None = None

    def quick(self, chunk: dict[str, Any]) -> Piece | None:
        """The piece of the usual chunk, without I/O; None where `read` must look at it."""
        try:
            choice = chunk["choices"][0]
            (id,) = choice["token_ids"]
            data = self._known.get(id)
            if data is None or self._run or choice["finish_reason"] is not None:
                return None
            if chunk.get("usage"):
                return None
            text = choice["text"]
        except (LookupError, TypeError, ValueError):
            return None
        self._trusted = bool(text) or self._trusted
        self.begun = True
        return Piece(id, data, self._tops(choice, 1)[0] if self._request.top else ())

    async def read(self, chunk: dict[str, Any]) -> tuple[Piece, ...]:
        """The pieces that a chunk completes.

        Raises:
            EngineReplyError: the chunk makes no sense.
            EngineError: asking the server about an id failed.
        """
        self._usage(chunk.get("usage"))
        self._metrics(chunk.get("metrics"))
        choices = chunk.get("choices")
        if not choices:
            return ()
        try:
            choice = choices[0]
            ids, text, why = choice["token_ids"], choice["text"], choice["finish_reason"]
            stop = choice.get("stop_reason")
        except (LookupError, TypeError, AttributeError):
            ids = text = why = stop = None
        if not _are_ids(ids) or not isinstance(text, str):
            raise EngineReplyError(
                f"a chunk without token_ids or text: {str(chunk)[:200]}",
                role=self._role,
                hint="this needs a vLLM of 0.10.2 or newer, or an SGLang with return_token_ids; "
                "for other servers use the kind 'completions'",
            )
        tops = self._tops(choice, len(ids)) if self._request.top else [()] * len(ids)
        if why is not None:
            ids = self._finish(why, stop, ids)
        # The text of the last chunk may hold that of the end of the turn.
        pieces = await self._named(ids, "" if self.turn else text, tops)
        return (*pieces, *self._rest()) if self.finished else tuple(pieces)

    def _finish(self, why: object, stop: object, ids: list[int]) -> list[int]:
        """Note how it ended; the ids without the one that ends the turn."""
        self.finished = True
        if why == "length":
            return ids
        if why != "stop" or isinstance(stop, str):
            at = f" at {line(stop, 80)!r}" if isinstance(stop, str) else ""
            raise EngineReplyError(
                f"the server stopped for the reason {why!r}{at}",
                role=self._role,
                retryable=why in FAILURES,
            )
        if stop is not None and stop in self._request.stop_ids:
            self.hint = True
            return ids
        self.turn = True
        return ids[:-1]

    async def _named(self, ids: list[int], text: str, tops: Sequence[_Top]) -> list[Piece]:
        """Ids with their bytes; those inside a character wait for the one that completes it."""
        # A space may stand before a character that is not complete, which some servers hold back.
        if len(ids) == 1 and text and self._trusted and text[-1] not in (BROKEN, " "):
            self._learn(ids[0], text)
        pieces: list[Piece] = []
        for id, top in zip(ids, tops, strict=False):
            self._run.append(id)
            self._run_tops.append(top)
            if len(self._run) == 1 and id in self._known:
                data = [self._known[id]]
            else:
                written = await self._written()
                if written is None:
                    continue
                data = spread(written.encode(), len(self._run))
            self.begun = True
            pieces += map(Piece, self._run, data, self._run_tops)
            self._run, self._run_tops = [], []
        if text:
            self._trusted = True
        return pieces

    def _learn(self, id: int, text: str) -> None:
        if id not in self._known or self._run:
            self._table.remember((*self._run, id), text)

    async def _written(self) -> str | None:
        """What the run wrote; None while it ends inside a character."""
        text = await self._table.text(self._run)
        if text.endswith(BROKEN):
            if not self.begun:
                completed = await self._completed()
                if completed is not None:
                    return completed
            if len(self._run) < LONGEST_RUN:
                return None
            self._trusted = False  # the server still waits
        return text

    async def _completed(self) -> str | None:
        """What the run wrote, where it completes a character that the prompt began.

        Whoever wrote the beginning could not show it: see `_rest`.
        """
        for back in range(1, LONGEST_RUN):
            tail = self._request.ids[-back:]
            if BROKEN not in await self._table.text(tail):
                return None
            text = await self._table.text((*tail, *self._run))
            if BROKEN not in text:
                return text
        return None

    def _rest(self) -> list[Piece]:
        """At the end: tokens whose character is not complete write nothing yet.

        Behind the end of a turn nothing can complete it.
        """
        run, tops = self._run, self._run_tops
        self._run, self._run_tops = [], []
        if self.turn:
            return []
        return [Piece(id, b"", top) for id, top in zip(run, tops, strict=True)]

    def _tops(self, choice: dict[str, Any], count: int) -> list[_Top]:
        """The candidates of each token."""
        try:
            entries = (choice.get("logprobs") or {}).get("top_logprobs") or [None] * count
            if len(entries) != count:
                raise ValueError
            return [self._best(entry) if entry else () for entry in entries]
        except (AttributeError, TypeError, ValueError):
            raise EngineReplyError(
                f"unusable candidates: {str(choice)[:200]}",
                role=self._role,
                hint="the server must name candidates by id (return_tokens_as_token_ids)",
            ) from None

    def _best(self, entry: dict[str, float]) -> _Top:
        found = [(int(name.removeprefix(ID)), float(value)) for name, value in entry.items()]
        found.sort(key=lambda each: -each[1])
        return tuple(found[: self._request.top])

    def _usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if type(cached) is int:
            self.cached = cached
            self.evaluated = len(self._request.ids) - cached

    def _metrics(self, metrics: object) -> None:
        counts = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if not isinstance(counts, dict):
            return
        drafted, accepted = counts.get("num_draft_tokens"), counts.get("num_accepted_draft_tokens")
        if type(drafted) is int and type(accepted) is int:
            self.drafted, self.accepted = drafted, accepted
