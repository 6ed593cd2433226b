"""Whether two answers say the same."""

from __future__ import annotations

import re

_SPACES = re.compile(r"\s+")


def same_answer(one: str, two: str) -> bool:
    """Equal results where both have a mathematical one, else equal words.

    Mathematics is `math-verify`'s (extra ``eval``); without it, or without a result on both sides,
    the texts are compared with case and white space folded.
    """
    try:
        from math_verify import parse, verify
    except ImportError:
        return _folded(one) == _folded(two)
    # No signal-based timeouts: they work in the main thread only.
    first, second = (parse(text, parsing_timeout=None) for text in (one, two))
    if first and second:
        return bool(verify(first, second, timeout_seconds=None))
    return _folded(one) == _folded(two)


def _folded(text: str) -> str:
    return _SPACES.sub(" ", text).strip().casefold()
