"""Writes docs/reference/ from the code: every command, every setting, every public name.

Usage: python scripts/reference.py           writes the pages
       python scripts/reference.py --check   fails where a page is not what would be written
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import json
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints

import click

import relaygen
from relaygen._profile import Evidence, Profile, ProfileLevel, Provenance
from relaygen._task import Limits, Thinking
from relaygen._types import Sampling
from relaygen.cli import main as program

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
WIDTH = 80
NOTE = "<!-- Written by scripts/reference.py; do not edit. -->\n"

ENVIRONMENT = {
    "RELAYGEN_HOME": "Where model files are kept, in `models/`. "
    "Default: `$XDG_CACHE_HOME/relaygen`, or `~/.cache/relaygen`.",
    "RELAYGEN_NO_MIRROR": "Not empty, `0`, `false` or `no`: embedded models are fetched from their "
    "official repository only, as with `--no-mirror`.",
    "RELAYGEN_DEBUG": "Not empty or `0`: the command line shows the traceback of an error.",
    "RELAYGEN_SERVE_API_KEYS": "Keys of clients of `relaygen serve`, separated by commas.",
    "RELAYGEN_SERVE_LARGE_KEY": "The large engine's API key, where there is no `--large-key-file`.",
    "RELAYGEN_SERVE_SMALL_KEY": "The small engine's API key, where there is no `--small-key-file`.",
}
"""Variables that are no flag's twin; `check_environment` finds one that is missing here."""

Lines = Iterator[str]


def reference() -> dict[str, str]:
    """File name -> its whole text."""
    pages: dict[str, Callable[[], Lines]] = {
        "cli.md": commands,
        "configuration.md": configuration,
        "python.md": python,
    }
    return {name: NOTE + "\n".join(write()).rstrip() + "\n" for name, write in pages.items()}


# The command line.


def commands() -> Lines:
    """Every command's help."""
    yield from ("# Command line", "", "What `--help` says, for every command.", "")
    for path, command in walk(program, ("relaygen",)):
        yield from (f"## {' '.join(path)}", "", "```text", help_of(path, command), "```", "")


def walk(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and those below it, each with its whole name."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from walk(below, (*path, name))


def help_of(path: tuple[str, ...], command: click.Command) -> str:
    """As in a terminal of `WIDTH` columns."""
    context = click.Context(
        command,
        info_name=" ".join(path),
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **{**program.context_settings, **command.context_settings},
    )
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


# Configuration.


def configuration() -> Lines:
    """Profile entries, the server's keys, the environment."""
    yield from ("# Configuration", "", "What these are for: [configuration](../configuration.md).")
    yield from ("", "## Profile", "", "The entries of a profile's TOML file.", "")
    yield from fields_table(Profile)
    for place, kind in (
        ("tags", Thinking),
        ("sampling", Sampling),
        ("levels.NAME", ProfileLevel),
        ("provenance", Provenance),
        ("provenance.cues.CUE", Evidence),
    ):
        yield from ("", f"### [{place}]", "", *prose(kind), "")
        yield from fields_table(kind)
    yield from ("", "## Server", "", "`relaygen serve` takes each setting as a flag, from the")
    yield from ("environment, or from the TOML file of `--config`, in this order.", "")
    yield from server_table()
    yield from ("", "## Limits of a generation", "", "`Limits(…)` in Python.", "")
    yield from fields_table(Limits)
    yield from ("", "## Environment", "", *table(("variable", "meaning"), environment()))


def environment() -> Iterator[tuple[str, str]]:
    """Variables that no flag stands for."""
    check_environment()
    for name, meaning in ENVIRONMENT.items():
        yield f"`{name}`", meaning


def check_environment() -> None:
    """Fail where the code reads a variable of ours that `ENVIRONMENT` leaves out."""
    twins = {twin(option) for option in server_options()}
    for path in sorted((ROOT / "src" / "relaygen").rglob("*.py")):
        for name in re.findall(r"RELAYGEN_[A-Z_]*[A-Z]\b", path.read_text("utf-8")):
            if name not in ENVIRONMENT and name not in twins and name != "RELAYGEN_SERVE":
                raise SystemExit(f"{path}: {name} is not in ENVIRONMENT of scripts/reference.py")


def server_options() -> list[click.Option]:
    """The flags of ``relaygen serve`` that a file may hold."""
    command = program.get_command(click.Context(program), "serve")
    assert command is not None
    found = [each for each in command.params if isinstance(each, click.Option)]
    return [option for option in found if option.name != "config"]


def twin(option: click.Option) -> str:
    """The variable that stands for a flag of the server."""
    return f"RELAYGEN_SERVE_{str(option.name).upper()}"


def server_table() -> Lines:
    """Keys of the file, flags and variables."""
    rows = []
    for option in server_options():
        key = max(option.opts, key=len).lstrip("-")
        kind = "true or false" if option.is_flag else _kind(option.type)
        kind = f"list: {kind}" if option.multiple else kind
        rows.append((f"`{key}`", kind, _default(option), f"`{twin(option)}`"))
    yield from table(("key, and flag behind `--`", "value", "default", "variable"), rows)


def _kind(type: Any) -> str:
    if isinstance(type, click.Choice):
        return choices(type.choices)
    if isinstance(type, click.Path):
        return "path" if type.dir_okay else "file"
    if isinstance(type, click.types.FloatParamType):
        return "number"
    return "whole number" if isinstance(type, click.types.IntParamType) else "text"


def _default(option: click.Option) -> str:
    value = option.default
    # What click has for "nothing given" differs by version.
    if value in (None, "", (), []) or not isinstance(value, str | int | float | tuple | list):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(f"`{each}`" for each in (value if isinstance(value, tuple) else [value]))


def fields_table(kind: type[Any]) -> Lines:
    """The fields of a dataclass: name, value, default, meaning."""
    told, hints = meanings(kind), get_type_hints(kind)
    rows = []
    for field in dataclasses.fields(kind):
        default = ""
        if field.default not in (dataclasses.MISSING, None, "", ()):
            default = f"`{json.dumps(field.default)}`"
        elif field.default is field.default_factory is dataclasses.MISSING:
            default = "required"
        meaning = told.get(field.name, "")
        rows.append((f"`{field.name}`", value_of(hints[field.name]), default, meaning))
    yield from table(("entry", "value", "default", "meaning"), rows)


def value_of(hint: Any) -> str:
    """A type as whoever writes TOML has it."""
    arguments = [each for each in get_args(hint) if each is not types.NoneType]
    origin = get_origin(hint)
    if origin is Literal:
        return choices(arguments)
    if origin in (Union, types.UnionType):  # with None: it may be left out
        return value_of(arguments[0])
    if origin is tuple:
        return f"list: {value_of(arguments[0])}"
    if origin is Mapping or dataclasses.is_dataclass(hint):
        return "table"
    words = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return words[hint]


def choices(values: Iterable[object]) -> str:
    """What may be chosen from."""
    return ", ".join(f"`{value}`" for value in values)


def meanings(kind: type[Any]) -> dict[str, str]:
    """What the section ``Attributes:`` of a docstring says of each field."""
    section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2].split("\n\n")[0]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        entry = re.fullmatch(r"    (\w+(?:, \w+)*): (.*)", line)
        if entry:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, markdown(entry[2]))
        else:
            found |= {name: f"{found[name]} {markdown(line.strip())}" for name in names}
    return found


def prose(kind: type[Any]) -> Lines:
    """A docstring's paragraphs in front of its sections."""
    doc = re.split(r"\n\n(?:Attributes|Raises|Args):\n", inspect.getdoc(kind) or "")[0]
    yield markdown(doc)


# Python.


def python() -> Lines:
    """The public names."""
    yield from ("# Python", "", "Public names, each with its signature and what it is.", "")
    yield from ("`help(NAME)` says all of it: arguments, errors, units.", "")
    for module in ("relaygen", "relaygen.engines", "relaygen.policies"):
        yield from (f"## {module}", "")
        loaded = import_module(module)
        for name in loaded.__all__:
            if not name.startswith("_") and (module == "relaygen" or not hasattr(relaygen, name)):
                yield from entry(name, getattr(loaded, name))


def entry(name: str, value: object) -> Lines:
    """One public name."""
    if not inspect.isclass(value) and not inspect.isfunction(value):
        yield from (f"### {name}", "", f"One of {_members(value)}.", "")
        return
    yield from (f"### {name}", "", f"`{name}{signature(value)}`", "", summary(value), "")
    rows = list(members(value)) if inspect.isclass(value) else []
    if rows:
        yield from (*table(("member", "what"), rows), "")


def _members(value: object) -> str:
    return choices(getattr(each, "__name__", repr(each)) for each in get_args(value))


def members(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Public methods and properties of a class itself, in the order of its source."""
    for name, found in vars(kind).items():
        if name.startswith("_"):
            continue
        method = getattr(found, "__func__", found)  # of a classmethod
        if isinstance(found, property):
            yield f"`{name}`", summary(found)
        elif isinstance(method, types.FunctionType):
            kept = "async " if inspect.iscoroutinefunction(method) else ""
            yield f"`{kept}{name}{signature(method)}`", summary(method)


def signature(value: Any) -> str:
    """Parameters with their types, `self` left out; none of errors and protocols."""
    bare = inspect.isclass(value) and (issubclass(value, Exception) or Protocol in value.__bases__)
    if bare:
        return ""
    found = inspect.signature(value)
    kept = [each for name, each in found.parameters.items() if name not in ("self", "cls")]
    by_place = [parameter(each) for each in kept if each.kind is not each.KEYWORD_ONLY]
    by_name = [parameter(each) for each in kept if each.kind is each.KEYWORD_ONLY]
    rest = [by_place.pop()] if by_place and by_place[-1].startswith("**") else []
    shown = [*by_place, *(["*"] if by_name else []), *by_name, *rest]
    back = found.return_annotation
    arrow = "" if inspect.isclass(value) or back in ("None", "Self") else f" -> {back}"
    return f"({', '.join(shown)}){arrow}"


def parameter(each: inspect.Parameter) -> str:
    """Name, type and default of one parameter; annotations are texts throughout this package."""
    stars = "**" if each.kind is each.VAR_KEYWORD else "*" * (each.kind is each.VAR_POSITIONAL)
    text = f"{stars}{each.name}: {str(each.annotation).strip(chr(34))}"
    if each.default is each.empty:
        return text
    made = repr(each.default)
    return f"{text} = {'…' if made.startswith('<') else made}"


def summary(value: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return markdown(" ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()))


def markdown(text: str) -> str:
    """Our docstrings' marks as Markdown has them."""
    return re.sub(r"``(.+?)``", r"`\1`", text)


def table(headings: tuple[str, ...], rows: Any) -> Lines:
    """A Markdown table; a bar in a cell is no border."""
    for row in (headings, ("---",) * len(headings), *rows):
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


# Checking.


def stale(pages: Mapping[str, str], folder: Path = FOLDER) -> list[str]:
    """For each page that is missing or differs, what differs first; also for a page too many."""
    wrong = []
    for name, text in pages.items():
        path = folder / name
        before = path.read_text("utf-8").splitlines() if path.exists() else []
        changed = list(difflib.unified_diff(before, text.splitlines(), lineterm="", n=0))[2:6]
        if changed:
            wrong.append("\n".join((f"docs/reference/{name} is stale:", *changed)))
    extra = {path.name for path in folder.glob("*.md")} - set(pages)
    return wrong + [f"docs/reference/{name} is written by nothing" for name in sorted(extra)]


def run(check: bool, folder: Path = FOLDER) -> int:
    """Write the pages, or `check` them; the exit status."""
    pages = reference()
    if check:
        wrong = stale(pages, folder)
        for each in wrong:
            print(each, file=sys.stderr)
        if wrong:
            print("run: python scripts/reference.py", file=sys.stderr)
        return 1 if wrong else 0
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail where a page is stale")
    sys.exit(run(parser.parse_args().check))
