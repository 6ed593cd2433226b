"""Parts of one's own: what they lack and what they raise, each in one line."""

from __future__ import annotations

import importlib
import os
import traceback

DEBUG_HINT = "RELAYGEN_DEBUG=1 shows the whole traceback"


def lacking(thing: object, kind: type) -> list[str]:
    """The public parts of a protocol that an object does not have."""
    return [part for part in dir(kind) if not part.startswith("_") and not hasattr(thing, part)]


def told(error: BaseException) -> str:
    """An exception that none of us raised, and the line of its author's file that did.

    To be called where it was caught: the first line of its traceback is the catcher's.
    """
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)[1:]
        if not frame.filename.startswith("<") and frame.filename != importlib.__file__
    ]
    if not frames:
        return said
    # What it called may have raised it: the author knows his own lines.
    last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    return f"{said} ({os.path.basename(last.filename)}, line {last.lineno})"
