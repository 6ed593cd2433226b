"""Tables on stdout: where they are printed, and how they look."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.table import Table


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to whoever ends the program; rich would end it with status 1."""
        raise BrokenPipeError


def on_stdout(width: int = 1000) -> Console:
    """A console on stdout.

    Args:
        width: columns where stdout is no terminal. A pipe has none, and rich would take 80.
    """
    console = _Stdout(highlight=False)
    return console if console.is_terminal else _Stdout(highlight=False, width=width)


def plain_table(*headings: str, left: Collection[str] = ()) -> Table:
    """A table without lines: its first column and those of `left` at the left, numbers else."""
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        at_left = not place or heading in left
        table.add_column(heading, justify="left" if at_left else "right", overflow="fold")
    return table
