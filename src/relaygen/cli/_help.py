"""Options under headings in the help, and options that arrive as one object."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import click

from relaygen.profiles import POLICIES

Command = Callable[..., Any]


class Number(click.FloatRange):
    """A number within a range; click takes nan and inf for numbers too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does it, but for those."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is no such number.", param, ctx)
        return number


class GroupedOption(click.Option):
    """An option that stands under a heading of its own in the help."""

    def __init__(self, *args: Any, group: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Leave the range out: the error names it, and few values are ever outside."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


class GroupedCommand(click.Command):
    """A command whose help has its options by group, and (with `policies`) the policies."""

    policies = True

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each group, in the order of their first options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                groups.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)
        if not self.policies:
            return
        with formatter.section("Policies"):
            formatter.write_dl([(name, text) for name, (_, text) in POLICIES.items()])


class PlainCommand(GroupedCommand):
    """One that has no policy to choose."""

    policies = False


def option(group: str, *names: str, **settings: Any) -> Callable[[Command], Command]:
    """``click.option`` with a group."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


def collecting(
    kind: type[Any], argument: str, options: Sequence[Callable[[Command], Command]]
) -> Callable[[Command], Command]:
    """A decorator: the options' values arrive as one `kind` in the keyword `argument`.

    A field that is no option keeps its default.
    """
    names = [field.name for field in fields(kind)]

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def collected(**given: Any) -> Any:
            value = kind(**{name: given.pop(name) for name in names if name in given})
            return function(**{argument: value}, **given)

        command: Command = collected
        for add in reversed(options):
            command = add(command)
        return command

    return decorate
