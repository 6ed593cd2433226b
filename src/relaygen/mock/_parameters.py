"""A request's body: what vLLM reads of it, and what it answers when it makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._vocabulary import SIZE

MAX_LOGPROBS = 20


class BadRequestError(Exception):
    """The request is answered with an error instead of a reply.

    Args:
        message: what is wrong.
        status: of HTTP.
        kind: the error's ``type``.
        param: the field.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(slots=True)
class Call:
    """One generation, as asked.

    Attributes:
        ids: the prompt.
        from_text: the ids were made from a text.
        max_tokens: at most this many.
        top: how many candidates to show with each token; None: none of all this.
    """

    ids: list[int]
    from_text: bool
    max_tokens: int
    stream: bool = False
    usage: bool = False
    return_ids: bool = False
    top: int | None = None
    as_ids: bool = False
    temperature: float = 1.0
    stops: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    skip_special: bool = True
    min_tokens: int = 0
    ignore_eos: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


def read_call(
    body: Mapping[str, Any],
    ids: list[int],
    *,
    from_text: bool,
    context: int,
    max_stops: int,
    max_tokens: int | None,
    top: int | None,
) -> Call:
    """The common part of both routes.

    Args:
        body: the request.
        ids: its prompt.
        from_text: it was a text.
        context, max_stops: the engine's.
        max_tokens: asked for; None: as many as fit.
        top: candidates asked for.

    Raises:
        BadRequestError: it cannot be done.
    """
    _check_prompt(ids, context)
    room = context - len(ids)
    if room < 1 or (max_tokens is not None and max_tokens < 1):
        given = room if room < 1 or max_tokens is None else max_tokens
        raise BadRequestError(f"max_tokens must be at least 1, got {given}.", param="max_tokens")
    if max_tokens is not None and max_tokens > context:
        raise BadRequestError(
            f"max_tokens={max_tokens} cannot be greater than max_model_len={context}. "
            "Please request fewer output tokens.",
            param="max_tokens",
        )
    if body.get("n") not in (None, 1):
        raise BadRequestError("this mock engine writes one choice", param="n")
    if top is not None and not 0 <= top <= MAX_LOGPROBS:
        raise BadRequestError(
            f"Requested sample logprobs of {top}, which is greater than max allowed: "
            f"{MAX_LOGPROBS}",
            param="logprobs",
        )
    options = _mapping(body, "stream_options")
    stream = _flag(body, "stream")
    if options and not stream:
        raise _invalid("Stream options can only be defined when `stream=True`.", "stream_options")
    return Call(
        ids=ids,
        from_text=from_text,
        max_tokens=min(room, context if max_tokens is None else max_tokens),
        stream=stream,
        usage=_flag(options, "include_usage"),
        return_ids=_flag(body, "return_token_ids"),
        top=top,
        as_ids=_flag(body, "return_tokens_as_token_ids"),
        temperature=_temperature(body),
        stops=_stops(body.get("stop"), max_stops),
        stop_ids=_stop_ids(body.get("stop_token_ids")),
        include_stop=_flag(body, "include_stop_str_in_output"),
        skip_special=_flag(body, "skip_special_tokens", True),
        min_tokens=whole(body, "min_tokens") or 0,
        ignore_eos=_flag(body, "ignore_eos"),
    )


def whole(body: Mapping[str, Any], name: str) -> int | None:
    """A whole number, or None.

    Raises:
        BadRequestError: it is something else.
    """
    value = body.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _invalid(f"Input should be a valid integer: {name}", name)


def read_ids(value: Any, name: str = "prompt") -> list[int]:
    """A list of token ids.

    Raises:
        BadRequestError: it is something else, or an id is out of range.
    """
    # Sets and extremes: prompts have tens of thousands of ids, and are sent for each segment.
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise _invalid(f"Input should be a list of token ids: {name}", name)
    if value and (min(value) < 0 or max(value) >= SIZE):
        wrong = next(id for id in value if not 0 <= id < SIZE)
        raise BadRequestError(f"Token id {wrong} is out of vocabulary", param=name)
    return value


def _check_prompt(ids: list[int], context: int) -> None:
    if not ids:
        raise BadRequestError("The decoder prompt cannot be empty", param="prompt")
    if len(ids) > context:
        raise BadRequestError(
            f"This model's maximum context length is {context} tokens. However, your request has "
            f"{len(ids)} input tokens. Please reduce the length of the input messages.",
            param="input_tokens",
        )


def _invalid(message: str, param: str) -> BadRequestError:
    return BadRequestError(message, kind="Bad Request", param=param)


def _flag(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _invalid(f"Input should be a valid boolean: {name}", name)
    return value


def _mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _invalid(f"Input should be a valid object: {name}", name)
    return value


def _temperature(body: Mapping[str, Any]) -> float:
    value = body.get("temperature")
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise BadRequestError(
            f"temperature must be non-negative, got {value}.", param="temperature"
        )
    return float(value)


def _stops(value: Any, most: int) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _invalid("Input should be a string or a list of strings: stop", "stop")
    if len(stops) > most:
        raise _invalid(
            f"[{{'type': 'too_long', 'loc': ('body', 'stop'), 'msg': 'List should have at most "
            f"{most} items after validation, not {len(stops)}'}}]",
            "stop",
        )
    if not all(stops):
        raise BadRequestError("stop cannot contain an empty string.", param="stop")
    return tuple(stops)


def _stop_ids(value: Any) -> frozenset[int]:
    return frozenset() if value is None else frozenset(read_ids(value, "stop_token_ids"))
