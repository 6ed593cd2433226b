"""What a calibration selected, as two tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from relaygen.cli._tables import on_stdout

if TYPE_CHECKING:
    from relaygen.calibrate._outcome import Calibration, CueResult, Level, Steered


def show_selection(result: Calibration, policy: Literal["relay", "margin"]) -> None:
    """Print the selected cues and the levels on stdout.

    Args:
        result: the selection.
        policy: of the levels of its profile.
    """
    console = on_stdout(100)
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
    levels = _table(
        "level", "policy", "cues", "utilization", "hand-offs\nper 1,000", "margin", "agrees"
    )
    doubts = []
    for level in result.levels:
        levels.add_row(level.name, "relay", *_predicted(level))
        used = level.under(policy)
        doubts += _doubts(level.name, level, level, used)
        steered = level.own if policy == "relay" else level.best
        if steered is not None:
            name = f"margin:{steered.stay:.2f}:{steered.leave:.2f}"
            levels.add_row("", name, *_predicted(steered))
            doubts += _doubts(f"{level.name}, {name}", level, steered, used)
    console.print(levels)
    for doubt in doubts:
        console.print(Text(doubt, "yellow"))
    console.print()


def _predicted(told: Level | Steered) -> tuple[str, ...]:
    """What one policy is predicted to do at a level."""
    return (
        str(len(told.cues)),
        _number(100 * told.utilization, ".0f", " %"),
        _number(told.handoffs_per_1000, ".1f"),
        _number(told.margin, ".2f"),
        _number(100 * told.agreement, ".0f", " %"),
    )


def _doubts(name: str, level: Level, told: Level | Steered, used: Level | Steered) -> list[str]:
    """What is not as it was wished, one line or none; `used` is what the profile has."""
    target = level.missed(told.utilization)
    found = ["unproven"] if told is used and told.unproven else []
    if target is not None:
        found.append(f"misses its {100 * target:.0f} %")
    return [f"{name}: {', '.join(found)}"] if found else []


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        left = heading in ("cue", "level", "policy")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    return table


def _interval(cue: CueResult) -> str:
    known = math.isfinite(cue.low) and math.isfinite(cue.high)
    return f"{cue.low:+.3f} … {cue.high:+.3f}" if known else "–"


def _number(value: float, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}" if math.isfinite(value) else "–"
