"""Whether two answers say the same."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SPACES = re.compile(r"\s+")
_LIMIT_S = 5


def same_answer(one: str, two: str) -> bool:
    """Equal results where both have a mathematical one, else equal words.

    Mathematics is `math-verify`'s (extra ``eval``); without it, or without a result on both sides,
    the texts are compared with case and white space folded.
    """
    try:
        from math_verify import parse, verify
    except ImportError:
        return _folded(one) == _folded(two)
    # Its time limits are signals, which work in the main thread only.
    limit = _LIMIT_S if threading.current_thread() is threading.main_thread() else None
    with _without_warnings("math_verify.parser", "math_verify.grader"):
        first, second = (parse(text, parsing_timeout=limit) for text in (one, two))
        if first and second:
            return bool(verify(first, second, timeout_seconds=limit))
    return _folded(one) == _folded(two)


@contextmanager
def _without_warnings(*names: str) -> Iterator[None]:
    """It warns at every call that a missing limit is the caller's business."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _folded(text: str) -> str:
    return _SPACES.sub(" ", text).strip().casefold()
