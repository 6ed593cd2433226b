"""One line of JSON per request on stderr. No key and no word of a prompt or an answer."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from datetime import datetime, timezone
from typing import Any, TextIO

from .._results import Usage

_MOST_CAUSES = 5


class Log:
    """Writes lines.

    Args:
        stream: None for the standard error of the moment.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def line(self, level: str, event: str, **values: Any) -> None:
        """One line; what is None is left out."""
        entry = {"time": now(), "level": level, "event": event}
        entry |= {name: value for name, value in values.items() if value is not None}
        stream = self._stream or sys.stderr
        stream.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
        stream.flush()


def now(seconds: float | None = None) -> str:
    """ISO 8601 in UTC, with milliseconds."""
    moment = datetime.fromtimestamp(time.time() if seconds is None else seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def failure(error: BaseException) -> dict[str, str]:
    """What a line says of an exception that nobody expected: its class and where it was raised.

    Never its text, which may hold what a client sent.
    """
    told: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(told) < _MOST_CAUSES:
        told.insert(0, "".join(traceback.format_tb(seen.__traceback__)) + type(seen).__name__)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return {"exception": type(error).__name__, "traceback": "\n\n".join(told)}


def usage_fields(usage: Usage) -> dict[str, Any]:
    """What a request's line says of the generation."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "large_tokens": usage.large_tokens,
        "small_tokens": usage.small_tokens,
        "discarded_tokens": usage.discarded_tokens,
        "handoffs": usage.handoffs,
        "fallbacks": usage.fallbacks,
        "paused": usage.paused or None,
        "first_token_seconds": _rounded(usage.first_token_seconds),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


class JsonHandler(logging.Handler):
    """What uvicorn has to say, in the same form.

    Args:
        log: where to.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        error = record.exc_info[1] if record.exc_info else None
        self._log.line(
            record.levelname.lower(),
            "server",
            message=" ".join(record.getMessage().split()),
            **({} if error is None else failure(error)),
        )
