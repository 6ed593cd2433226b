"""From findings to a verdict and an exit status. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._checks import Finding
from ._report import Report

Answer = Literal["use it", "use it after changing", "don't", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a report.

    Attributes:
        answer: ``don't`` where a relay is of no use, ``use it after changing`` where it would fail
            or be worse than it could be, ``cannot tell`` where an engine does not answer or the
            examination was broken off.
        why: the findings behind it, the gravest kind only.
        change: what to do, in the order of the findings.
    """

    answer: Answer
    why: tuple[str, ...] = ()
    change: tuple[str, ...] = ()


def verdict(report: Report) -> Verdict:
    """What the findings come to."""
    lost = [each for each in report.findings if _unreachable(each)]
    if lost:
        return Verdict("cannot tell", _texts(lost), ("start the engine, or name another address",))
    against = [each for each in report.findings if each.level == "against"]
    if against:
        return Verdict("don't", _texts(against), _hints(against))
    wrong = [each for each in report.findings if each.level == "error"]
    worse = [each for each in report.findings if each.level == "warning"]
    if not report.complete and not wrong:
        return Verdict("cannot tell", ("the examination was broken off",), _hints(worse))
    if wrong or worse:
        return Verdict("use it after changing", _texts(wrong or worse), _hints([*wrong, *worse]))
    return Verdict("use it", _texts([each for each in report.findings if each.check == "gain"])[:1])


def status(report: Report) -> int:
    """The exit status: 5 without both engines, 1 where requests fail or the verdict is no, else 0.

    Warnings alone are 0: the relay works.
    """
    if any(map(_unreachable, report.findings)):
        return 5
    return int(any(each.level in ("error", "against") for each in report.findings))


def _unreachable(finding: Finding) -> bool:
    return finding.check == "reachable" and finding.level != "ok"


def _texts(findings: list[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_named(each, each.text) for each in findings))


def _hints(findings: list[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_named(each, each.hint) for each in findings if each.hint))


def _named(finding: Finding, text: str) -> str:
    return f"{finding.role}: {text}" if finding.role else text
