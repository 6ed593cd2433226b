"""A profile: what is known about a pair. Pure data; `relaygen.profiles` reads and checks files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from ._errors import UsageError
from ._task import AnswerRole, Thinking
from ._types import Sampling


@dataclass(frozen=True, slots=True)
class Evidence:
    """What calibration saw of one cue. Margins and their differences are probabilities.

    Attributes:
        count: sentences in which the cue would hand over.
        traces: traces with such a sentence.
        share: the delegated tokens as a share of all tokens.
        margin: the scorer's mean margin in them.
        agreement: the share of them that the scorer's most probable token agrees with.
        effect: how much higher the margin is there than at matched positions of other sentences.
        low, high: the 95 % interval of the effect.
        holm: the p-value of no effect, corrected for all cues tested; None where untestable.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # no misspelt entries

    count: int
    traces: int
    share: float
    margin: float | None = None
    agreement: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    holm: float | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a profile's cues come from.

    Attributes:
        source: a citation or a file.
        scorer: the model whose margins chose the cues; "" where no margins did.
        questions: the calibration questions.
        rule: how cues were chosen.
        notes: what a reader should know, one line each.
        cues: what calibration saw of each cue; empty where nothing was measured.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # no misspelt entries

    source: str
    scorer: str = ""
    questions: str = ""
    rule: str = ""
    notes: tuple[str, ...] = ()
    cues: Mapping[str, Evidence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfileLevel:
    """One trade between the large model's share and what the cues' segments cost in margin.

    Attributes:
        cues: its switch cues.
        policy: what ``relay`` stands for at this level: `RelayPolicy`, or `MarginPolicy`.
        stay, leave: thresholds of `MarginPolicy`, which a ``relay`` level may have too; see there.
        utilization: the large model's share of the tokens that is expected, 0 to 1.
        unproven: it rests on cues without evidence; results say so.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # no misspelt entries

    cues: tuple[str, ...]
    policy: Literal["relay", "margin"] = "relay"
    stay: float | None = None
    leave: float | None = None
    utilization: float | None = None
    unproven: bool = False


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
        max_consecutive_delegations: large segments in a row that hold nothing but a cue, after
            which the large model writes a whole sentence.
        provenance: where the cues come from.
        levels: by name, usually ``careful``, ``balanced`` and ``fast``.
        level: the one in force, whose cues these are; "" where none is.
        version: of this format.
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
    levels: Mapping[str, ProfileLevel] = field(default_factory=dict)
    level: str = ""
    version: Literal[1] = 1

    @property
    def marks(self) -> Thinking | None:
        """How the models mark their thinking; None where all is answer."""
        return self.tags if self.thinking == "tags" else None

    @property
    def in_force(self) -> ProfileLevel | None:
        """The level of that name."""
        return self.levels.get(self.level)

    def at(self, level: str) -> Profile:
        """This profile with a level's cues and policy in force.

        Raises:
            UsageError: there is no such level; the message names those there are.
        """
        if level not in self.levels:
            if self.levels:
                raise UsageError(
                    f"profile {self.name!r} has no level {level[:100]!r}; "
                    f"levels: {', '.join(self.levels)}"
                )
            raise UsageError(
                f"profile {self.name!r} has no level {level[:100]!r}; it has no levels",
                hint="take a profile that has some, such as embedded-calibrated, or make one for "
                "your pair: relaygen calibrate",
            )
        return replace(self, cues=self.levels[level].cues, level=level)
