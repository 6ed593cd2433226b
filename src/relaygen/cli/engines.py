"""``relaygen engines``: commands that start a known pair's servers."""

from __future__ import annotations

import json

import click

from relaygen._types import Role
from relaygen.cli._help import PlainCommand, option
from relaygen.launch import (
    ENGINES,
    SPECS,
    Command,
    commands,
    pair,
    pairs,
    relay_command,
    remarks,
)
from relaygen.launch._pairs import EngineName, Spec

_SERVERS = "The servers"
_OUTPUT = "Output"


@click.command(cls=PlainCommand)
@option(
    _SERVERS,
    "--pair",
    "name",
    required=True,
    metavar="NAME",
    help=f"Which models: {', '.join(pairs())}.",
)
@option(
    _SERVERS,
    "--engine",
    type=click.Choice(ENGINES),
    help="Which server. Default: the pair's usual one.",
)
@option(
    _SERVERS,
    "--spec",
    type=click.Choice(SPECS),
    default="none",
    show_default=True,
    help="Speculative decoding of the large model.",
)
@option(
    _SERVERS,
    "--small-spec",
    type=click.Choice(SPECS),
    default="none",
    show_default=True,
    help="Speculative decoding of the small model.",
)
@option(
    _SERVERS,
    "--context",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Of one conversation. Default: the pair's.",
)
@option(_OUTPUT, "--json", "as_json", is_flag=True, help="Print JSON.")
def engines(
    name: str,
    engine: EngineName | None,
    spec: Spec,
    small_spec: Spec,
    context: int | None,
    as_json: bool,
) -> None:
    """Print the commands that start a known pair's servers, and the relay over them.

    Nothing is started. Each model gets a GPU of its own; what a pair cannot do is refused with the
    reason.
    """
    known = pair(name)
    chosen = engine or known.engine
    specs: dict[Role, Spec] = {"large": spec, "small": small_spec}
    made = commands(known, chosen, specs, context=context)
    relay = relay_command(known)
    notes = remarks(chosen, specs)
    if as_json:
        shown: dict[str, object] = {"pair": known.name, "engine": chosen, "speculation": specs}
        shown |= {role: _dict(command) for role, command in made.items()}
        shown |= {"relay": _dict(relay), "notes": notes}
        click.echo(json.dumps(shown, indent=2))
        return
    for role, command in made.items():
        click.echo(f"# the {role} model\n{command.text}\n")
    click.echo(f"# the relay over both, when they are up\n{relay.text}")
    for note in notes:
        click.echo(f"# note: {note}")


def _dict(command: Command) -> dict[str, object]:
    return {"env": dict(command.env), "argv": list(command.argv), "command": command.text}
