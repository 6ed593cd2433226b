"""What a calibration selected, as two tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from relaygen.calibrate._outcome import Calibration, CueResult


def show_selection(result: Calibration) -> None:
    """Print the selected cues and the levels on stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=100)
    chosen = [cue for cue in result.cues if cue.selected]
    chosen.sort(key=lambda cue: (-cue.effect if math.isfinite(cue.effect) else 0.0, cue.name))
    table = _table("cue", "sentences", "margin", "agrees", "effect", "95 % interval", "p")
    for cue in chosen:
        table.add_row(
            Text(cue.name, "green" if cue.proven else "yellow"),
            f"{cue.occurrences} in {cue.traces}",
            _number(cue.margin, ".2f"),
            _number(100 * cue.agreement, ".0f", " %"),
            _number(cue.effect, "+.3f"),
            _interval(cue),
            _number(cue.holm, ".3f"),
        )
    console.print(table)
    console.print()
    if result.unproven:
        more = f"; about {result.more_traces} more traces may do" if result.more_traces else ""
        said = "no cue is proven by these traces" if result.fallback else "not all cues are proven"
        console.print(Text(f"unproven: {said}{more}\n", "yellow"))
    levels = _table("level", "cues", "utilization", "hand-offs/1,000", "margin", "")
    for level in result.levels:
        levels.add_row(
            Text(level.name),
            str(len(level.cues)),
            _number(100 * level.utilization, ".0f", " %"),
            _number(level.handoffs_per_1000, ".1f"),
            _number(level.margin, ".2f"),
            Text("unproven" if level.unproven else "", "yellow"),
        )
    console.print(levels)
    console.print()


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        left = heading in ("cue", "level")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    return table


def _interval(cue: CueResult) -> str:
    known = math.isfinite(cue.low) and math.isfinite(cue.high)
    return f"{cue.low:+.3f} … {cue.high:+.3f}" if known else "–"


def _number(value: float, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}" if math.isfinite(value) else "–"
