"""SGLang's two generating routes: what is sent, and chunks of one form from what comes back.

From SGLang's source (0.5.23); not run against a server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .._errors import EngineError, EngineReplyError
from .._types import Constraint, SegmentRequest
from ._completion import choice_grammar
from ._openai import ID, sampling_fields
from ._replies import REFUSALS, TRANSIENT, line, overflow, too_long

_OPENAI = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "sampling_seed": "seed",
}
"""What ``/v1/completions`` calls the native fields; the others have the same names in both."""


def _fields(request: SegmentRequest, limit: int) -> dict[str, Any]:
    """How tokens are drawn and where it ends, by native names. Never stop strings."""
    sent = {
        **sampling_fields(request.sampling),
        "max_new_tokens": limit,
        "min_new_tokens": min(request.min_tokens, limit),
        "ignore_eos": False,  # else stop ids would do nothing
    }
    sent["top_k"] = sent["top_k"] or -1  # 0 is refused
    if request.stop_ids and not request.min_tokens:  # until then the server forbids these as well
        sent["stop_token_ids"] = request.stop_ids
    if request.seed is not None:
        sent["sampling_seed"] = request.seed
    if request.constraint is not None:
        sent.update(_constrained(request.constraint))
    return sent


def _constrained(constraint: Constraint) -> dict[str, str]:
    kind, value = constraint.kind, constraint.value
    if kind == "json_schema":
        return {"json_schema": json.dumps(value)}
    if kind == "json_object":
        return {"json_schema": '{"type": "object"}'}
    if kind == "regex":
        return {"regex": value}
    return {"ebnf": choice_grammar(value) if kind == "choice" else value}


def native_body(request: SegmentRequest, limit: int, rid: str) -> dict[str, Any]:
    """``/generate``'s JSON without the prompt. It refuses fields that it does not know.

    Args:
        request: what is asked.
        limit: tokens to generate, at least 1.
        rid: by which the request can be aborted.
    """
    sent: dict[str, Any] = {
        "rid": rid,
        "stream": True,
        "sampling_params": _fields(request, limit),
    }
    if request.top:
        sent |= {"return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": request.top}
    return sent


def score_body(ids: Sequence[int], start: int) -> dict[str, Any]:
    """``/generate``'s JSON for the log-probabilities of a given text.

    Drawn greedily, since that leaves them at temperature 1 on every version.

    Args:
        ids: the whole text, with one token to spare in the context.
        start: the first position of interest, at least 1.
    """
    return {
        "input_ids": list(ids),
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": start - 1,
        "top_logprobs_num": 2,
    }


def openai_body(request: SegmentRequest, model: str, limit: int, rid: str) -> dict[str, Any]:
    """``/v1/completions``' JSON without the prompt; its candidates have no ids.

    Args:
        request: what is asked, without candidates.
        model: the served name.
        limit: tokens to generate, at least 1.
        rid: by which the request can be aborted.
    """
    fields = _fields(request, limit)
    return {
        "model": model,
        "rid": rid,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "return_spec_tokens_details": True,
        **{_OPENAI.get(name, name): value for name, value in fields.items()},
    }


def openai_chunk(event: dict[str, Any]) -> dict[str, Any]:
    """An event of ``/v1/completions`` in the form that `IdReader` reads.

    Its text is left out. While a character is incomplete, SGLang writes only the whole words before
    it, so that a text does not belong to the ids beside it and no bytes can be learned from it.
    """
    found = {"choices": event.get("choices"), "usage": event.get("usage")}
    try:
        (choice,) = event["choices"]
        found["choices"] = [{**choice, "text": "", "stop_reason": choice.get("matched_stop")}]
    except (KeyError, TypeError, ValueError, AttributeError):
        pass  # one without choices, or what the reader refuses
    extension = event.get("sglext")
    if isinstance(extension, dict):
        found["metrics"] = _drafts(extension.get("spec_tokens_details"))
    return found


class NativeChunks:
    """The events of one ``/generate`` stream in the form that `IdReader` reads.

    An event's lists hold all tokens so far, or with ``--incremental-streaming-output`` only the new
    ones; older servers give only the new ids with all candidates. The count of all tokens tells
    which are new.

    Args:
        role: for error messages.
    """

    def __init__(self, role: str = "") -> None:
        self._role = role
        self._begun = False
        self._seen = 0

    def chunk(self, event: dict[str, Any]) -> dict[str, Any]:
        """One event.

        Raises:
            ContextLengthError: the server gave up because the prompt does not fit.
            EngineReplyError: it makes no sense, or says that the server gave up.
        """
        try:
            meta = event["meta_info"]
            why = meta["finish_reason"] or {}
            if why.get("type") == "abort":
                raise self._gave_up(why)
            count = meta["completion_tokens"]
            ids = self._new(event.get("output_ids") or [], count)  # an empty list may be left out
            if ids is None:
                raise ValueError
            tops = self._new(meta.get("output_top_logprobs") or [], count)
            choice = {
                "text": "",
                "token_ids": ids,
                "finish_reason": why.get("type"),
                "stop_reason": why.get("matched"),
                "logprobs": tops and {"top_logprobs": [_named(row) for row in tops]},
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise EngineReplyError(
                f"an event without output_ids or meta_info: {str(event)[:200]}",
                role=self._role,
                hint="this needs an SGLang whose /generate returns output_ids",
            ) from None
        found: dict[str, Any] = {"choices": [choice], "metrics": _drafts(meta)}
        if not self._begun:
            cached = {"cached_tokens": meta.get("cached_tokens")}
            found["usage"] = {"prompt_tokens_details": cached}
        self._begun, self._seen = True, count
        return found

    def _new(self, listed: list[Any], count: int) -> list[Any] | None:
        """Those of the tokens behind the last event, where there are `count` in all.

        None where the list holds neither all nor the new ones: nobody knows whose they are.
        """
        if self._seen <= count <= len(listed):
            return listed[self._seen : count]
        return listed if len(listed) == count - self._seen else None

    def _gave_up(self, why: dict[str, Any]) -> EngineError:
        message, status = line(str(why.get("message") or "no reason given")), why.get("status_code")
        if too_long(message):
            return overflow(message, self._role)
        return EngineReplyError(
            f"the server gave the request up: {message}",
            role=self._role,
            retryable=status is None or status in TRANSIENT,
            refused=status in REFUSALS,
        )


def _named(row: Any) -> dict[str, float]:
    """The candidates of one token, which are (log-probability, id, text); null is no number."""
    return {f"{ID}{id}": value for value, id, _ in row or () if value is not None}


def _drafts(details: object) -> dict[str, Any] | None:
    """What was drafted, in vLLM's form; it is told behind the last token."""
    if not isinstance(details, dict) or not details.get("spec_num_proposed_drafts"):
        return None
    return {
        "speculative_decoding": {
            "num_draft_tokens": details["spec_num_proposed_drafts"],
            "num_accepted_draft_tokens": details.get("spec_num_correct_drafts"),
        }
    }
