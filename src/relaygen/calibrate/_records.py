"""Traces and scores as JSON lines: appended one by one, so a killed run loses one line at most.

The files may be edited by hand or come from other tools; what is wrong in them is said with the
number of the line.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, cast

from .. import _files
from .._errors import UsageError

TraceFinish = Literal["stop", "length", "repetition", "cancelled"]
"""Why a trace ended, as `Generation.finish` says it."""

_FINISHES = ("stop", "length", "repetition", "cancelled")


@dataclass(frozen=True, slots=True)
class Trace:
    """One generation of the large model alone.

    Attributes:
        id: unique in its file.
        question: what was asked.
        prompt_ids: the chat prompt as the engine rendered it.
        ids: what the model wrote behind it; no end-of-turn.
        pieces: the exact bytes of each of `ids`.
        finish: why it ended.
        seed: None where none was used or it is not known.
        model: who wrote it.
        fold: candidates are mined on fold 0 and tested on fold 1, or the other way round; all
            traces of one question are in one fold.

    Raises:
        UsageError: `ids` and `pieces` differ in length, or a value is out of range.
    """

    id: str
    question: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]
    finish: TraceFinish
    seed: int | None
    model: str
    fold: int

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.pieces):
            raise UsageError(f"{len(self.ids)} ids and {len(self.pieces)} pieces: {self.id!r}")
        if self.fold not in (0, 1):
            raise UsageError(f"a fold is 0 or 1, not {self.fold!r}")
        if self.finish not in _FINISHES:
            raise UsageError(f"a finish is one of {', '.join(_FINISHES)}, not {self.finish!r}")

    @property
    def text(self) -> str:
        """Everything that was written, thinking tags included; U+FFFD for what is no UTF-8."""
        return b"".join(self.pieces).decode(errors="replace")

    def to_json(self) -> dict[str, Any]:
        """As one line holds it."""
        return {
            "id": self.id,
            "question": self.question,
            "prompt_ids": list(self.prompt_ids),
            "ids": list(self.ids),
            "pieces": [_written(data) for data in self.pieces],
            "finish": self.finish,
            "seed": self.seed,
            "model": self.model,
            "fold": self.fold,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Trace:
        """The inverse of `to_json`.

        Raises:
            UsageError: a key is missing or a value has another type.
        """
        seed = value.get("seed")
        return cls(
            id=_text(value, "id"),
            question=_text(value, "question"),
            prompt_ids=tuple(_list(value, "prompt_ids", int)),
            ids=tuple(_list(value, "ids", int)),
            pieces=tuple(_bytes(piece) for piece in _list(value, "pieces", str, dict)),
            finish=cast(TraceFinish, _text(value, "finish")),
            seed=seed if _is(seed, int) else None,
            model=_text(value, "model"),
            fold=_number(value, "fold"),
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """What a scorer, teacher-forced over one trace, expected before each of its tokens.

    Attributes:
        id: the trace's.
        scorer: the model that scored.
        margins: p(top-1) - p(top-2) before each token, in [0, 1]; None where it is not known.
        top: the most probable id before each token; None where it is not known.
        start: ids in front of the first position, the prompt's.

    Raises:
        UsageError: `margins` and `top` differ in length, or a margin is out of range.
    """

    id: str
    scorer: str
    margins: tuple[float | None, ...]
    top: tuple[int | None, ...]
    start: int = 0

    def __post_init__(self) -> None:
        if len(self.margins) != len(self.top):
            raise UsageError(f"{len(self.margins)} margins and {len(self.top)} ids: {self.id!r}")
        if not all(margin is None or 0.0 <= margin <= 1.0 for margin in self.margins):
            raise UsageError(f"a margin of {self.id!r} is not between 0 and 1")

    def to_json(self) -> dict[str, Any]:
        """As one line holds it."""
        return {
            "id": self.id,
            "scorer": self.scorer,
            "start": self.start,
            "margins": list(self.margins),
            "top": list(self.top),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Scores:
        """The inverse of `to_json`.

        Raises:
            UsageError: a key is missing or a value has another type.
        """
        margins = _list(value, "margins", int, float, type(None))
        return cls(
            id=_text(value, "id"),
            scorer=_text(value, "scorer"),
            margins=tuple(None if margin is None else float(margin) for margin in margins),
            top=tuple(_list(value, "top", int, type(None))),
            start=_number(value, "start"),
        )


class Line(Protocol):
    """What a line of such a file holds."""

    def to_json(self) -> dict[str, Any]:
        """As one line holds it."""
        ...

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Line:
        """The inverse of `to_json`."""
        ...


Record = TypeVar("Record", bound=Line)


def append(path: str | os.PathLike[str], record: Line) -> None:
    """One line more; see `relaygen._files.append`.

    Raises:
        UsageError: the file cannot be written.
    """
    _files.append(path, record.to_json())


def read(path: str | os.PathLike[str], kind: type[Record]) -> list[Record]:
    """The records of a file, in order; none where there is no file.

    A last line without its end was cut off by a crash and does not count. Empty lines neither.

    Raises:
        UsageError: the file cannot be read, or a line is no such record.
    """
    return [_record(path, number, line, kind) for number, line in _files.lines(path)]


def _record(
    path: str | os.PathLike[str], number: int, value: Mapping[str, Any], kind: type[Record]
) -> Record:
    try:
        return cast(Record, kind.from_json(value))
    except UsageError as error:
        raise UsageError(f"{path}, line {number}: {error}") from error


def _written(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode()}


def _bytes(piece: str | dict[str, Any]) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    try:
        return base64.b64decode(piece["b64"], validate=True)
    except (KeyError, TypeError, binascii.Error, ValueError):
        raise UsageError("a piece is neither text nor {'b64': ...}") from None


def _is(value: object, *kinds: type) -> bool:
    """Whether it is one of these; a bool is no number."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def _value(value: Mapping[str, Any], key: str, *kinds: type) -> Any:
    if key not in value:
        raise UsageError(f"{key!r} is missing")
    if not _is(value[key], *kinds):
        raise UsageError(f"{key!r} has the wrong type")
    return value[key]


def _text(value: Mapping[str, Any], key: str) -> str:
    return cast(str, _value(value, key, str))


def _number(value: Mapping[str, Any], key: str) -> int:
    return cast(int, _value(value, key, int))


def _list(value: Mapping[str, Any], key: str, *kinds: type) -> list[Any]:
    found = _value(value, key, list)
    if not all(_is(item, *kinds) for item in found):
        raise UsageError(f"{key!r} has a value of the wrong type")
    return cast("list[Any]", found)
