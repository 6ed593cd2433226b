"""Engines and policies of one's own, named by where Python finds them: ``module:function``."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from ._errors import RelayGenError, UsageError
from ._own import DEBUG_HINT, lacking, told

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
        UsageError: there is no such module or function, one of them raised something, or what it
            makes is something else.
    """
    function = _found(spec)
    needed = _needed(function)
    names = ", ".join(each.name for each in needed)
    if len(needed) > 1 or any(each.kind is each.KEYWORD_ONLY for each in needed):
        raise UsageError(
            f"{spec!r} needs {names}, and gets one argument at most, by its place",
            hint="name a function that makes it from none or one, or give the others defaults",
        )
    try:
        result = function(argument) if needed else function()
    except RelayGenError:
        raise
    except Exception as error:
        raise _broken(spec, error) from error
    if inspect.iscoroutine(result):
        result.close()  # or Python warns that nobody awaited it
        raise UsageError(f"{spec!r} is a coroutine function", hint="define it without async")
    if isinstance(result, type):
        raise UsageError(f"{spec!r} made the class {result.__name__}, and not one of it")
    missing = lacking(result, kind)
    if missing:
        raise UsageError(
            f"{spec!r} made a {type(result).__name__}, which lacks {', '.join(missing)}",
            hint=f"it must be one of relaygen.{kind.__name__}",
        )
    return result


def _found(spec: str) -> Callable[..., Any]:
    place, _, name = spec.partition(":")
    if os.getcwd() not in sys.path:  # as with `python -m`, which the installed command is not
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise _broken(spec, error) from error
        raise UsageError(
            f"{spec!r}: there is no module {error.name!r}",
            hint=f"it is looked for in {os.getcwd()} and where packages are installed; "
            "--help lists the names that need none",
        ) from None
    except (Exception, SystemExit) as error:  # a script that ends the program is none to import
        raise _broken(spec, error) from error
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        # The name may be another module's, whose place says so.
        found = getattr(module, "__file__", None) or "Python itself"
        raise UsageError(
            f"{spec!r}: {module.__name__} has no function {name!r}",
            hint=f"the module of that name is {found}",
        )
    return function


def _needed(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters without a default."""
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some that are written in C do not tell
        return []
    return [
        each
        for each in parameters
        if each.default is inspect.Parameter.empty and each.kind not in optional
    ]


def _broken(spec: str, error: BaseException) -> UsageError:
    return UsageError(f"{spec!r} raised {told(error)}", hint=DEBUG_HINT)
