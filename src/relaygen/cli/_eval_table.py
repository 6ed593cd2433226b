"""What an evaluation found, as tables on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from relaygen.cli._tables import on_stdout
from relaygen.evaluate._paired import NO_WORSE, WORSE
from relaygen.evaluate._tables import Table, remarks, titled

if TYPE_CHECKING:
    from relaygen.evaluate._summary import Summary

_STYLES = {NO_WORSE: "green", WORSE: "red"}
_WIDTH = 120  # of a pipe


def show_summary(summary: Summary) -> None:
    """Print it on stdout."""
    console = on_stdout(_WIDTH)
    for title, table in titled(summary):
        console.print(Text(title, "bold"))
        _print(console, table)
    for remark in remarks(summary):
        console.print(Text(remark, "yellow"))


def _print(console: Console, table: Table) -> None:
    from rich.table import Table as Shown

    shown = Shown(box=None, pad_edge=False)
    for number, heading in enumerate(table.headings):
        left = number < table.left
        shown.add_column(heading, justify="left" if left else "right", no_wrap=not left)
    for row in table.rows:
        shown.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    console.print(shown)
    console.print()
