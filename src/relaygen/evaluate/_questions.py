"""What an evaluation asks: items with a prompt and, where it is known, the right answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal, cast, get_args

from .._errors import MissingExtraError, UsageError
from .._questions import PROMPT, Row, rows
from ..grading import _answers
from ._presets import ANY, PRESETS, Preset, detected, of_repository, preset

CHOICE_PROMPT = (
    "{question}\n\n{choices}\n\nPlease reason step by step, and put the letter of your final"
    " choice within \\boxed{}."
)
"""What the user says where one of several answers is to be chosen."""

Kind = Literal["math", "choice", "pattern", "none"]

_HUB = "hub:"
_MARK = "####"
_HUB_NAME = re.compile(r"([\w.-]+(?:/[\w.-]+)?)(?::([\w.-]+))?(?:@([\w.+-]+))?")


@dataclass(frozen=True, slots=True)
class Item:
    r"""One question.

    Attributes:
        id: unique in its data set.
        question: for the reader; of a choice without its choices.
        prompt: what the user says, with the request for a ``\boxed{}`` and with the choices.
        gold: the right result, of a choice its letter; None where it is not known.
        kind: ``math``: equal by mathematics; ``choice``: equal letters; ``pattern``: `pattern`
            decides; ``none``: nothing to grade, and the prompt is the question.
        pattern: a regular expression. With a gold its first group, or all of it, must be equal to
            the gold; without, it must be found.
    """

    id: str
    question: str
    prompt: str
    gold: str | None
    kind: Kind
    pattern: str = ""

    def to_json(self) -> dict[str, Any]:
        """As one line holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Item:
        """The inverse of `to_json`.

        Raises:
            UsageError: a key is missing or has another type.
        """
        texts = {key: value.get(key) for key in ("id", "question", "prompt", "kind", "pattern")}
        gold = value.get("gold")
        if not all(isinstance(text, str) for text in texts.values()) or not (
            gold is None or isinstance(gold, str)
        ):
            raise UsageError("this is no item: a key is missing or has another type")
        if texts["kind"] not in get_args(Kind):
            raise UsageError(f"an item's kind is one of {', '.join(get_args(Kind))}")
        return cls(gold=gold, **cast("dict[str, Any]", texts))


def load_items(
    source: str, *, preset: str | None = None, seed: int = 0, n: int | None = None
) -> list[Item]:
    r"""The items of a data set, in its order.

    A line has a question and perhaps ``answer`` and ``id``; `_presets` has the names that known
    data sets use. ``choices``, a list, makes it a choice whose ``answer`` is a letter, a text or a
    place counted from 0; ``pattern`` is a regular expression for the model's answer. The answer of
    GSM8K stands behind ``####``, that of a solution in its last ``\boxed{}``.

    Args:
        source: a path (JSON lines, a JSON list, CSV); ``hub:ORG/NAME[:CONFIG][@SPLIT]`` for a data
            set of the Hugging Face Hub, ``hub:PRESET`` for a preset's own.
        preset: which columns to read; None to tell by the columns.
        seed: of the order of GPQA's choices: an item has the same order whatever `n` is.
        n: only the first so many.

    Raises:
        UsageError: the source cannot be read, a line makes no sense, or there are fewer than `n`.
        MissingExtraError: a hub data set without the library ``datasets``.
    """
    if n is not None and n < 1:
        raise UsageError(f"n must be at least 1, not {n}")
    chosen = None if preset is None else _preset(preset)
    if source.startswith(_HUB):
        name, chosen = _hub_name(source, chosen)
        found: Iterator[Row] | Sequence[Row] = _hub_rows(source, *name)
    else:
        found = rows(source)
    items: dict[str, Item] = {}
    for row in islice(found, n):
        item = _item(row, chosen or _detected(row), seed, items)
        items[item.id] = item
    if not items:
        raise UsageError(f"{source} holds no question")
    if n is not None and n > len(items):
        raise UsageError(
            f"{n} questions are asked for, and {source} holds only {len(items)}",
            hint=f"--n {len(items)} or fewer, or none for all",
        )
    return list(items.values())


_preset = preset


def _detected(row: Row) -> Preset:
    try:
        return detected(row.value)
    except UsageError as error:
        raise UsageError(f"{row.where}: {error}", hint=error.hint) from None


def _hub_name(source: str, chosen: Preset | None) -> tuple[tuple[str, str, str], Preset | None]:
    """Repository, config and split, and the preset that reads them."""
    match = _HUB_NAME.fullmatch(source.removeprefix(_HUB))
    if match is None:
        raise UsageError(
            f"{source!r} names no data set", hint="it is hub:ORG/NAME[:CONFIG][@SPLIT]"
        )
    name, config, split = match.groups()
    if "/" not in name:
        own: Preset | None = _preset(name)
        assert own is not None
        name = own.repository
    else:
        own = of_repository(name)
    default = own or ANY
    return (name, config or default.config, split or default.split), chosen or own


def _hub_rows(source: str, name: str, config: str, split: str) -> Iterator[Row]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtraError("datasets", extra="hub") from None
    try:
        loaded = load_dataset(name, config or None, split=split)
    except Exception as error:  # of the hub, of the network, of a file: the library has no base
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"cannot load {source}: {first}",
            hint="name config and split as hub:ORG/NAME:CONFIG@SPLIT; for a gated data set accept"
            " its terms on its page and log in with: hf auth login",
        ) from error
    for number, value in enumerate(loaded, start=1):
        yield Row(source, number, value)


def _item(row: Row, columns: Preset, seed: int, known: Mapping[str, Item]) -> Item:
    id = row.id(known, _first(row, columns.id) or "id")
    question = row.text(_first(row, columns.question) or columns.question[0]).strip()
    pattern = _pattern(row)
    if columns.wrong:
        right = row.text(columns.gold[0])
        choices = _shuffled([right, *map(row.text, columns.wrong)], seed, id)
        return _choice(id, question, [text for _, text in choices], _place(choices))
    if row.value.get("choices") is not None:
        texts = _choices(row)
        return _choice(id, question, texts, _right(row, texts, columns))
    gold = _gold(row, columns)
    kind: Kind = "pattern" if pattern else "math" if gold is not None else "none"
    prompt = PROMPT.replace("{question}", question) if kind == "math" else question
    return Item(id, question, prompt, gold, kind, pattern)


def _first(row: Row, columns: Sequence[str]) -> str | None:
    given = ((name, row.value.get(name)) for name in columns)
    return next((name for name, value in given if value is not None and str(value).strip()), None)


def _shuffled(texts: Sequence[str], seed: int, id: str) -> list[tuple[int, str]]:
    """Texts with their old places, in an order that seed and id alone decide."""

    def key(place: int) -> bytes:
        return hashlib.sha256(f"choices\0{seed}\0{id}\0{place}".encode()).digest()

    return [(place, texts[place].strip()) for place in sorted(range(len(texts)), key=key)]


def _place(choices: Sequence[tuple[int, str]]) -> int:
    return next(at for at, (place, _) in enumerate(choices) if place == 0)


def _choice(id: str, question: str, texts: Sequence[str], right: int | None) -> Item:
    listed = "\n".join(f"{_answers.LETTERS[at]}) {text}" for at, text in enumerate(texts))
    prompt = CHOICE_PROMPT.replace("{choices}", listed, 1).replace("{question}", question, 1)
    gold = None if right is None else _answers.LETTERS[right]
    return Item(id, question, prompt, gold, "choice")


def _choices(row: Row) -> list[str]:
    texts = row.value["choices"]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{row.where}: 'choices' is no list of texts")
    if not 2 <= len(texts) <= len(_answers.LETTERS):
        raise UsageError(f"{row.where}: 'choices' holds {len(texts)}, not 2 to 10")
    return texts


def _right(row: Row, texts: Sequence[str], columns: Preset) -> int | None:
    """The place of the right one of the choices."""
    column = _first(row, columns.gold)
    if column is None:
        return None
    said = row.value[column]
    places: dict[object, int] = {text: place for place, text in enumerate(texts)}
    for place in range(len(texts)):
        places.setdefault(_answers.LETTERS[place], place)
        places.setdefault(place, place)
    if isinstance(said, bool) or not isinstance(said, str | int) or said not in places:
        raise UsageError(
            f"{row.where}: the {column!r} {said!r} is none of the choices",
            hint="it is a letter, the text of a choice, or its place counted from 0",
        )
    return places[said]


def _gold(row: Row, columns: Preset) -> str | None:
    column = _first(row, columns.gold)
    if column is None:
        return None
    value = row.value[column]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{row.where}: the {column!r} is neither text nor a number")
    text = str(value).rpartition(_MARK)[2].strip()
    if not text:
        raise UsageError(
            f"{row.where}: nothing stands behind {_MARK} in the {column!r}",
            hint="put the right answer there, or leave the column empty where there is none",
        )
    box = _answers.boxed(text)
    if box is None and column.lower() == "solution":
        raise UsageError(
            f"{row.where}: the {column!r} has no complete \\boxed{{}}",
            hint="put the right answer into a column 'answer'",
        )
    return text if box is None else box


def _pattern(row: Row) -> str:
    pattern = row.value.get("pattern")
    if pattern is None or pattern == "":
        return ""
    if not isinstance(pattern, str):
        raise UsageError(f"{row.where}: the 'pattern' is no text")
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{row.where}: the 'pattern' is no regular expression: {error}") from None
    return pattern


__all__ = ["CHOICE_PROMPT", "PRESETS", "Item", "Kind", "load_items"]
