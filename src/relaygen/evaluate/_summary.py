"""What is told of an evaluation: one line for each arm, and paired differences.

Three figures are never mixed: utilization, milliseconds per token and end-to-end seconds. Times of
answers that were generated beside others say nothing about one answer, so there are none then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from ._paired import Paired, Ratio

FEW = 30
"""Questions below which an interval should not be relied on."""


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm over all its answers.

    Of the arm ``answer-stage``, which writes a part of an answer, there is neither utilization nor
    time.

    Attributes:
        name: the arm's.
        asked: questions times runs.
        answers: how many of those there are.
        n: questions with an answer.
        errors: of the asked, those that failed.
        graded: answers to questions with a gold answer.
        correct: how many of those are right.
        accuracy: the mean over questions of their runs' share of right answers, 0 to 1.
        low, high: its 95 % interval over questions: Wilson's where each is right or wrong, a
            bootstrap where runs differ.
        agreement: the share of answers, to questions without a gold answer, that agree with the
            large model's; None where that cannot be said.
        similarity: the mean lexical similarity of the same answers to the large model's.
        nearness: the mean of what `near` says of the same pairs; None where it was not asked.
        utilization: the large model's share of all tokens kept, 0 to 1.
        small_share: the small model's.
        follows: the arm at whose small share it is to delegate; "" where it follows none.
        handoffs: changes of role.
        tokens: kept, inserted ones included.
        discarded: received and not kept.
        acceptance: of the tokens that speculative decoding guessed, the share that was right; None
            where nothing was guessed, or no engine tells.
        finishes: how the answers ended, and how many did.
        at_once: the most answers at the same time; above 1 the following are None.
        ms_per_token: the median over answers of wall milliseconds per token.
        seconds: the median of wall seconds.
        first_answer_seconds: the median time to the first text of the answer.
        speedup: ms per token of the arm ``large`` over this arm's, both medians.
        ceiling: the speed-up if hand-offs cost nothing, from this arm's measured costs; where its
            large model drafts, over that of the arm ``large``, as the speed-up is.
        reached: `speedup` over `ceiling`.
    """

    name: str
    asked: int
    answers: int
    n: int
    errors: int
    graded: int
    correct: int
    accuracy: float | None
    low: float | None
    high: float | None
    agreement: float | None
    similarity: float | None
    nearness: float | None
    utilization: float | None
    small_share: float | None
    follows: str
    handoffs: int
    tokens: int
    discarded: int
    acceptance: float | None
    finishes: Mapping[str, int]
    at_once: int
    ms_per_token: float | None
    seconds: float | None
    first_answer_seconds: float | None
    speedup: float | None
    ceiling: float | None
    reached: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """The answer stage: the same thinking, and an answer of each model.

    Attributes:
        n: thinkings of the large model behind which both answered.
        agree: in how many the answers are the same.
        large_correct, small_correct: in how many each is right; None without gold answers.
    """

    n: int
    agree: int
    large_correct: int | None
    small_correct: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that is reported.

    Attributes:
        questions: how many were asked.
        runs: answers that each arm gives to each question.
        complete: whether every one is there.
        arms: in the order they were asked for.
        paired: every arm against ``large`` and against the arms ``random``.
        ratios: of every arm against ``large``, where answers were generated one at a time.
        answer_stage: where the arm ``answer-stage`` was asked for.
    """

    questions: int
    runs: int
    complete: bool
    arms: tuple[ArmSummary, ...]
    paired: tuple[Paired, ...]
    ratios: tuple[Ratio, ...]
    answer_stage: Agreement | None = None


def summary_dict(summary: Summary) -> dict[str, Any]:
    """As plain data for JSON; what is no number is None."""
    return cast("dict[str, Any]", _plain(asdict(summary)))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
