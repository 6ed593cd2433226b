"""``--config FILE``: the command's flags from a TOML file, below the environment's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from relaygen._errors import UsageError
from relaygen.cli._help import Command, option

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def config_option(group: str) -> Callable[[Command], Command]:
    """Adds ``--config``, which fills the other options' defaults."""
    return option(
        group,
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_fill,
        help="A TOML file with any of these flags, without the dashes in front.",
    )


def _fill(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    known = {
        each.name: each
        for each in ctx.command.params
        if isinstance(each, click.Option) and each.name not in (None, param.name)
    }
    values = {name.replace("-", "_"): value for name, value in read(path).items()}
    for name, value in values.items():
        if name not in known:
            raise UsageError(f"{path}: there is no flag --{name.replace('_', '-')}")
        _check(path, name, value, known[name])
    ctx.default_map = {**(ctx.default_map or {}), **values}


def read(path: Path) -> dict[str, Any]:
    """The file's entries.

    Raises:
        UsageError: it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {why}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


def _check(path: Path, name: str, value: Any, known: click.Option) -> None:
    """What click would take for something else without a word."""
    flag = name.replace("_", "-")
    if known.is_flag and not isinstance(value, bool):
        raise UsageError(f"{path}: {flag} must be true or false")
    if known.multiple and not isinstance(value, list):
        raise UsageError(f"{path}: {flag} must be a list")
    if isinstance(value, (dict, list)) and not known.multiple:
        raise UsageError(f"{path}: {flag} must be one value")
    if isinstance(value, bool) and not known.is_flag:
        raise UsageError(f"{path}: {flag} is no flag of true or false")
