"""An examination's report for a terminal: sections, one finding a line, the verdict last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.text import Text

from relaygen._checks import Finding, Level
from relaygen.cli._tables import on_stdout
from relaygen.doctor import Report, Verdict, verdict

_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Engines": ("reachable", "capabilities", "context", "margins"),
    "Pair": ("vocabularies", "templates", "thinking"),
    "Prefix caches": ("prefix-cache", "rollback"),
    "Speed": ("speed",),
    "Sample": ("sample", "cues", "answers"),
    "Gain": ("gain", "length"),
}
_MARKS: Mapping[Level, tuple[str, str, str]] = {
    "ok": ("✓", "+", "green"),
    "note": ("·", "-", "dim"),
    "warning": ("!", "!", "yellow"),
    "error": ("✗", "x", "bold red"),
    "against": ("✗", "x", "bold red"),
}
"""The mark, the same in ASCII, and its style."""

_ANSWERS: Mapping[str, str] = {
    "use it": "bold green",
    "use it after changing": "bold yellow",
    "don't": "bold red",
    "cannot tell": "bold magenta",
}
_INDENT, _WIDEST = 10, 110  # columns
_UNSAFE = "\N{REPLACEMENT CHARACTER}"


def show_report(report: Report) -> None:
    """Print it on stdout."""
    console = on_stdout(100)
    width = min(console.width, _WIDEST)
    plain = _writable(console, "✓·✗→") != "✓·✗→"
    for line in lines(report, width=max(40, width), plain=plain):
        line.plain = _writable(console, line.plain)
        console.print(line, soft_wrap=True)


def _writable(console: Console, text: str) -> str:
    """The text as the terminal can show it: cues and models have letters that it may not have."""
    return text.encode(console.encoding, "replace").decode(console.encoding)


def lines(report: Report, *, width: int, plain: bool = False) -> Iterator[Text]:
    """The report's lines.

    Args:
        report: what was found.
        width: columns, at least 40.
        plain: only ASCII marks.
    """
    level = f", level {report.level}" if report.level else ""
    for part in _wrapped(f"profile {report.profile}, policy {report.policy}{level}", width):
        yield Text(part, "dim")
    yield Text()
    for title, checks in _SECTIONS.items():
        found = [each for each in report.findings if each.check in checks]
        if not found:
            continue
        yield Text(title, "bold")
        for finding in sorted(found, key=lambda each: checks.index(each.check)):
            yield from _finding(finding, width, plain)
        yield Text()
    yield from _verdict(verdict(report), width, plain)


def _finding(finding: Finding, width: int, plain: bool) -> Iterator[Text]:
    mark, ascii_mark, style = _MARKS[finding.level]
    head = f"  {ascii_mark if plain else mark} {finding.role:5} "
    for number, part in enumerate(_wrapped(finding.text, width - _INDENT)):
        line = Text(head if not number else " " * _INDENT)
        if not number:
            line.stylize(style, 2, 3)
        yield line.append(part, "dim" if finding.level == "note" else "")
    yield from _hint(finding.hint, width, plain)


def _hint(hint: str, width: int, plain: bool) -> Iterator[Text]:
    arrow = "-> " if plain else "→ "
    for number, part in enumerate(_wrapped(hint, width - _INDENT - len(arrow))):
        lead = arrow if not number else " " * len(arrow)
        yield Text(" " * _INDENT + lead + part, "cyan")


def _verdict(made: Verdict, width: int, plain: bool) -> Iterator[Text]:
    yield Text("Verdict: ").append(made.answer, _ANSWERS[made.answer])
    for text in made.why:
        yield from _item("-", text, width)
    if made.change:
        yield Text("Change" if made.answer != "don't" else "What could change that")
        for number, text in enumerate(made.change, start=1):
            yield from _item(f"{number}.", text, width)


def _item(mark: str, text: str, width: int) -> Iterator[Text]:
    for number, part in enumerate(_wrapped(text, width - 5)):
        yield Text(f"  {mark:2} {part}" if not number else f"     {part}")


def _wrapped(text: str, width: int) -> list[str]:
    """Whatever an engine said: a terminal must not obey it."""
    safe = "".join(char if char.isprintable() else _UNSAFE for char in " ".join(text.split()))
    return textwrap.wrap(safe, max(20, width), break_on_hyphens=False)
