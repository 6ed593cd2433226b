"""Known data sets: where they are, and which of their columns hold what.

Columns are those of the data sets' cards on the Hugging Face Hub: ``openai/gsm8k``,
``HuggingFaceH4/MATH-500``, ``HuggingFaceH4/aime_2024``, ``math-ai/aime25``, ``math-ai/amc23`` and
``Idavidrein/gpqa``. Copies of them by others use other names for the same, which stand behind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .._errors import UsageError


@dataclass(frozen=True, slots=True)
class Preset:
    """How to read one data set; of several columns the first that is there counts.

    Attributes:
        question: columns of the question.
        gold: columns of the right answer; of a solution its last box counts.
        id: columns of an id.
        wrong: columns of the wrong choices; none where nothing is chosen.
        repository: on the hub.
        config: of the repository; "" for its only one.
        split: of the repository.
    """

    question: tuple[str, ...] = ("question", "problem", "Question", "Problem")
    gold: tuple[str, ...] = ("answer", "Answer", "solution", "Solution")
    id: tuple[str, ...] = ("id", "unique_id", "ID", "problem_idx")
    wrong: tuple[str, ...] = ()
    repository: str = ""
    config: str = ""
    split: str = "test"


ANY = Preset()
"""A file of one's own, and most data sets of mathematics."""

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "gsm8k": Preset(
            question=("question",),
            gold=("answer",),
            repository="openai/gsm8k",
            config="main",
        ),
        "math-500": Preset(
            question=("problem", "question"),
            gold=("answer", "solution"),
            id=("unique_id", "id"),
            repository="HuggingFaceH4/MATH-500",
        ),
        "aime-2024": Preset(
            question=("problem", "Problem", "question"),
            repository="HuggingFaceH4/aime_2024",
            split="train",
        ),
        "aime-2025": Preset(
            question=("problem", "Problem", "question"),
            repository="math-ai/aime25",
        ),
        "amc-2023": Preset(
            question=("question", "problem"),
            gold=("answer",),
            repository="math-ai/amc23",
        ),
        "gpqa-diamond": Preset(
            question=("Question",),
            gold=("Correct Answer",),
            id=("Record ID", "id"),
            wrong=("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
            repository="Idavidrein/gpqa",
            config="gpqa_diamond",
            split="train",
        ),
    }
)


def preset(name: str) -> Preset:
    """A preset by its name; case, hyphens and the like do not matter.

    Raises:
        UsageError: there is none of that name.
    """
    for known, found in PRESETS.items():
        if _bare(known) == _bare(name):
            return found
    raise UsageError(f"there is no preset {name!r}", hint=f"there are: {', '.join(PRESETS)}")


def of_repository(repository: str) -> Preset | None:
    """The preset of a hub repository, if it is one of theirs."""
    for found in PRESETS.values():
        if found.repository.casefold() == repository.casefold():
            return found
    return None


def detected(columns: Mapping[str, object]) -> Preset:
    """What reads a line with these columns: GPQA by its choices, everything else as `ANY`.

    Raises:
        UsageError: no column, or more than one, may be the question.
    """
    gpqa = PRESETS["gpqa-diamond"]
    if all(name in columns for name in (*gpqa.question, *gpqa.gold, *gpqa.wrong)):
        return gpqa
    candidates = [name for name in ANY.question if name in columns]
    if len(candidates) == 1:
        return ANY
    found = ", ".join(map(repr, columns)) or "none"
    what = "no column is the question" if not candidates else f"{candidates} may be the question"
    raise UsageError(
        f"{what}; there are {found}",
        hint=f"name the column 'question', or a preset: {', '.join(PRESETS)}",
    )


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
