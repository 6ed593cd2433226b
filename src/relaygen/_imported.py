"""Engines and policies of one's own, named by where Python finds them: ``module:function``."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from typing import Any

from ._errors import UsageError

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_import_path(spec: object) -> bool:
    """Whether it is written as ``package.module:function``."""
    return isinstance(spec, str) and _PATH.fullmatch(spec) is not None


def made(spec: str, argument: object, kind: type[Any]) -> Any:
    """What the function (or class) of that path makes. Its module may be in the working folder.

    This runs the code that is named: whoever starts the program may name it, a request may not.

    Args:
        spec: see `is_import_path`.
        argument: what a function gets that has a parameter without a default.
        kind: a protocol that the result must have.

    Raises:
        UsageError: there is no such module or function, or what it makes is something else.
    """
    place, _, name = spec.partition(":")
    if os.getcwd() not in sys.path:  # as with `python -m`, which the installed command is not
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"{spec!r}: there is no module {error.name!r}",
            hint=f"it is looked for in {os.getcwd()} and where packages are installed; "
            "--help lists the names that need none",
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{spec!r}: {module.__name__} has no function {name!r}")
    needed = [each for each in inspect.signature(function).parameters.values() if _needed(each)]
    result = function(argument) if needed else function()
    lacking = [part for part in dir(kind) if not part.startswith("_") and not hasattr(result, part)]
    if lacking:
        raise UsageError(
            f"{spec!r} made a {type(result).__name__}, which lacks {', '.join(lacking)}",
            hint=f"it must be one of relaygen.{kind.__name__}",
        )
    return result


def _needed(parameter: inspect.Parameter) -> bool:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in optional
