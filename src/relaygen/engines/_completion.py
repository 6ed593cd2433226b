"""llama-server's ``/completion``: what is sent, and deltas from the chunks that come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._errors import EngineReplyError
from .._types import Constraint, Delta, Piece, SegmentRequest
from ._pieces import PieceReader

# The server's default order; what is left out is switched off by not being there.
_SAMPLERS = ["top_k", "top_p", "min_p", "temperature"]
_STOPS = ("eos", "limit")


def body(request: SegmentRequest, ids: Sequence[int], limit: int, slot: int) -> dict[str, Any]:
    """The request's JSON without ``stream``. Never stop strings: they hold text back.

    Args:
        request: for sampling, seed, candidates and constraint; where it has `min_tokens`, the turn
            cannot end.
        ids: the prompt.
        limit: tokens to generate, at least 1 (the server generates one for 0 as well).
        slot: the cache slot, -1 for any.

    Raises:
        EngineReplyError: a constraint that the server does not know.
    """
    sampling = request.sampling
    sent: dict[str, Any] = {
        "prompt": list(ids),
        "n_predict": limit,
        "id_slot": slot,
        "cache_prompt": not request.fresh or len(ids) > len(request.ids),
        "return_tokens": True,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "samplers": ["penalties", *_SAMPLERS] if sampling.penalizes else _SAMPLERS,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "dynatemp_range": 0.0,
        "mirostat": 0,
        "ignore_eos": request.min_tokens > 0,
        "timings_per_token": True,  # a hand-off never sees the last chunk
        "seed": -1 if request.seed is None else request.seed,
        "logit_bias": [[id, bias] for id, bias in sampling.logit_bias.items()],
    }
    if sampling.penalizes:
        sent["repeat_last_n"] = len(ids) + limit  # all of the text, not the last 64 tokens
    if request.constraint is not None:
        sent.update(constrained(request.constraint))
    if request.top:
        sent["n_probs"] = request.top
        sent["post_sampling_probs"] = False
    return sent


def constrained(constraint: Constraint) -> dict[str, Any]:
    """The server's fields for a constraint.

    Raises:
        EngineReplyError: it does not know the kind.
    """
    kind, value = constraint.kind, constraint.value
    if kind == "json_schema":
        return {"json_schema": value}
    if kind == "json_object":
        return {"json_schema": {"type": "object"}}
    if kind == "grammar":
        return {"grammar": value}
    if kind == "choice":
        return {"grammar": choice_grammar(value)}
    raise EngineReplyError(
        f"llama-server has no constraint of the kind {kind!r}",
        hint="use json_schema, json_object, choice or grammar",
        refused=True,
    )


def choice_grammar(texts: Sequence[str]) -> str:
    """A grammar of exactly these texts."""
    return "root ::= " + " | ".join(map(_literal, texts))


def _literal(text: str) -> str:
    """A text in GBNF's quotes."""
    marks = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(marks.get(each, each) for each in text) + '"'


class Drafts:
    """Tokens that the server drafted in one request, told as they come.

    It counts from the start of the request, in every chunk, so that a hand-off loses none of it.
    """

    def __init__(self) -> None:
        self._seen = self._told = (0, 0)

    def read(self, timings: dict[str, Any]) -> None:
        """The counts of a chunk; they are missing where nothing was drafted yet."""
        drafted, accepted = timings.get("draft_n"), timings.get("draft_n_accepted")
        if type(drafted) is int and type(accepted) is int:
            self._seen = drafted, accepted

    def take(self) -> tuple[int, int] | tuple[None, None]:
        """Drafted and accepted since the last call; None where nothing was drafted."""
        if self._seen == self._told:
            return None, None
        drafted, accepted = self._seen[0] - self._told[0], self._seen[1] - self._told[1]
        self._told = self._seen
        return drafted, accepted


class ChunkReader:
    """The chunks of one streamed completion.

    Args:
        pieces: bytes and lost ids of this stream.
        top: candidates asked for.
        role: for error messages.

    Attributes:
        ids: tokens so far, in order.
        lost: tokens were generated behind `ids` that cannot be told (how many); read no further.
        done: the last chunk came.
        turn: it said that the model ended its turn.
        cached: prompt tokens found in the cache, None while unknown.
        evaluated: prompt tokens computed, None while unknown.
    """

    def __init__(self, pieces: PieceReader, top: int, role: str) -> None:
        self._pieces = pieces
        self._top = top
        self._role = role
        self._received = 0
        self._held: Piece | None = None
        self._drafts = Drafts()
        self.ids: list[int] = []
        self.lost = 0
        self.done = self.turn = False
        self.cached: int | None = None
        self.evaluated: int | None = None

    async def read(self, chunk: dict[str, Any]) -> Delta | None:
        """The delta of a chunk; None where it has nothing to say yet.

        Raises:
            EngineReplyError: the chunk makes no sense.
            EngineError: asking the server about a repair failed.
        """
        if "prompt_progress" in chunk:  # carries a token id that is none
            return None
        ids, text, lost = self._count(chunk)
        self._time(chunk)
        held, self._held = self._held, None
        before = [held] if held else []
        if chunk.get("stop"):
            return self._last(chunk, before, lost)
        restored: tuple[int, ...] | None = ()
        if lost:
            restored = await self._pieces.restore(text, lost, ids)
        if restored is None:
            self.lost = lost + len(ids)
            return self._delta(before)
        pieces = await self._read(chunk, [*restored, *ids], text, len(ids))
        if pieces and self._pieces.controls(ids[-1], text):
            self._held = pieces.pop()  # the end of the turn, if the last chunk is next
        return self._delta(before + pieces, lost)

    def _count(self, chunk: dict[str, Any]) -> tuple[list[int], str, int]:
        """Ids and text of a chunk, and how many ids are missing before them."""
        ids, text = chunk.get("tokens"), chunk.get("content")
        predicted = chunk.get("tokens_predicted")
        if not isinstance(ids, list) or not isinstance(text, str) or type(predicted) is not int:
            raise EngineReplyError(
                f"a chunk without tokens, content or tokens_predicted: {str(chunk)[:200]}",
                role=self._role,
                hint="this needs a llama-server of 2025 or newer",
            )
        lost = predicted - self._received - len(ids)
        if lost < 0 or (text and not ids):
            raise EngineReplyError("the server does not return token ids", role=self._role)
        self._received = predicted
        return ids, text, lost

    def _time(self, chunk: dict[str, Any]) -> None:
        timings = chunk.get("timings")
        if not isinstance(timings, dict):
            return
        self._drafts.read(timings)
        if self.cached is None:
            self.cached, self.evaluated = timings.get("cache_n"), timings.get("prompt_n")

    async def _read(
        self, chunk: dict[str, Any], ids: list[int], text: str, received: int
    ) -> list[Piece]:
        self.ids += ids
        known = await self._pieces.read(ids, text) if ids else []
        tops = self._tops(chunk)
        first = len(known) - received
        return [
            Piece(id, data, tops.get(id, ()) if place >= first else ())
            for place, (id, data) in enumerate(known)
        ]

    def _tops(self, chunk: dict[str, Any]) -> dict[int, tuple[tuple[int, float], ...]]:
        """Candidates by the id that was drawn: there are none for lost ids."""
        found = {}
        if self._top:
            try:
                for entry in chunk.get("completion_probabilities") or ():
                    best = (
                        (each["id"], float(each["logprob"]))
                        for each in entry.get("top_logprobs") or ()
                        if each.get("logprob") is not None
                    )
                    found[entry["id"]] = tuple(best)[: self._top]
            except (AttributeError, KeyError, TypeError, ValueError):
                raise EngineReplyError(
                    f"unusable candidates: {str(chunk)[:200]}", role=self._role
                ) from None
        return found

    def _last(self, chunk: dict[str, Any], before: list[Piece], lost: int) -> Delta | None:
        why = chunk.get("stop_type")
        if why not in _STOPS:
            raise EngineReplyError(f"the server stopped for the reason {why!r}", role=self._role)
        self.done = True
        self.turn = why == "eos"
        if self.turn:  # half a character before the end of the turn is no text: dropped
            return self._delta([])
        self.lost = lost
        return self._delta(before)

    def _delta(self, pieces: list[Piece], repaired: int = 0) -> Delta | None:
        drafted, accepted = self._drafts.take()
        if not pieces and drafted is None:
            return None
        return Delta(tuple(pieces), repaired=repaired, drafted=drafted, accepted=accepted)
