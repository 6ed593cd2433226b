"""The report of a calibration: one HTML file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._page import page
from ._examples import examples
from ._figures import WIDTH, compared, curve, forest

if TYPE_CHECKING:
    from .._profile import Profile
    from ._check import Check, LevelCheck
    from ._effects import Observed
    from ._outcome import Calibration, CueResult, Level

PAPER_LISTS = {"Qwen3 32B + 1.7B": "qwen3-32b+1.7b", "R1-Distill 32B + 1.5B": "r1-distill-32b+1.5b"}
"""The paper's two selections: what the report calls them, and the shipped profiles with them."""

_LEAST_COUNT, _LEAST_TRACES = 20, 8  # below which a cue is not testable, whatever the number
_SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about.

    Attributes:
        profile: the profile that was made.
        calibration: the selection with everything it measured.
        observed: every scored trace with its sentences.
        facts: how it was made: label and value.
        command: what to type to use the profile.
        check: what the live pair did on fresh questions; None where it was not asked any.
    """

    profile: Profile
    calibration: Calibration
    observed: Sequence[Observed]
    facts: Sequence[tuple[str, str]]
    command: str
    check: Check | None = None


def render(subject: Subject) -> str:
    """The report as HTML. The same subject gives the same bytes.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    return page("relaygen.calibrate", extra="calibrate", **_context(subject))


def _context(subject: Subject) -> dict[str, Any]:
    calibration, profile = subject.calibration, subject.profile
    held = calibration.held_out
    cues = sorted(calibration.cues, key=_order)
    selected = [cue for cue in cues if cue.selected]
    lead = calibration.levels[0] if calibration.levels else None
    return {
        "profile": profile,
        "calibration": calibration,
        "cues": cues,
        "selected": selected,
        "tested": [cue for cue in cues if cue.testable],
        "reasons": {cue.name: reason(cue) for cue in cues},
        "lead": lead,
        "told": lead.under(_policy(profile, lead)) if lead else None,
        "used": [level.under(_policy(profile, level)) for level in calibration.levels],
        "measured": measured(subject.check, lead.name) if lead else None,
        "held": held if held is not None and not math.isnan(held.effect) else None,
        "traces": len(subject.observed),
        "tokens": sum(len(one.trace.ids) for one in subject.observed),
        "width": WIDTH,
        "forest": forest(cues),
        "curve": curve(calibration.curve, calibration.levels, calibration.overall),
        "examples": examples(subject.observed, lead.cues if lead else ()),
        "paper": comparison(cues),
        "paper_names": tuple(PAPER_LISTS),
        "facts": subject.facts,
        "command": subject.command,
        "check": subject.check,
        "compared": compared(subject.check.levels) if subject.check else None,
    }


def _policy(profile: Profile, level: Level) -> str:
    """Of that level in the profile; one without cues is not there."""
    kept = profile.levels.get(level.name)
    return "relay" if kept is None else kept.policy


def _order(cue: CueResult) -> tuple[bool, bool, float, str]:
    """Selected ones first, then testable ones, each by effect."""
    effect = cue.effect if math.isfinite(cue.effect) else -math.inf
    return (not cue.selected, not cue.testable, -effect, cue.name)


def measured(check: Check | None, level: str) -> LevelCheck | None:
    """What a level did, where it was looked at."""
    levels = check.levels if check is not None else ()
    return next((one for one in levels if level in one.names), None)


def reason(cue: CueResult) -> str:
    """Why a cue was selected or not, in a few words."""
    if cue.selected:
        return "selected" if cue.proven else "selected, unproven"
    if cue.occurrences == 0:
        return "never written"
    if not cue.testable:
        few = cue.occurrences < _LEAST_COUNT or cue.traces < _LEAST_TRACES
        return "too rare to test" if few else "not testable"
    if cue.effect <= 0.0:
        return "no easier than elsewhere"
    return "difference not certain" if cue.holm > _SIGNIFICANT else "difference too small"


@dataclass(frozen=True, slots=True)
class Compared:
    """A cue that this calibration or the paper selected.

    Attributes:
        name: the cue.
        ours: this calibration's result; None where it was no candidate.
        paper: for each of the paper's lists, whether it has the cue.
        reason: why it was selected here or not.
    """

    name: str
    ours: CueResult | None
    paper: tuple[bool, ...]
    reason: str


def comparison(cues: Sequence[CueResult]) -> tuple[Compared, ...]:
    """Every cue selected here or in the paper: those in most lists first."""
    from ..profiles import load

    lists = [{cue.strip() for cue in load(name).cues} for name in PAPER_LISTS.values()]
    here: Mapping[str, CueResult] = {cue.name.strip(): cue for cue in cues}
    names = {name for name, cue in here.items() if cue.selected}.union(*lists)
    rows = []
    for name in names:
        ours = here.get(name)
        why = reason(ours) if ours is not None else "no candidate"
        rows.append(Compared(name, ours, tuple(name in one for one in lists), why))

    def order(row: Compared) -> tuple[bool, int, str]:
        return (not (row.ours is not None and row.ours.selected), -sum(row.paper), row.name)

    return tuple(sorted(rows, key=order))
