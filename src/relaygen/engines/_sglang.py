"""SGLang's two generating routes: what is sent, and chunks of one form from what comes back.

From SGLang's source (0.5.23); not run against a server.
"""

from __future__ import annotations

import json
from typing import Any

from .._errors import EngineReplyError
from .._types import Constraint, SegmentRequest
from ._completion import choice_grammar
from ._openai import ID, sampling_fields

_OPENAI = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "sampling_seed": "seed",
}
"""What ``/v1/completions`` calls the native fields; the others have the same names in both."""

_BAD_REQUEST = 400


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
    ones; either way the new ones are the last, and the count of all tokens tells how many they are.
    """

    def __init__(self) -> None:
        self._seen: int | None = None

    def chunk(self, event: dict[str, Any]) -> dict[str, Any]:
        """One event.

        Raises:
            EngineReplyError: it makes no sense, or says that the server gave up.
        """
        try:
            meta, ids = event["meta_info"], event["output_ids"]
            why, count = meta["finish_reason"] or {}, meta["completion_tokens"]
            new = count - (self._seen or 0)
            if why.get("type") == "abort":
                raise _gave_up(why)
            if not 0 <= new <= len(ids):
                raise ValueError
            first, self._seen = self._seen is None, count
            tops = meta.get("output_top_logprobs")
            choice = {
                "text": "",
                "token_ids": ids[len(ids) - new :],
                "finish_reason": why.get("type"),
                "stop_reason": why.get("matched"),
                "logprobs": {"top_logprobs": [_named(row) for row in tops[len(tops) - new :]]}
                if tops
                else None,
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise EngineReplyError(
                f"an event without output_ids or meta_info: {str(event)[:200]}",
                hint="this needs an SGLang whose /generate returns output_ids",
            ) from None
        found: dict[str, Any] = {"choices": [choice], "metrics": _drafts(meta)}
        if first:
            cached = {"cached_tokens": meta.get("cached_tokens")}
            found["usage"] = {"prompt_tokens_details": cached}
        return found


def _named(row: Any) -> dict[str, float]:
    """The candidates of one token, which are (log-probability, id, text)."""
    return {f"{ID}{id}": value for value, id, _ in row or ()}


def _gave_up(why: dict[str, Any]) -> EngineReplyError:
    refused = why.get("status_code") == _BAD_REQUEST
    message = " ".join(str(why.get("message") or "no reason given").split())
    return EngineReplyError(
        f"the server gave the request up: {message[:300]}",
        retryable=not refused,
        refused=refused,
    )


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
