"""``relaygen profile``: show and check profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from relaygen._errors import ProfileError
from relaygen.profiles import load, names, problems, source

if TYPE_CHECKING:
    from rich.console import RenderableType

    from relaygen._profile import Profile, ProfileLevel

_WIDE = 100  # columns that the table of profiles needs


@click.group()
def profile() -> None:
    """Show and check profiles: a pair's cues, thinking style and defaults."""


@profile.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_profiles(as_json: bool) -> None:
    """List the shipped profiles."""
    profiles = [load(name) for name in names()]
    if as_json:
        import json

        rows = [_row(one) for one in profiles]
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False).encode())
        return
    from relaygen.cli._tables import on_stdout

    console = on_stdout()
    for block in [_table(profiles)] if console.width >= _WIDE else map(_block, profiles):
        console.print(block)


def _row(one: Profile) -> dict[str, Any]:
    return {
        "name": one.name,
        "large": one.large,
        "small": one.small,
        "thinking": one.thinking,
        "cues": len(one.cues),
        "description": one.description,
    }


def _table(profiles: list[Profile]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "thinking", "cues"):
        table.add_column(heading, justify="right" if heading == "cues" else "left", no_wrap=True)
    table.add_column("pair", overflow="fold")
    table.add_column("description", overflow="fold")
    for one in profiles:
        pair = Text(f"{one.large}\n{one.small}")
        cues = str(len(one.cues))
        table.add_row(Text(one.name), one.thinking, cues, pair, Text(one.description))
    return table


def _block(one: Profile) -> RenderableType:
    """One profile where the terminal is too narrow for the table."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines = (
        one.description,
        f"thinking {one.thinking}, {len(one.cues)} cues",
        f"large: {one.large}",
        f"small: {one.small}",
    )
    rest = Text("\n".join(lines), overflow="fold")
    return Group(Text(one.name, "bold"), Padding(rest, (0, 0, 1, 2)))


@profile.command("show")
@click.argument("name", metavar="NAME|FILE")
@click.option("--toml", is_flag=True, help="Print the file as it is.")
def show_profile(name: str, toml: bool) -> None:
    """Show a profile: a shipped one by name, or a file."""
    if toml:
        click.echo(source(name), nl=False)
        return
    from rich.table import Table
    from rich.text import Text

    from relaygen.cli._tables import on_stdout

    one = load(name)
    console = on_stdout()
    console.print(Text(one.name, "bold"), Text(one.description), sep="\n")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _facts(one):
        table.add_row(label, Text(value))
    console.print(table)


def _facts(one: Profile) -> list[tuple[str, str]]:
    """A profile as labels and values."""
    tags = f"between {one.tags.opening} and {one.tags.closing}"
    sampling = ", ".join(
        f"{name} {getattr(one.sampling, name):g}"
        for name in ("temperature", "top_p", "top_k", "min_p")
    )
    origin = one.provenance
    facts = [
        ("large", one.large),
        ("small", one.small),
        ("thinking", tags if one.thinking == "tags" else "none"),
        ("prefill", repr(one.prefill) if one.prefill else ""),
        (
            "answered by",
            "either, as cues decide" if one.answer_role == "relay" else one.answer_role,
        ),
        (f"cues ({len(one.cues)})", _quoted(one.cues)),
        ("answer marks", _quoted(one.answer_markers)),
        *((f"one-shot {group}", _quoted(cues)) for group, cues in one.one_shot_groups.items()),
        *(
            (f"{name} ({len(level.cues)})", _level(level, one.level == name))
            for name, level in one.levels.items()
        ),
        ("sampling", sampling),
        ("in a row", f"at most {one.max_consecutive_delegations} delegations at bare cues"),
        ("source", origin.source),
        ("scored by", origin.scorer),
        ("questions", origin.questions),
        ("rule", origin.rule),
        *(("note", note) for note in origin.notes),
    ]
    return [(label, value) for label, value in facts if value]


def _level(level: ProfileLevel, default: bool) -> str:
    """One level: its cues, and what else it says."""
    said = ["the default"] if default else []
    if level.utilization is not None:
        said.append(f"utilization {100 * level.utilization:.0f} %")
    if level.stay is not None and level.leave is not None:
        said.append(f"policy {level.policy}, margins {level.stay:g} and {level.leave:g}")
    if level.unproven:
        said.append("unproven")
    return "; ".join([*said, _quoted(level.cues)])


def _quoted(words: tuple[str, ...]) -> str:
    """Words with their own commas and spaces stay apart."""
    return "  ".join(word if word.strip(",") == word else f"“{word}”" for word in words)


@profile.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def validate_profiles(files: tuple[str, ...]) -> None:
    """Check profiles and name every problem, each on a line of its own.

    The exit status is 2 if there is any problem.
    """
    bad = False
    for name in files:
        try:
            found = problems(source(name))
        except ProfileError as error:
            found = [str(error)]
        bad = bad or bool(found)
        for line in found or ["ok"]:
            click.echo(f"{name}: {' '.join(line.split())}")
    if bad:
        raise SystemExit(ProfileError.exit_code)
