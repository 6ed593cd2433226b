"""What a set of cues will do at run time: its sentences replayed over the traces. Pure.

The large model's own text stands in for the text that a relay will write. The small model's
sentences will be others, and so may be what follows: hence measured figures beside these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from .._task import AnswerRole
from ..text.cues import LONGEST_OPENING, bare
from ._effects import Floats, Run, Table, stats_of_runs
from ._segments import Firing
from ._tests import ratio_interval

_GUARD = 3  # the default of `RelayPolicy`

Ending = Callable[[Firing], int]
"""One behind the last token that a firing delegates; its first token where that is none."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected of a set of cues.

    Attributes:
        utilization: the large model's share of all tokens, between 0 and 1.
        low, high: 95 % bootstrap interval of the utilization over traces; nan with one trace.
        handoffs_per_1000: changes of role, both ways, per 1,000 tokens.
        delegated: tokens in delegated segments, the answer stage not among them.
        margin: mean margin of those; nan where none is known.
        agreement: share of those where the scorer's most probable token is the trace's; nan where
            the scorer names none.
        effect: mean over traces of their margin minus that of matched places; nan where none match.
    """

    utilization: float
    low: float
    high: float
    handoffs_per_1000: float
    delegated: int
    margin: float
    agreement: float
    effect: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """A set of cues over traces: a row per trace, in tokens and hand-offs."""

    runs: tuple[tuple[Run, ...], ...]
    large: Floats
    tokens: Floats
    handoffs: Floats

    @property
    def utilization(self) -> float:
        """Large tokens / all tokens; 1 where there is no token."""
        return float(self.large.sum() / self.tokens.sum()) if self.tokens.sum() else 1.0


def replay(
    made: Sequence[Table],
    cues: Collection[str],
    *,
    answer_role: AnswerRole = "small",
    guard: int = _GUARD,
    endings: Sequence[Ending] | None = None,
) -> Replayed:
    """Who would write which token, if the relay wrote the trace's text.

    Args:
        made: the traces.
        cues: used together.
        answer_role: who writes what follows the relayed stage, where the traces think in tags;
            ``relay`` is taken to delegate there what it delegates before. Traces without tags are
            relayed to their end: that an answer marker hands over the rest is not looked at.
        guard: see `RelayPolicy.max_consecutive_delegations`.
        endings: where segments end, for each trace; by default with their sentences.
    """
    chosen = frozenset(cues)
    ends = endings if endings is not None else [_of_sentence] * len(made)
    runs = tuple(
        tuple(delegated(table, chosen, guard, end)) for table, end in zip(made, ends, strict=True)
    )
    rows = [_row(table, each, answer_role) for table, each in zip(made, runs, strict=True)]
    columns = np.array(rows, np.float64).reshape(len(rows), 3).T
    return Replayed(runs, *columns)


def _of_sentence(firing: Firing) -> int:
    return firing.end


def delegated(
    table: Table, cues: Collection[str], guard: int = _GUARD, ending: Ending = _of_sentence
) -> list[Run]:
    """The segments that a set of cues delegates in one trace, by the rules of `RelayPolicy`.

    A cue inside a delegated segment does not fire, since the small model wrote it. After `guard`
    segments of the large model that held nothing but a cue, it writes the rest of a sentence; and
    so it does where the small model kept nothing, as `MarginPolicy` has it.
    """
    found: list[Run] = []
    free = resumed = row = 0  # where a cue may fire again; where the large model's segment began
    for firing in table.firings:
        if firing.name not in cues or firing.token < free:
            continue
        opening = table.text(resumed, firing.token + 1, LONGEST_OPENING)
        row = row + 1 if bare(opening, firing.name) else 0
        free = resumed = ending(firing)
        found.append(Run(firing.token, firing.first, resumed))
        if row >= guard or resumed == firing.first:
            free = table.sentence_end(resumed)
        if row >= guard:
            row = 0
    return found


def _row(table: Table, runs: Sequence[Run], answer_role: AnswerRole) -> tuple[float, float, float]:
    """(large tokens, tokens, hand-offs) of one trace."""
    trace = table.observed.trace
    length = len(trace.ids)
    end = table.sentences[-1].end if table.sentences else 0
    small = float(sum(run.end - run.first for run in runs))
    cut = bool(runs) and runs[-1].end == length and trace.finish != "stop"  # never handed back
    handoffs = 2.0 * len(runs) - cut
    answer = max(0, length - end - 1)  # the closing tag itself is the lead's
    if answer and answer_role == "small":
        small, handoffs = small + answer, handoffs + 1.0
    elif answer and answer_role == "relay" and end:
        small, handoffs = small * (1.0 + answer / end), handoffs * (1.0 + answer / end)
    return length - small, float(length), handoffs


def delegated_margins(made: Sequence[Table], replayed: Replayed) -> Floats:
    """The known margins of all delegated tokens."""
    parts = [
        table.margins[run.first : run.end]
        for table, runs in zip(made, replayed.runs, strict=True)
        for run in runs
    ]
    values = np.concatenate(parts) if parts else np.zeros(0)
    return np.asarray(values[~np.isnan(values)], np.float64)


def predict(
    made: Sequence[Table],
    cues: Collection[str],
    *,
    seed: int,
    answer_role: AnswerRole = "small",
    guard: int = _GUARD,
) -> Prediction:
    """Expected utilization, hand-offs and margins of a set of cues; see `replay`."""
    return summary(made, replay(made, cues, answer_role=answer_role, guard=guard), seed=seed)


def summary(made: Sequence[Table], replayed: Replayed, *, seed: int) -> Prediction:
    """Of a replay."""
    shown = stats_of_runs("", made, replayed.runs)
    differences = shown.differences[~np.isnan(shown.differences)]
    low, high = ratio_interval(replayed.large[:, None], replayed.tokens[:, None], seed=seed)
    total = replayed.tokens.sum()
    return Prediction(
        replayed.utilization,
        float(low[0]),
        float(high[0]),
        float(1000.0 * replayed.handoffs.sum() / total) if total else 0.0,
        shown.tokens,
        float("nan") if shown.margin is None else shown.margin,
        float("nan") if shown.agreement is None else shown.agreement,
        float(differences.mean()) if differences.size else float("nan"),
    )
