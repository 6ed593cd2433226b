"""From findings to a verdict and an exit status. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .._checks import Finding, Level
from ._report import Report

Answer = Literal["use it", "use it after changing", "don't", "cannot tell"]

_START = "start the engine, or name another address"
_UNTIMED = "what a relay gains is unknown: not both engines could be timed"
_SLOWS = ("prefix-cache", "rollback")
"""What makes hand-offs dear, so that mending it may turn the verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a report.

    Attributes:
        answer: ``don't`` where a relay is of no use, ``use it after changing`` where it would fail
            or be worse than it could be, ``cannot tell`` where an engine does not answer, the times
            are not known or the examination was broken off.
        why: the findings behind it, the gravest kind only.
        change: what to do, in the order of the findings.
    """

    answer: Answer
    why: tuple[str, ...] = ()
    change: tuple[str, ...] = ()


def verdict(report: Report) -> Verdict:
    """What the findings come to."""
    gone = missing(report)
    if gone:
        told = [replace(each, hint=each.hint or _START) for each in gone]
        return Verdict("cannot tell", _texts(gone), _hints(told))
    against = _of(report, "against")
    if against:
        slow = [each for each in _of(report, "warning") if each.check in _SLOWS]
        return Verdict("don't", _texts(against), _hints([*against, *slow]))
    wrong, worse = _of(report, "error"), _of(report, "warning")
    gain = [each for each in report.findings if each.check == "gain"]
    if not wrong and not (report.complete and gain):
        why = _UNTIMED if report.complete else "the examination was broken off"
        return Verdict("cannot tell", (why,), _hints(worse))
    if wrong or worse:
        return Verdict("use it after changing", _texts(wrong or worse), _hints([*wrong, *worse]))
    return Verdict("use it", _texts(gain)[:1])


def status(report: Report) -> int:
    """The exit status: 5 without both engines, 1 where requests fail or nothing speaks for it.

    Warnings alone are 0: the relay works.
    """
    if missing(report):
        return 5
    bad = any(each.level in ("error", "against") for each in report.findings)
    return int(bad or (report.complete and verdict(report).answer == "cannot tell"))


def missing(report: Report) -> list[Finding]:
    """Of engines that do not answer."""
    return [each for each in report.findings if each.check == "reachable" and each.level != "ok"]


def _of(report: Report, level: Level) -> list[Finding]:
    return [each for each in report.findings if each.level == level]


def _texts(findings: list[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_named(each, each.text) for each in findings))


def _hints(findings: list[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_named(each, each.hint) for each in findings if each.hint))


def _named(finding: Finding, text: str) -> str:
    return f"{finding.role}: {text}" if finding.role else text
