"""Results as JSON lines: one for each answer, appended as it comes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .._errors import UsageError
from .._files import lines
from .._results import Finish, Generation
from .._types import Stage, Writer

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Key = tuple[str, int, str]
"""An item's id, a run and an arm's name: what one answer is for."""


class Part(NamedTuple):
    """One segment of a text, as `relaygen.Segment` without its ids."""

    role: Writer
    stage: Stage
    why: str
    cue: str
    text: str
    tokens: int
    seconds: float


def parts(generation: Generation) -> tuple[Part, ...]:
    """The segments of a generation."""
    return tuple(
        Part(each.role, each.stage, each.why, each.cue, each.text, each.tokens, each.seconds)
        for each in generation.segments
    )


@dataclass(frozen=True, slots=True)
class Result:
    """One arm's answer to one item in one run, or why there is none.

    Attributes:
        item: its id.
        run: counted from 0.
        arm: its name.
        order: when it was started, counted from 0 over all starts of the command.
        seed: of the generation; the same for all arms.
        at_once: answers that were generated at the same time, this one included; above 1 no time
            of it may be quoted.
        answer, reasoning: what was written.
        finish: why it ended; None where it failed.
        correct: as graded; None without a gold answer, or where it failed.
        extracted: what the grade was given for.
        usage: as `relaygen._jsonable.usage_dict` has it; None where nothing was generated.
        segments: who wrote what.
        error: why it failed; None where it did not. Such an answer is asked for again.
    """

    item: str
    run: int
    arm: str
    order: int
    seed: int
    at_once: int
    answer: str = ""
    reasoning: str = ""
    finish: Finish | None = None
    correct: bool | None = None
    extracted: str | None = None
    usage: Mapping[str, Any] | None = None
    segments: tuple[Part, ...] = ()
    error: str | None = None

    @property
    def key(self) -> Key:
        """What it is an answer for."""
        return self.item, self.run, self.arm

    def to_json(self) -> dict[str, Any]:
        """As one line holds it."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**told, "segments": [list(part) for part in self.segments]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Result:
        """The inverse of `to_json`.

        Raises:
            UsageError: a key is missing or a value has another type.
        """
        from pydantic import ValidationError

        try:
            return _adapter().validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise UsageError(f"{where!r}: {first['msg']}") from None


@cache
def _adapter() -> TypeAdapter[Result]:
    """Made once: it costs more than a thousand lines."""
    from pydantic import TypeAdapter

    return TypeAdapter(Result)


def read(path: str | os.PathLike[str]) -> list[Result]:
    """The results of a file, in order; none where there is no file.

    Raises:
        UsageError: the file cannot be read, or a line is no result.
    """
    found = []
    for number, value in lines(path):
        try:
            found.append(Result.from_json(value))
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
    return found


def settled(results: Iterable[Result]) -> dict[Key, Result]:
    """One result for each key: the first answer, or the last failure where there is none."""
    found: dict[Key, Result] = {}
    for result in results:
        before = found.get(result.key)
        if before is None or before.error is not None:
            found[result.key] = result
    return found
