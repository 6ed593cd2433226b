"""The typed events of a running generation, in the order in which they happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._results import Generation
from ._types import Kind, Role, Stage, Writer


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is final. Markers of thinking are left out, stop strings cut."""

    text: str
    role: Writer
    stage: Stage
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class HandedOff:
    """The other role goes on; comes before its first text.

    ``token`` counts the kept tokens before it; ``discarded`` what was received beyond it;
    ``seconds`` is the time from the decision to the receiver's first token, or to its failure
    before one.
    """

    source: Role
    target: Role
    kind: Kind
    why: str
    cue: str
    token: int
    discarded: int
    seconds: float
    type: Literal["handoff"] = "handoff"


@dataclass(frozen=True, slots=True)
class Probed:
    """A model was asked for one token to judge its confidence; the token is discarded."""

    role: Role
    margin: float | None
    seconds: float
    type: Literal["probe"] = "probe"


@dataclass(frozen=True, slots=True)
class Inserted:
    """The loop itself wrote a marker."""

    marker: str
    text: str
    tokens: int
    why: str
    type: Literal["insertion"] = "insertion"


@dataclass(frozen=True, slots=True)
class StageChanged:
    """The thinking is over (or turned out not to take place)."""

    stage: Stage
    token: int
    type: Literal["stage"] = "stage"


@dataclass(frozen=True, slots=True)
class FellBack:
    """An engine failed in a segment; what it had written stays, the other one goes on."""

    role: Role
    error: str
    token: int
    type: Literal["fallback"] = "fallback"


@dataclass(frozen=True, slots=True)
class Done:
    """The end, with everything that was written and what it cost."""

    generation: Generation
    type: Literal["done"] = "done"


Event = Text | HandedOff | Probed | Inserted | StageChanged | FellBack | Done
