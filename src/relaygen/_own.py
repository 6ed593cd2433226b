"""Parts of one's own: what they lack and what they raise, each in one line."""

from __future__ import annotations

import importlib
import os
import traceback
from pathlib import Path

DEBUG_HINT = "RELAYGEN_DEBUG=1 shows the whole traceback"


def lacking(thing: object, kind: type) -> list[str]:
    """The public parts of a protocol that an object does not have."""
    return [part for part in dir(kind) if not part.startswith("_") and not _has(thing, part)]


def _has(thing: object, part: str) -> bool:
    """A property is there whatever it raises, which is told where it is asked."""
    try:
        return hasattr(type(thing), part) or hasattr(thing, part)
    except Exception:  # of a `__getattr__`
        return False


def shown(thing: object) -> str:
    """Whatever somebody's code gave, in one line of at most 100 characters."""
    try:
        return " ".join(repr(thing).splitlines())[:100]
    except Exception:
        return f"a {type(thing).__name__}, which cannot be shown"


def words(error: BaseException) -> str:
    """What an exception says, in one line; "" where it says nothing, or raises at that too."""
    try:
        return " ".join(str(error).split())
    except Exception:
        return ""


def told(error: BaseException) -> str:
    """An exception that none of us raised, and the line of its author's file that did.

    To be called where it was caught: the first line of its traceback is the catcher's.
    """
    text = words(error)
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)[1:]
        if not frame.filename.startswith("<") and frame.filename != importlib.__file__
    ]
    # What of ours called it says nothing, unless it is ours as well.
    theirs = next((n for n, frame in enumerate(frames) if not _ours(frame.filename)), 0)
    frames = frames[theirs:]
    if not frames:
        return said
    # What it called may have raised it: the author knows his own lines.
    last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    return f"{said} ({os.path.basename(last.filename)}, line {last.lineno})"


def _ours(filename: str) -> bool:
    return Path(__file__).parent in Path(filename).parents
