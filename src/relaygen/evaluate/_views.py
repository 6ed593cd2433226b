"""Questions with every arm's text, as the report shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from ._results import Part, Result

if TYPE_CHECKING:
    from .._types import Stage, Writer
    from ._questions import Item

MOST_TEXT = 1_500_000
"""Characters of all texts together: more make a page that browsers are slow with."""

_LEAST_TEXT = 600  # of one text, however many there are
_HEADING = 160


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a text by one writer.

    Attributes:
        role, stage: as `Part`.
        text: shown.
        told: who writes and why; "" where the same writer goes on.
        left_out: characters that are not shown behind it.
    """

    role: Writer
    stage: Stage
    text: str
    told: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """One arm's answer in one run.

    Attributes:
        result: it.
        stretches: its text.
        large: the large model's share of its tokens; None where none are counted.
        handoffs: changes of writer.
        tokens: kept.
        seconds: of the answer; None where it was generated beside others.
    """

    result: Result
    stretches: tuple[Stretch, ...]
    large: float | None
    handoffs: int
    tokens: int
    seconds: float | None

    @property
    def shown(self) -> int:
        """Characters of its text that are shown."""
        return sum(len(part.text) for part in self.stretches)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question.

    Attributes:
        item: it.
        heading: its beginning, on one line.
        states: by arm in the order of the arms: ``1`` right, ``0`` wrong, ``m`` where runs differ,
            ``u`` not graded, ``e`` failed, ``-`` not there.
        differ: whether arms are graded differently; without grades, whether their results differ.
        answers: in the order of the arms.
    """

    item: Item
    heading: str
    states: tuple[str, ...]
    differ: bool
    answers: tuple[Answer, ...]


def views(
    items: Sequence[Item],
    results: Sequence[Result],
    arms: Sequence[str],
    *,
    most: int = MOST_TEXT,
) -> tuple[Asked, ...]:
    """Every question with its answers; long texts lose their middles where all are too much.

    Args:
        items: that were asked.
        results: the ones that count.
        arms: their names, in order.
        most: characters of all texts together, about.
    """
    by_item: dict[str, list[Result]] = {item.id: [] for item in items}
    for result in results:
        by_item[result.item].append(result)
    limit = _limit([_size(result) for result in results], most)
    place = {name: number for number, name in enumerate(arms)}
    return tuple(
        _asked(
            item,
            sorted(by_item[item.id], key=lambda one: (place[one.arm], one.run)),
            arms,
            limit,
        )
        for item in items
    )


def _asked(item: Item, results: Sequence[Result], arms: Sequence[str], limit: int) -> Asked:
    by_arm = {name: [one for one in results if one.arm == name] for name in arms}
    states = tuple(map(state, by_arm.values()))
    graded = {one for one in states if one in "01m"}
    said = {one.extracted for one in results if one.correct is None and one.extracted is not None}
    words = " ".join(item.question.split())
    heading = words if len(words) <= _HEADING else f"{words[: _HEADING - 1].rstrip()}…"
    differ = len(graded) > 1 or "m" in graded or len(said) > 1
    return Asked(item, heading, states, differ, tuple(_answer(one, limit) for one in results))


def state(results: Sequence[Result]) -> str:
    """One arm's answers to a question, as `Asked.states` has it."""
    good = [result for result in results if result.error is None]
    if not good:
        return "e" if results else "-"
    graded = {result.correct for result in good if result.correct is not None}
    if not graded:
        return "u"
    return "m" if len(graded) > 1 else "1" if True in graded else "0"


def _answer(result: Result, limit: int) -> Answer:
    usage: Mapping[str, float | None] = result.usage or {}
    kept = stretches(result.segments or _unsegmented(result))
    seconds = usage.get("seconds") if result.at_once == 1 else None
    return Answer(
        result,
        tuple(cut(kept, limit)),
        usage.get("utilization"),
        int(usage.get("handoffs") or 0),
        int(usage.get("completion_tokens") or 0),
        seconds,
    )


def _unsegmented(result: Result) -> tuple[Part, ...]:
    text = result.reasoning + result.answer
    return (Part("inserted", "answer", "", "", text, 0, 0.0),) if text else ()


def _size(result: Result) -> int:
    return sum(len(part.text) for part in result.segments) or len(result.reasoning + result.answer)


def stretches(parts: Sequence[Part]) -> list[Stretch]:
    """Parts of one writer in one stage joined; each says who writes and why."""
    made: list[Stretch] = []
    for (role, stage), group in groupby(parts, key=lambda part: (part.role, part.stage)):
        own = list(group)
        text = "".join(part.text for part in own)
        if text:
            made.append(Stretch(role, stage, text, _told(own, first=not made)))
    return made


def _told(parts: Sequence[Part], *, first: bool) -> str:
    """Who writes, since when and how much."""
    part, tokens = parts[0], sum(part.tokens for part in parts)
    who = {"large": "large model", "small": "small model", "inserted": "inserted"}[part.role]
    why = f"at the cue “{part.cue.strip()}”" if part.cue else "" if first else part.why
    count = f"{tokens} token{'' if tokens == 1 else 's'}" if tokens else ""
    return ", ".join(filter(None, (f"{who} {why}".strip(), count)))


def cut(parts: Sequence[Stretch], limit: int) -> Iterator[Stretch]:
    """The first two thirds and the last third of `limit` characters, with what lies between."""
    size = sum(len(part.text) for part in parts)
    if size <= limit:
        yield from parts
        return
    head, tail = 2 * limit // 3, size - (limit - 2 * limit // 3)
    start = 0
    for part in parts:
        end = start + len(part.text)
        before, after = part.text[: max(0, head - start)], part.text[max(0, tail - start) :]
        if start <= head < end:
            yield Stretch(part.role, part.stage, before, part.told, tail - head)
            if after:
                yield Stretch(part.role, part.stage, after)
        elif before or after:
            yield Stretch(part.role, part.stage, before or after, part.told)
        start = end


def _limit(sizes: Sequence[int], most: int) -> int:
    """The longest that a text may be so that all together have at most `most` characters."""
    room = most
    for place, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - place)
        if size > share:
            return max(_LEAST_TEXT, share)
        room -= size
    return max(sizes, default=0)
