"""A summary as tables: the same cells on a terminal and in Markdown, and results as CSV. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .._words import plural
from ._paired import MARGIN
from ._results import Result
from ._summary import FEW, Agreement, Summary

NOTHING = "–"

_FORMULA = re.compile(r"[=+\-@\t\r](?![\d.,]*\Z)")

_COLUMNS = (
    *("item", "run", "arm", "order", "seed", "at_once", "correct", "extracted", "finish"),
    *("large_tokens", "small_tokens", "inserted_tokens", "discarded_tokens", "handoffs"),
    *("utilization", "ms_per_token", "seconds", "first_answer_seconds", "error"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """Headings, and rows of as many cells; the first `left` columns are words."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1

    def without_empty(self) -> Table:
        """Only the columns in which a row says something."""
        kept = [
            number
            for number in range(len(self.headings))
            if number < self.left or any(row[number] != NOTHING for row in self.rows)
        ]
        return Table(
            tuple(self.headings[number] for number in kept),
            tuple(tuple(row[number] for number in kept) for row in self.rows),
            self.left,
        )


def accuracy_table(summary: Summary) -> Table:
    """What each arm's answers are worth; columns in which nothing is known are left out."""
    headings = (
        *("arm", "answers", "right", "accuracy", "95 %", "agrees"),
        *("lexical similarity", "embedding similarity"),
    )
    rows = tuple(
        (
            arm.name,
            f"{arm.answers} of {arm.asked}" if arm.answers < arm.asked else str(arm.answers),
            f"{arm.correct} of {arm.graded}" if arm.graded else NOTHING,
            _percent(arm.accuracy),
            NOTHING
            if arm.low is None or arm.high is None
            else f"{100 * arm.low:.1f} … {100 * arm.high:.1f}",
            _percent(arm.agreement),
            _number(arm.similarity, ".2f"),
            _number(arm.nearness, ".2f"),
        )
        for arm in summary.arms
    )
    return Table(headings, rows).without_empty()


def tokens_table(summary: Summary) -> Table:
    """Who wrote the text of each arm."""
    headings = ("arm", "utilization", "hand-offs", "tokens", "discarded", "accepted")
    rows = tuple(
        (
            arm.name,
            _number(arm.utilization, ".3f"),
            str(arm.handoffs),
            str(arm.tokens),
            str(arm.discarded),
            _percent(arm.acceptance),
        )
        for arm in summary.arms
    )
    return Table(headings, rows).without_empty()


def times_table(summary: Summary) -> Table:
    """How long an answer of each arm took; no rows where nothing may be quoted."""
    headings = ("arm", "ms/token", "seconds", "answer after", "speed-up", "ceiling", "reached")
    rows = tuple(
        (
            arm.name,
            _number(arm.ms_per_token, ".1f"),
            _number(arm.seconds, ".1f"),
            _number(arm.first_answer_seconds, ".1f"),
            _number(arm.speedup, ".2f", "×"),
            _number(arm.ceiling, ".2f", "×"),
            _percent(arm.reached),
        )
        for arm in summary.arms
        if arm.ms_per_token is not None
    )
    return Table(headings, rows).without_empty()


def paired_table(summary: Summary) -> Table:
    """One row for each pair of arms."""
    rows = tuple(
        (
            pair.arm,
            pair.against,
            pair.verdict,
            str(pair.n),
            f"{pair.difference:+.1f}",
            f"{pair.low:+.1f} … {pair.high:+.1f}",
            f"{pair.better} / {pair.worse}",
        )
        for pair in summary.paired
    )
    headings = ("arm", "against", "verdict", "n", "points", "95 %", "better / worse")
    return Table(headings, rows, left=3)


def ratios_table(summary: Summary) -> Table:
    """Speed question by question, in ms per token."""
    rows = tuple(
        (
            ratio.arm,
            ratio.against,
            str(ratio.n),
            f"{ratio.ratio:.2f}×",
            f"{ratio.low:.2f} … {ratio.high:.2f}",
        )
        for ratio in summary.ratios
    )
    return Table(("arm", "against", "n", "speed-up", "95 %"), rows, left=2)


def titled(summary: Summary) -> tuple[tuple[str, Table], ...]:
    """The tables that have a row, each with what it shows."""
    tables = (
        ("Accuracy", accuracy_table(summary)),
        ("Accuracy, paired by question", paired_table(summary)),
        ("Tokens", tokens_table(summary)),
        ("Times: medians of answers generated one at a time", times_table(summary)),
        ("Milliseconds per token, paired by question", ratios_table(summary)),
    )
    return tuple((title, table) for title, table in tables if table.rows)


def remarks(summary: Summary) -> tuple[str, ...]:
    """What a reader of the tables must know, one line each."""
    told = []
    if not summary.complete:
        missing = sum(arm.asked - arm.answers for arm in summary.arms)
        failed = sum(arm.errors for arm in summary.arms)
        why = f"; {failed} failed" if failed else ""
        what = "answer is" if missing == 1 else "answers are"
        told.append(f"not complete: {missing} {what} missing{why}")
    beside = [arm.name for arm in summary.arms if arm.at_once > 1]
    if beside:
        alone = any(arm.ms_per_token is not None for arm in summary.arms)
        of = f" of {', '.join(beside)}" if alone else ""
        told.append(f"no times{of}: answers were generated beside each other")
    if summary.paired and min(pair.n for pair in summary.paired) < FEW:
        told.append(f"fewer than {FEW} questions: read the intervals as a rough guide")
    cut = [arm.name for arm in summary.arms if arm.finishes.get("length")]
    if cut:
        numbers = {arm.name: arm.finishes["length"] for arm in summary.arms if arm.name in cut}
        each = ", ".join(f"{name} {number}" for name, number in numbers.items())
        told.append(f"answers cut at the token limit: {each}")
    if summary.answer_stage is not None:
        told.append(_stage_text(summary.answer_stage))
    return (*told, *_unequal_shares(summary))


def _unequal_shares(summary: Summary) -> Iterator[str]:
    """Of arms that delegate more, or less, than those that they are to be compared with."""
    shares = {arm.name: arm.small_share for arm in summary.arms}
    for arm in summary.arms:
        own, wanted = arm.small_share, shares.get(arm.follows)
        if own is None or wanted is None:
            continue
        if round(100.0 * abs(own - wanted), 6) > MARGIN:
            yield (
                f"{arm.name} delegates {own:.1%}, {arm.follows} {wanted:.1%}: "
                f"more than {MARGIN:g} points apart"
            )


def _stage_text(stage: Agreement) -> str:
    if not stage.n:
        return "no thinking was answered by both models"
    text = f"behind the same thinking both models answer alike in {stage.agree} of {stage.n}"
    if stage.large_correct is None or stage.small_correct is None:
        return text
    return f"{text}; right: large {stage.large_correct}, small {stage.small_correct}"


def markdown(summary: Summary, facts: Sequence[tuple[str, str]]) -> str:
    """A page of tables.

    Args:
        summary: what is told.
        facts: how it was made, label and value.
    """
    runs = f", {summary.runs} runs" if summary.runs > 1 else ""
    blocks = [f"# Evaluation: {plural(summary.questions, 'question')}{runs}"]
    blocks.append("\n".join(f"- {label}: {value}" for label, value in facts))
    for title, table in titled(summary):
        blocks += [f"## {title}", _markdown_table(table)]
    blocks.append("\n".join(f"- {remark}" for remark in remarks(summary)))
    return "\n\n".join(filter(None, blocks)) + "\n"


def _markdown_table(table: Table) -> str:
    rule = ["---" if number < table.left else "---:" for number in range(len(table.headings))]
    rows = (table.headings, rule, *table.rows)
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def results_csv(results: Iterable[Result]) -> str:
    """One row for each result, without its text."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for result in results:
        told = {**(result.usage or {}), **result.to_json()}
        if result.at_once > 1:
            told |= dict.fromkeys(("ms_per_token", "seconds", "first_answer_seconds"))
        writer.writerow([_harmless(told.get(name)) for name in _COLUMNS])
    return written.getvalue()


def _harmless(value: object) -> object:
    """What a spreadsheet would take for a formula gets an apostrophe; numbers stay (OWASP)."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _number(value: float | None, form: str, unit: str = "") -> str:
    return NOTHING if value is None else f"{value:{form}}{unit}"


def _percent(value: float | None) -> str:
    return _number(None if value is None else 100.0 * value, ".1f", " %")
