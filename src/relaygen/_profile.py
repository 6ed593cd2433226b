"""A profile: what is known about a pair. Pure data; `relaygen.profiles` reads and checks files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ._task import AnswerRole, Thinking
from ._types import Sampling


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a profile's cues come from.

    Attributes:
        source: a citation or a file.
        scorer: the model whose margins chose the cues; "" where no margins did.
        questions: the calibration questions.
        rule: how cues were chosen.
        notes: what a reader should know, one line each.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # no misspelt entries

    source: str
    scorer: str = ""
    questions: str = ""
    rule: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """A pair's cues, thinking style, markers and defaults.

    Attributes:
        name: what ``--profile`` takes.
        description: one line.
        large, small: the models it was made for, for the reader.
        thinking: ``tags`` where the model marks its thinking, ``none`` where all is answer.
        tags: the marks.
        prefill: opens the assistant's turn, for example ``<think>`` and a newline.
        answer_role: who answers after the thinking.
        cues: switch cues.
        tools: how the models write tool calls: ``hermes`` is one JSON object with ``name`` and
            ``arguments`` in ``<tool_call>`` tags; None where they were not trained to.
        answer_markers: announce the answer; hints for policies, never cues.
        one_shot_groups: cue groups of the one-shot policy, instead of its own.
        sampling: defaults of the models' authors.
        max_consecutive_delegations: see `RelayPolicy`.
        provenance: where the cues come from.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # no misspelt entries

    name: str
    description: str
    large: str
    small: str
    thinking: Literal["tags", "none"]
    cues: tuple[str, ...]
    provenance: Provenance
    tags: Thinking = field(default_factory=Thinking)
    prefill: str = ""
    answer_role: AnswerRole = "small"
    tools: Literal["hermes"] | None = None
    answer_markers: tuple[str, ...] = ()
    one_shot_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    max_consecutive_delegations: int = 3
    version: Literal[1] = 1
