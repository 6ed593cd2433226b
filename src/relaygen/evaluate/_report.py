"""The report of an evaluation: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._page import page
from ._paired import MARGIN, NO_WORSE, WORSE
from ._tables import paired_table, remarks, titled
from ._views import views

if TYPE_CHECKING:
    from ._drawing import Plot
    from ._paired import Paired
    from ._questions import Item
    from ._results import Result
    from ._summary import Summary

SIGNS: Mapping[str, tuple[str, str]] = {
    "1": ("✓", "right"),
    "0": ("✗", "wrong"),
    "m": ("±", "right in some runs"),
    "u": ("·", "not graded"),
    "e": ("!", "failed"),
    "-": ("–", "not there"),
}
"""By state of a question: its sign and what it means."""

_SPAN = 100.0  # of the drawing of an interval: its width
_LEAST_POINTS = 5.0  # that it shows on both sides of zero


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about.

    Attributes:
        summary: of the results.
        items: the questions that were asked.
        results: those that count, failed ones included.
        plots: drawn, or with the reason why not.
        facts: how it was made: label and value.
    """

    summary: Summary
    items: Sequence[Item]
    results: Sequence[Result]
    plots: Sequence[Plot]
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A paired difference, and where its interval lies in a drawing from 0 to 100.

    Attributes:
        pair: it.
        tone: ``good``, ``bad`` or ``open``.
        low, at, high: the interval and the difference.
        zero, margin: no difference, and the points that may be lost.
    """

    pair: Paired
    tone: str
    low: float
    at: float
    high: float
    zero: float
    margin: float


def render(subject: Subject) -> str:
    """The report as HTML. The same subject gives the same bytes.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    return page("relaygen.evaluate", extra="eval", **_context(subject))


def _context(subject: Subject) -> dict[str, Any]:
    summary = subject.summary
    arms = [arm.name for arm in summary.arms]
    asked = views(subject.items, subject.results, arms)
    return {
        "summary": summary,
        "arms": arms,
        "verdicts": verdicts(summary.paired),
        "remarks": remarks(summary),
        "tables": [(title, one) for title, one in titled(summary) if one != paired_table(summary)],
        "plots": subject.plots,
        "asked": asked,
        "graded": any(arm.graded for arm in summary.arms),
        "cut": any(
            part.left_out for one in asked for each in one.answers for part in each.stretches
        ),
        "facts": subject.facts,
        "timed": any(arm.ms_per_token is not None for arm in summary.arms),
        "beside": any(arm.at_once > 1 for arm in summary.arms),
        "signs": SIGNS,
    }


def verdicts(pairs: Sequence[Paired]) -> tuple[Verdict, ...]:
    """All on one scale, with zero in the middle."""
    ends = [abs(value) for pair in pairs for value in (pair.low, pair.high)]
    most = max(_LEAST_POINTS, *ends) * 1.04 if ends else _LEAST_POINTS

    def across(points: float) -> float:
        return round(_SPAN * (0.5 + 0.5 * points / most), 2)

    return tuple(
        Verdict(
            pair,
            {NO_WORSE: "good", WORSE: "bad"}.get(pair.verdict, "open"),
            across(pair.low),
            across(pair.difference),
            across(pair.high),
            across(0.0),
            across(-MARGIN),
        )
        for pair in pairs
    )
