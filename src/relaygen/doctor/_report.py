"""What an examination found, and the same as a stable document."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .._checks import Finding
from .._types import ROLES, EngineInfo, Role
from ..costs import Costs
from ..forecast import Forecast

FORM = "relaygen doctor 1"
"""Of the document; the number grows where a key changes its meaning or goes."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What one engine takes, in milliseconds; medians.

    Attributes:
        decode_ms: per token.
        read_ms: per prompt token that it has not computed yet.
        request_ms: that a request takes up to its first token beside these.
        text_tokens: of the text that was asked about.
        rereads: there is no prefix cache, so that every request reads the whole text.
    """

    decode_ms: float
    read_ms: float
    request_ms: float
    text_tokens: int
    rereads: bool = False


@dataclass(frozen=True, slots=True)
class Rollback:
    """What it costs an engine to forget its last tokens.

    Attributes:
        cost: ``free``, ``costly``, or ``unknown`` where its counts do not tell.
        extended: prompt tokens computed where the text only grew; None where hidden.
        dropped: the same where tokens were dropped before.
        text_tokens: of the text.
    """

    cost: Literal["free", "costly", "unknown"]
    extended: int | None
    dropped: int | None
    text_tokens: int


@dataclass(frozen=True, slots=True)
class Answered:
    """One question of the sample.

    Attributes:
        prompt_tokens, tokens: of the question in its template, and of what the large model wrote.
        finish: why it ended.
        large, small: words as the policy would share this text between the two.
        handoffs: changes of role that it would make.
        segments: words of the small model's segments before the answer.
        cues: how often each would hand over.
        same: whether the small model answers as the large one does, from the same thinking; None
            where it was not asked.
    """

    prompt_tokens: int
    tokens: int
    finish: str
    large: int
    small: int
    handoffs: int
    segments: tuple[int, ...]
    cues: Mapping[str, int]
    same: bool | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """All questions together.

    Attributes:
        answers: one for each question.
        names: of the cues that were looked for; empty where the policy has none.
    """

    answers: Sequence[Answered]
    names: tuple[str, ...]

    @property
    def utilization(self) -> float:
        """The large model's share of the text; words stand for tokens."""
        large = sum(each.large for each in self.answers)
        return large / max(1, large + sum(each.small for each in self.answers))

    @property
    def written(self) -> int:
        """Tokens of all answers."""
        return sum(each.tokens for each in self.answers)

    @property
    def handoffs_per_1000(self) -> float:
        """Changes of role per 1,000 tokens, both ways."""
        return 1000.0 * sum(each.handoffs for each in self.answers) / max(1, self.written)

    @property
    def segment_tokens(self) -> float | None:
        """Mean tokens of the small model's segments before the answer; None without one."""
        tokens = [
            size * each.tokens / max(1, each.large + each.small)  # words are no tokens
            for each in self.answers
            for size in each.segments
        ]
        return statistics.fmean(tokens) if tokens else None

    @property
    def text_tokens(self) -> float:
        """Mean tokens of the text, question included, at a change of role."""
        pairs = [(each.prompt_tokens + each.tokens / 2, each.handoffs) for each in self.answers]
        return sum(size * count for size, count in pairs) / max(1, sum(n for _, n in pairs))

    @property
    def cues(self) -> dict[str, int]:
        """How often each cue would hand over, all of them, in the profile's order."""
        found = dict.fromkeys(self.names, 0)
        for each in self.answers:
            for name, count in each.cues.items():
                found[name] = found.get(name, 0) + count
        return found


@dataclass(slots=True)
class Report:
    """Grows while the pair is examined.

    Attributes:
        profile, policy, level: what was examined; `level` is "" where none is in force.
        quick: the small sample of answers was left out.
        complete: everything that was to be looked at was.
        findings: in the order in which they were made.
        infos: what the engines say of themselves; one is missing where it does not answer.
        speeds, rollbacks: by role, as far as measured.
        costs: of both; None before both were measured.
        handoff_ms: that a change of role takes beside reading; None likewise.
        devices: that the models compute on.
        sample: what the large model wrote; None where it was not asked.
        forecast: what a relay would gain; None where too little is known.
    """

    profile: str
    policy: str
    level: str = ""
    quick: bool = False
    complete: bool = False
    findings: list[Finding] = field(default_factory=list)
    infos: dict[Role, EngineInfo] = field(default_factory=dict)
    speeds: dict[Role, Speed] = field(default_factory=dict)
    rollbacks: dict[Role, Rollback] = field(default_factory=dict)
    costs: Costs | None = None
    handoff_ms: float | None = None
    devices: int = 2
    sample: Sample | None = None
    forecast: Forecast | None = None


def report_dict(report: Report) -> dict[str, Any]:
    """For JSON. Every key is always there; null is what is not known."""
    from ._verdict import status, verdict

    made = report.forecast
    return {
        "form": FORM,
        "verdict": asdict(verdict(report)),
        "status": status(report),
        "complete": report.complete,
        "quick": report.quick,
        "profile": report.profile,
        "policy": report.policy,
        "level": report.level or None,
        "engines": {role: _engine(report, role) for role in ROLES},
        "findings": [_finding(each) for each in report.findings],
        "gain": {
            "devices": report.devices,
            "handoff_ms": report.handoff_ms,
            "speedup": made and made.speedup,
            "ceiling": made and made.ceiling,
            "break_even_segment_tokens": made and made.break_even,
        },
        "sample": _sample(report.sample),
    }


def _engine(report: Report, role: Role) -> dict[str, Any] | None:
    info = report.infos.get(role)
    if info is None:
        return None
    rollback, speed = report.rollbacks.get(role), report.speeds.get(role)
    return {
        "model": info.model,
        "kind": info.kind,
        "version": info.version or None,
        "context": info.context,
        "slots": info.slots,
        "rollback": rollback and asdict(rollback),
        "speed": speed and asdict(speed),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "level": finding.level,
        "role": finding.role or None,
        "text": finding.text,
        "hint": finding.hint or None,
    }


def _sample(sample: Sample | None) -> dict[str, Any] | None:
    if sample is None:
        return None
    return {
        "utilization": sample.utilization,
        "handoffs_per_1000": sample.handoffs_per_1000,
        "cues": sample.cues,
        "answers": [asdict(each) for each in sample.answers],
    }
