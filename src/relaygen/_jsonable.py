"""Events and results as plain data for JSON. Pure; field names are a public promise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from ._errors import UsageError
from ._events import Done, Event
from ._results import Generation, ModelUsage, Segment, Usage
from ._types import ROLES
from .costs import ceiling, large_alone_seconds, measured_costs, speedup

_LATER: Mapping[str, Any] = {"drafted": None, "accepted": None, "prewarms": 0}
"""What older files lack: None where it was not counted, 0 where there was none yet."""


def event_dict(event: Event) -> dict[str, Any]:
    """One event; ``type`` comes first, ``done`` holds the whole generation."""
    if isinstance(event, Done):
        return {"type": event.type, "generation": generation_dict(event.generation)}
    rest = {field.name: getattr(event, field.name) for field in fields(event)}
    return {"type": rest.pop("type"), **rest}


def generation_dict(generation: Generation) -> dict[str, Any]:
    """A generation, with its usage and the estimates that derive from it."""
    return {
        "answer": generation.answer,
        "reasoning": generation.reasoning,
        "text": generation.text,
        "segments": [_segment_dict(segment) for segment in generation.segments],
        "usage": usage_dict(generation.usage),
        "estimate": estimate_dict(generation.usage),
        "finish": generation.finish,
        "notes": list(generation.notes),
    }


def _segment_dict(segment: Segment) -> dict[str, Any]:
    return {
        "role": segment.role,
        "stage": segment.stage,
        "text": segment.text,
        "tokens": segment.tokens,
        "ids": list(segment.ids),
        "cue": segment.cue,
        "why": segment.why,
        "seconds": segment.seconds,
    }


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Counts and measured times; seconds, but where a name ends in ``_ms``."""
    return {
        "large_tokens": usage.large_tokens,
        "small_tokens": usage.small_tokens,
        "inserted_tokens": usage.inserted_tokens,
        "discarded_tokens": usage.discarded_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "handoffs": usage.handoffs,
        "fallbacks": usage.fallbacks,
        "paused": usage.paused,
        "utilization": usage.utilization,
        "seconds": usage.seconds,
        "ms_per_token": usage.ms_per_token,
        "first_token_seconds": usage.first_token_seconds,
        "first_answer_seconds": usage.first_answer_seconds,
        "large": _model_dict(usage.large),
        "small": _model_dict(usage.small),
    }


def _model_dict(usage: ModelUsage) -> dict[str, Any]:
    counted = {field.name: getattr(usage, field.name) for field in fields(usage)}
    return {
        **counted,
        "acceptance": usage.acceptance,
        "decode_ms": usage.decode_ms,
        "catch_up_ms": usage.catch_up_ms,
    }


def usage_from(value: Mapping[str, Any]) -> Usage:
    """The inverse of `usage_dict`; what derives from the rest is not looked at.

    Raises:
        UsageError: a key is missing or a value has another type.
    """
    large, small = (ModelUsage(**_counts(ModelUsage, value.get(role))) for role in ROLES)
    return Usage(large, small, **_counts(Usage, value))


def _counts(kind: type[ModelUsage | Usage], value: object) -> dict[str, Any]:
    """The fields of their own that both kinds of usage have: numbers, None, and a text."""
    if not isinstance(value, Mapping):
        raise UsageError("a part of the usage is missing")
    given = {**_LATER, **cast("Mapping[str, Any]", value)}
    names = [field.name for field in fields(kind) if field.name not in ROLES]
    for name in names:
        wanted = str if name == "paused" else int | float | None
        if (
            name not in given
            or isinstance(given[name], bool)
            or not isinstance(given[name], wanted)
        ):
            raise UsageError(f"{name!r} of the usage is missing or has the wrong type")
    return {name: given[name] for name in names}


def estimate_dict(usage: Usage) -> dict[str, Any]:
    """Estimates, None where too little was measured; the ceilings are of one device and of two."""
    costs, utilization = measured_costs(usage), usage.utilization
    best: dict[int, float | None] = {1: None, 2: None}
    if costs is not None and utilization is not None:
        best = {devices: ceiling(costs, utilization, devices=devices) for devices in best}
    return {
        "large_alone_seconds": large_alone_seconds(usage),
        "speedup": speedup(usage),
        "ceiling_one_device": best[1],
        "ceiling_two_devices": best[2],
    }


def json_line(value: dict[str, Any]) -> str:
    """One line of JSON without its end; other alphabets stay readable."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
