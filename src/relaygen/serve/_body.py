"""A request's body: bytes within limits, JSON that is what it says, fields that are known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from ._errors import ApiError, invalid
from ._fields import IGNORED, REFUSED
from ._requests import CommonRequest

R = TypeVar("R", bound=CommonRequest)

MAX_DEPTH = 64
"""Of nested JSON: beyond it no field makes sense, and engines' parsers give up."""

_TYPES = ("str", "int", "float", "bool", "constrained-str", "constrained-int")
_PLAIN = re.compile(r"[^\[\](]*").fullmatch

_JSON_TYPES = ("application/json", "text/json")


@dataclass(frozen=True, slots=True)
class Body(Generic[R]):
    """A checked request and the names of the fields that were ignored."""

    request: R
    ignored: tuple[str, ...]


async def read_json(request: Request, most: int) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        ApiError: 413, 415, or 400 for what is no JSON object in UTF-8.
        ClientDisconnect: the client went away.
    """
    _check_type(request.headers)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > most:
        raise _too_large(most)
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > most:
            raise _too_large(most)
    return parse(bytes(data))


def _check_type(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind not in _JSON_TYPES and not kind.endswith("+json"):
        raise ApiError(415, "the content type must be application/json", code="wrong_content_type")


def _too_large(most: int) -> ApiError:
    return ApiError(
        413,
        f"the body is larger than {most} bytes",
        code="body_too_large",
        headers={"Connection": "close"},
    )


def parse(data: bytes) -> dict[str, Any]:
    """A JSON object from bytes.

    Raises:
        ApiError: 400.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise invalid("the body is not UTF-8", code="invalid_json") from None
    try:
        body = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object", code="invalid_json")
    _check_depth(body)
    if "\\u" in text:
        _check_surrogates(body)
    return body


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _too_deep() -> ApiError:
    return invalid(f"the body is nested deeper than {MAX_DEPTH}", code="invalid_json")


def _check_depth(body: dict[str, Any]) -> None:
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for each in level:
            values = each.values() if isinstance(each, dict) else each
            below.extend(value for value in values if isinstance(value, (dict, list)))
        if not below:
            return
        level = below
    raise _too_deep()


def _check_surrogates(body: dict[str, Any]) -> None:
    """JSON may escape half a character; no engine takes one."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise invalid("a string is not valid Unicode text", code="invalid_json") from None


def validate(body: dict[str, Any], model: type[R], *, strict: bool) -> Body[R]:
    """Sort the fields by the three lists and check the honoured ones.

    Raises:
        ApiError: 400 with the field's name and the reason.
    """
    known: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in body.items():
        if value is None:
            continue  # the same as absent, as many clients send it
        if name in model.model_fields:
            known[name] = value
        elif name in IGNORED:
            ignored.append(name)
        elif name in REFUSED:
            if not REFUSED[name].allows(value):
                raise invalid(
                    f"{name} is not supported: {REFUSED[name].reason}", name, "unsupported"
                )
        elif strict:
            raise invalid(f"unknown field {name!r}", name[:100], "unknown_field")
        else:
            ignored.append(name)
    try:
        request = model.model_validate(known)
    except ValidationError as error:
        raise _problem(error) from None
    return Body(request, tuple(ignored))


def _problem(error: ValidationError) -> ApiError:
    """The first problem; of a field that may have several types, all that it is not."""
    issues = error.errors(include_url=False, include_input=False, include_context=False)
    place = _place(issues[0]["loc"])
    same = [issue["msg"] for issue in issues if _place(issue["loc"]) == place]
    name = ".".join(place)
    message = "; or ".join(dict.fromkeys(same[:4]))
    return invalid(f"{name}: {message}" if name else message, name or None, "invalid_value")


def _place(where: tuple[int | str, ...]) -> list[str]:
    """The path to a field, without the names that pydantic gives to a type's alternatives."""
    names = [str(part)[:100] for part in where]
    alternative = (n for n, part in enumerate(names) if part in _TYPES or not _PLAIN(part))
    return names[: next(alternative, len(names))]


__all__ = ["Body", "ClientDisconnect", "parse", "read_json", "validate"]
