"""What ``calibrate`` and ``eval`` share: which questions, how often, and how long a text may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from relaygen._profile import Profile
from relaygen.cli._help import Command, option

DATA = "The data"
FILES = "Files"

COUNT = click.IntRange(min=1)

_TOKENS = {"none": 1024, "tags": 8192}  # by thinking style

N = option(DATA, "--n", type=COUNT, metavar="N", help="The first N questions. Default: all.")
"""How many questions."""

SEED = option(
    DATA,
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    default=0,
    show_default=True,
    help="Of everything that is drawn.",
)
"""The one seed of all work."""


def runs(what: str) -> Callable[[Command], Command]:
    """How often a question is asked; `what` is counted."""
    return option(
        DATA,
        "--runs",
        type=COUNT,
        metavar="N",
        default=1,
        show_default=True,
        help=f"{what}; more than one needs a temperature.",
    )


def max_tokens(group: str, of: str) -> Callable[[Command], Command]:
    """The most tokens, `of` what; see `answer_tokens`."""
    return option(
        group,
        "--max-tokens",
        type=COUNT,
        metavar="N",
        help=f"Of one {of}. Default: {_TOKENS['none']}, or {_TOKENS['tags']} where the models "
        "think in tags; at most three quarters of an embedded engine's context.",
    )


def step(names: Sequence[str], more: str = "") -> Callable[[Command], Command]:
    """One step of the work alone; `more` is said of it."""
    return option(
        FILES,
        "--step",
        type=click.Choice(names),
        help=f"Do this step only.{more} Default: all, each from where it was stopped.",
    )


def folder(option_name: str, help: str, *, required: bool = False) -> Callable[[Command], Command]:
    """A folder of files."""
    return option(
        FILES,
        option_name,
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        required=required,
        help=help,
    )


def printable(name: str) -> str:
    """A path as files in UTF-8 can hold it: what is no text in it becomes a question mark."""
    return name.encode(errors="replace").decode()


def answer_tokens(profile: Profile, context: int | None) -> int:
    """How many tokens an answer may have where the user does not say.

    Args:
        profile: says how the models think.
        context: tokens of an embedded engine's; three quarters are left behind a question. None
            where none is embedded.
    """
    most = _TOKENS[profile.thinking]
    return most if context is None else min(most, max(1, context * 3 // 4))
