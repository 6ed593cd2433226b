"""What a calibration's check found, as two tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from relaygen._words import plural
from relaygen.cli._selection_table import _number, _table
from relaygen.cli._tables import on_stdout

if TYPE_CHECKING:
    from relaygen.calibrate._check import Check, LevelCheck


def show_check(result: Check | None) -> None:
    """Print predicted beside measured, and the speed-up to expect, on stdout."""
    if result is None:
        return
    console = on_stdout(100)
    asked = plural(result.questions, "fresh question")
    console.print(Text(f"predicted and measured, on {asked} at each level\n"))
    table = _table(
        "level", "predicted", "measured", "95 % interval", "points", "95 % interval", "hand-offs"
    )
    for level in result.levels:
        table.add_row(
            Text(" = ".join(level.names)),
            _number(100 * level.predicted, ".0f", " %"),
            _number(100 * level.utilization, ".0f", " %"),
            _between(100 * level.low, 100 * level.high, ".0f", " %"),
            _number(level.difference, "+.1f"),
            _between(level.difference_low, level.difference_high, "+.1f"),
            f"{_number(level.handoffs_predicted, '.1f')} → {_number(level.handoffs, '.1f')}",
        )
    console.print(table)
    console.print(
        Text("utilization; measured less predicted in points; hand-offs per 1,000 tokens\n", "dim")
    )
    for level in result.levels:
        for note in notes(level):
            console.print(Text(f"{' = '.join(level.names)}: {note}", "yellow"))
    _show_speed(console, result)


def _show_speed(console: Console, result: Check) -> None:
    costs = result.costs
    if costs is None:
        console.print(Text("too little was written to measure costs\n", "yellow"))
        return
    table = _table("level", "small writes", "two devices", "ceiling", "one device", "ceiling")
    for level in result.levels:
        if level.speed is None:
            continue
        speed = level.speed
        table.add_row(
            Text(" = ".join(level.names)),
            _number(100 * level.small_share, ".0f", " %"),
            *(
                f"{value:.2f}×"
                for value in (speed.two, speed.two_ceiling, speed.one, speed.one_ceiling)
            ),
        )
    console.print(table)
    told = (
        "speed-ups over the large model alone, predicted from costs measured here: decode "
        f"{costs.large_decode:.1f} and {costs.small_decode:.1f} ms, catch-up "
        f"{costs.large_catch_up:.1f} and {costs.small_catch_up:.1f} ms per token (large, small), "
        f"{result.handoff_ms:.1f} ms lost per hand-off\n"
    )
    console.print(Text(told, "dim"))


def notes(level: LevelCheck) -> list[str]:
    """What makes a level's figures doubtful."""
    found = []
    if level.cut:
        found.append(f"{level.cut} of {plural(level.n, 'answer')} cut at the token limit")
    if level.fallbacks:
        found.append(f"an engine failed in {level.fallbacks} of {plural(level.n, 'answer')}")
    return found


def _between(low: float, high: float, form: str, unit: str = "") -> str:
    known = math.isfinite(low) and math.isfinite(high)
    return f"{low:{form}} … {high:{form}}{unit}" if known else "–"
