"""What a calibration says: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._errors import UsageError

Kind = Literal["significant", "paper", "target-utilization"]

MIN_EFFECT = 0.02
"""The least effect on the margin, which is between 0 and 1, that is worth a hand-off."""

MISS = 0.05
"""A level that ends further from its target utilization than this says so."""

_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Rule:
    """How cues are chosen.

    Attributes:
        kind: ``significant``: positive effects that Holm's correction leaves significant.
            ``paper``: a mean margin above the mean of all tokens, one occurrence is enough.
            ``target-utilization``: best effects first, until the predicted utilization is reached.
        value: the utilization wanted, of the last one; None for the others.

    Raises:
        UsageError: a target that is missing, superfluous or outside (0, 1).
    """

    kind: Kind = "significant"
    value: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("significant", "paper", "target-utilization"):
            raise UsageError(f"unknown rule {self.kind!r}")
        if (self.value is None) == (self.kind == "target-utilization"):
            raise UsageError("target-utilization takes a number, the other rules take none")
        if self.value is not None and not 0.0 < self.value < 1.0:
            raise UsageError(f"the target must be between 0 and 1, not {self.value}")

    @classmethod
    def of(cls, text: str) -> Rule:
        """From ``significant``, ``paper`` or ``target-utilization:X``.

        Raises:
            UsageError: it is none of these.
        """
        kind, colon, value = text.partition(":")
        if kind in ("significant", "paper") and not colon:
            return cls("significant" if kind == "significant" else "paper")
        if kind == "target-utilization":
            try:
                target = float(value)
            except ValueError:
                pass
            else:
                return cls("target-utilization", target)
        raise UsageError(
            f"there is no rule {text!r}",
            hint="rules: significant, paper, target-utilization:X (for example "
            "target-utilization:0.7)",
        )

    def __str__(self) -> str:
        return self.kind if self.value is None else f"{self.kind} {self.value:g}"


@dataclass(frozen=True, slots=True)
class CueResult:
    """One candidate. nan stands for what cannot be known from these traces.

    Attributes:
        name: the cue.
        occurrences, traces, tokens: segments it would delegate, traces with one, tokens in them.
        share: of all tokens of the traces it was looked for in.
        margin, agreement: see `CueStats`.
        effect, low, high: mean difference over traces with its 95 % bootstrap interval.
        p, holm, q: of the test; nan where the cue is not testable.
        testable: enough segments and traces for a test.
        selected: by the rule.
        proven: significant after Holm's correction with a positive effect of at least the minimum.
    """

    name: str
    occurrences: int
    traces: int
    tokens: int
    share: float
    margin: float
    agreement: float
    effect: float
    low: float
    high: float
    p: float
    holm: float
    q: float
    testable: bool
    selected: bool
    proven: bool = False


@dataclass(frozen=True, slots=True)
class Steered:
    """`MarginPolicy` with thresholds and cues, and what it is predicted to do, as of a `Level`.

    ``stay``, ``leave``: see `MarginPolicy`.
    """

    cues: tuple[str, ...]
    stay: float
    leave: float
    utilization: float
    handoffs_per_1000: float
    margin: float
    agreement: float
    unproven: bool
    low: float = _NAN
    high: float = _NAN


@dataclass(frozen=True, slots=True)
class Level:
    """A named set of cues and what `RelayPolicy` is predicted to do with it, see `Prediction`.

    ``unproven``: at least one of its cues is not proven by a test. ``low`` and ``high``: the 95 %
    interval of the utilization. ``target``: the utilization aimed at, None where none is; with too
    few good cues it stays out of reach. ``agreement``: of the delegated tokens; nan where it is not
    known. ``own``: the margin policy with these cues, at the level's target utilization, or at the
    one that the cues reach where there is no target; None without cues. ``best``: the same with
    the cues that suit it best: these, or the first level's where those do better.
    """

    name: str
    cues: tuple[str, ...]
    utilization: float
    handoffs_per_1000: float
    margin: float
    unproven: bool
    low: float = _NAN
    high: float = _NAN
    target: float | None = None
    agreement: float = _NAN
    own: Steered | None = None
    best: Steered | None = None

    @property
    def steered(self) -> tuple[Steered, ...]:
        """The margin policy with its own cues, and with the best ones where those are others."""
        if self.own is None or self.best is None:
            return ()
        return (self.own,) if self.best.cues == self.own.cues else (self.own, self.best)

    def under(self, policy: str) -> Level | Steered:
        """What is predicted of a profile's level of this policy: ``relay``, or ``margin``."""
        return self.best if policy == "margin" and self.best is not None else self

    def missed(self, utilization: float) -> float | None:
        """The target, where this utilization is far from it."""
        far = self.target is not None and abs(utilization - self.target) > MISS
        return self.target if far else None


@dataclass(frozen=True, slots=True)
class Point:
    """On the curve: these cues together, their predicted utilization and mean delegated margin."""

    utilization: float
    margin: float
    cues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """The choice made on one fold and measured on the other, and the other way round.

    Attributes:
        cues: what fold 0 chose (measured on fold 1) and what fold 1 chose (measured on fold 0);
            mined candidates are not chosen by the latter.
        traces: traces with a difference.
        effect, low, high: mean over those, of both directions, with its 95 % interval.
        margin: mean delegated margin; nan where nothing was delegated.
        utilization: predicted, over the traces of both directions.
        fallback: neither fold alone could choose by the rule, so the fall-back chose on each.
    """

    cues: tuple[tuple[str, ...], tuple[str, ...]]
    traces: int
    effect: float
    low: float
    high: float
    margin: float
    utilization: float
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result.

    Attributes:
        cues: every candidate, in the order given.
        overall: mean margin of all tokens of the relayed stage; nan where none is known.
        rule: as it was asked for.
        unproven: the choice rests on at least one cue that no test supports.
        more_traces: how many more traces are likely needed to prove a cue, where none is proven;
            None where one is, or where more traces are of no evident use.
        levels: ``careful`` is the rule's choice, ``balanced`` and ``fast`` aim at utilizations.
        curve: best cues first, one more at each point.
        held_out: None where there is one fold only, or neither fold alone chose a cue.
        seed: of flips and resamples.
        min_effect: the least effect that counts.
        fallback: nothing was significant, so that ``paper`` with minimum counts chose.
    """

    cues: tuple[CueResult, ...]
    overall: float
    rule: str
    unproven: bool
    more_traces: int | None
    levels: tuple[Level, ...]
    curve: tuple[Point, ...]
    held_out: Held | None
    seed: int
    min_effect: float = MIN_EFFECT
    fallback: bool = False
