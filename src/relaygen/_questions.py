"""Files of questions, and what is asked: one reading for calibration and evaluation.

A file is JSON lines (``.jsonl`` and every other name), one JSON list (``.json``) or a table with a
header (``.csv``).
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._errors import UsageError
from ._files import lines, read

PROMPT = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}."
"""What the user says; Qwen's own wording for mathematics."""


@dataclass(frozen=True, slots=True)
class Row:
    """One question as it was found.

    Attributes:
        source: the file or data set.
        number: its line, counted from 1; in a JSON list or a data set its place.
        value: its columns.
    """

    source: str
    number: int
    value: Mapping[str, Any]

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.source}, line {self.number}"

    def text(self, column: str) -> str:
        """A column that must hold text.

        Raises:
            UsageError: it does not, or is empty.
        """
        text = self.value.get(column)
        if not isinstance(text, str) or not text.strip():
            found = ", ".join(repr(name) for name in self.value) or "nothing"
            raise UsageError(
                f"{self.where}: there is no {column!r}",
                hint=f"it must hold text; this line has {found}",
            )
        return text

    def id(self, known: Collection[str], column: str = "id") -> str:
        """Its id, else its number.

        Raises:
            UsageError: `known` has it already, or it is no text or number.
        """
        id = self.value.get(column)
        if id is None or id == "":
            id = self.number
        if isinstance(id, bool) or not isinstance(id, str | int):
            raise UsageError(f"{self.where}: the {column!r} is neither text nor a number")
        if str(id) in known:
            raise UsageError(
                f"{self.where}: the id {str(id)!r} is there twice",
                hint=f"give every line an {column!r} of its own, or none of them",
            )
        return str(id)


def rows(path: str | os.PathLike[str]) -> list[Row]:
    """The questions of a file.

    Raises:
        UsageError: there is no such file, it holds none, or a line cannot be read.
    """
    readers = {".csv": _table, ".json": _list}
    found = list(map(_whole, readers.get(Path(path).suffix.lower(), _lines)(path)))
    if not found:
        raise UsageError(f"{path} holds no question", hint="each line holds one")
    return found


def _whole(row: Row) -> Row:
    """The row; JSON may escape half a character, which no file and no engine takes.

    Raises:
        UsageError: it does.
    """
    try:
        json.dumps(row.value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{row.where}: a text is not valid Unicode", hint="a \\uD800 to \\uDFFF stands alone"
        ) from None
    return row


def _lines(path: str | os.PathLike[str]) -> Iterator[Row]:
    for number, value in lines(path, foreign=True):
        yield Row(str(path), number, value)


def _list(path: str | os.PathLike[str]) -> Iterator[Row]:
    text = read(path)
    try:
        values = json.loads(text)
    except ValueError:
        yield from _lines(path)  # JSON lines under another name; if not, this says what is wrong
        return
    if not isinstance(values, list):
        raise UsageError(f"{path} is no JSON list", hint="[{...}, ...], or one {...} on each line")
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise UsageError(f"{path}, item {number}: not a JSON object")
        yield Row(str(path), number, value)


def _table(path: str | os.PathLike[str]) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(read(path), newline=""), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise UsageError(
                    f"{path}, line {reader.line_num}: not as many fields as the header",
                    hint="a field with a comma or a line break stands in double quotes",
                )
            yield Row(str(path), reader.line_num, row)
    except csv.Error as error:
        # The count is of the lines that were read well.
        raise UsageError(f"{path}, line {reader.line_num + 1}: not CSV ({error})") from error
