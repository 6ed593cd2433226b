"""The geometry of the report's two figures: numbers in, coordinates out; the template draws.

Lengths are units of the SVG's view box, which are pixels at full width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .._page import percent

if TYPE_CHECKING:
    from ._check import LevelCheck
    from ._outcome import CueResult, Level, Point

_Scale = Callable[[float], float]
_Place = tuple[float, float]
_Box = tuple[float, float, float, float]

WIDTH = 860.0
ROW = 24.0
MOST_ROWS = 48
_TOP, _HEAD, _FOOT = 12.0, 30.0, 46.0
_FOREST = (176.0, 730.0)  # left and right edge of the forest plot's axis
_CURVE = (64.0, 830.0)
_COMPARED, _TALL = (176.0, 730.0), 40.0
_CURVE_HEIGHT = 340.0
_LETTER, _NAME_TALL, _GAP, _RADIUS = 8.0, 17.0, 10.0, 8.0  # of a level's name, and of its dot
_NEAR = 5.0  # between places on a line
_ALL_TOKENS = 70.0  # how wide the words at the dashed line are


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis and what is written there."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One cue's interval in the forest plot."""

    cue: CueResult
    y: float
    low: float
    at: float
    high: float


@dataclass(frozen=True, slots=True)
class Forest:
    """The forest plot; `hidden` is how many testable cues it leaves out."""

    height: float
    bottom: float
    zero: float
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A level on the curve; its name is on the `right` of the dot or on the left, at `label_y`."""

    level: Level
    x: float
    y: float
    right: bool
    label_y: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Utilization to mean delegated margin, as an SVG path."""

    height: float
    bottom: float
    path: str
    dots: tuple[tuple[float, float, Point], ...]
    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    overall: float


@dataclass(frozen=True, slots=True)
class Beside:
    """A level's predicted utilization, where known, and the measured one with its interval."""

    level: LevelCheck
    y: float
    predicted: float | None
    low: float
    at: float
    high: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Predicted and measured utilizations of levels, a row each."""

    height: float
    bottom: float
    rows: tuple[Beside, ...]
    ticks: tuple[Tick, ...]


def forest(cues: Sequence[CueResult]) -> Forest | None:
    """The testable cues, the selected ones first to be kept; None where none is testable."""
    tested = [cue for cue in cues if cue.testable and _known(cue.effect, cue.low, cue.high)]
    tested.sort(key=lambda cue: (-cue.effect, cue.name))
    kept = sorted(tested, key=lambda cue: not cue.selected)[:MOST_ROWS]
    shown = [cue for cue in tested if cue in kept]
    if not shown:
        return None
    low = min(0.0, *(cue.low for cue in shown))
    high = max(0.0, *(cue.high for cue in shown))
    values = ticks(low, high)
    low, high = min(low, values[0]), max(high, values[-1])
    left, right = _FOREST

    def across(value: float) -> float:
        return round(left + (value - low) / (high - low) * (right - left), 1)

    rows = tuple(
        Row(
            cue,
            _HEAD + ROW * (number + 0.5),
            across(cue.low),
            across(cue.effect),
            across(cue.high),
        )
        for number, cue in enumerate(shown)
    )
    bottom = _HEAD + ROW * len(rows)
    return Forest(
        bottom + _FOOT,
        bottom,
        across(0.0),
        rows,
        tuple(Tick(across(value), _signed(value)) for value in values),
        len(tested) - len(shown),
    )


def curve(points: Sequence[Point], levels: Sequence[Level], overall: float) -> Curve | None:
    """The curve with its levels; None where there are no two points to join."""
    known = [point for point in points if _known(point.utilization, point.margin)]
    marked = [level for level in levels if _known(level.utilization, level.margin)]
    if len(known) < 2 or not _known(overall):
        return None
    known.sort(key=lambda point: point.utilization)
    margins = [*(point.margin for point in known), *(level.margin for level in marked), overall]
    lowest = min(known[0].utilization, *(level.utilization for level in marked), 1.0)
    x_values = ticks(lowest, 1.0)
    y_values = ticks(min(margins), max(margins), count=5)
    digits = 3 if y_values[1] - y_values[0] < 0.0099 else 2
    x_low, x_high = min(lowest, x_values[0]), 1.0
    y_low, y_high = y_values[0], y_values[-1]
    left, right = _CURVE
    bottom = _CURVE_HEIGHT - _FOOT

    def across(value: float) -> float:
        return round(left + (value - x_low) / ((x_high - x_low) or 1.0) * (right - left), 1)

    def up(value: float) -> float:
        return round(bottom - (value - y_low) / ((y_high - y_low) or 1.0) * (bottom - _TOP), 1)

    dots = tuple((across(one.utilization), up(one.margin), one) for one in known)
    path = "M" + " L".join(f"{x} {y}" for x, y, _ in dots)
    return Curve(
        _CURVE_HEIGHT,
        bottom,
        path,
        dots,
        _marks(marked, [(x, y) for x, y, _ in dots], across, up, up(overall)),
        tuple(Tick(across(value), f"{100 * value:.0f} %") for value in x_values if value <= 1.0),
        tuple(Tick(up(value), f"{value:.{digits}f}") for value in y_values),
        up(overall),
    )


def _marks(
    levels: Sequence[Level], line: Sequence[_Place], across: _Scale, up: _Scale, overall: float
) -> tuple[Mark, ...]:
    """Levels and their names: above and to the left, where the line seldom is, else where is room.

    A name covers no other name and no level's dot; of the places left the one that covers least of
    the curve and of the dashed line.
    """
    drawn = [*_along(line), *_along([(_CURVE[0], overall), (_CURVE[1], overall)])]
    ordered = sorted(levels, key=lambda level: level.utilization)
    circles = [(across(level.utilization), up(level.margin)) for level in ordered]
    taken = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in circles]
    taken.append((_CURVE[0], overall - _NAME_TALL, _CURVE[0] + _ALL_TOKENS, overall))
    marks: list[Mark] = []
    for level, (x, y) in zip(ordered, circles, strict=True):
        places = [(right, at) for at in _beside(y) for right in (False, True)]
        boxes = [_name_box(level, x, *place) for place in places]
        covered = [
            (
                sum(_overlap(box, other) for other in taken)
                + (box[0] < _CURVE[0] or box[2] > _CURVE[1]),
                sum(box[0] < at_x < box[2] and box[1] < at_y < box[3] for at_x, at_y in drawn),
            )
            for box in boxes
        ]
        chosen = covered.index(min(covered))  # of equals the first
        taken.append(boxes[chosen])
        marks.append(Mark(level, x, y, *places[chosen]))
    return tuple(marks)


def _along(line: Sequence[_Place]) -> Iterator[_Place]:
    """Places on a line, near enough to each other to notice a name on it."""
    for (x1, y1), (x2, y2) in pairwise(line):
        steps = 1 + int(math.hypot(x2 - x1, y2 - y1) / _NEAR)
        for step in range(steps + 1):
            share = step / steps
            yield x1 + share * (x2 - x1), y1 + share * (y2 - y1)


def _beside(y: float) -> Iterator[float]:
    """Base lines of a name, the nearest above and below its dot first, all inside the figure."""
    highest, lowest = _TOP + _NAME_TALL, _CURVE_HEIGHT - _FOOT - 6.0
    steps = range(math.ceil(_CURVE_HEIGHT / _NAME_TALL))
    found = [at for n in steps for at in (y - 12.0 - n * _NAME_TALL, y + 22.0 + n * _NAME_TALL)]
    yield from (at for at in found if highest <= at <= lowest)


def _name_box(level: Level, x: float, right: bool, at: float) -> _Box:
    """Left, top, right and bottom of a level's name with its share, in wide letters."""
    wide = _LETTER * len(f"{level.name}, {percent(level.utilization)}")
    left = x + _GAP if right else x - _GAP - wide
    return left, at - _NAME_TALL + 4.0, left + wide, at + 4.0


def _overlap(one: _Box, two: _Box) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def compared(levels: Sequence[LevelCheck]) -> Compared | None:
    """Rows in the levels' order; None where there is none."""
    if not levels:
        return None
    known = [
        value
        for level in levels
        for value in (level.predicted, level.low, level.utilization, level.high)
        if _known(value)
    ]
    values = ticks(min(known), max(known))
    left, right = _COMPARED

    def across(value: float) -> float:
        share = (value - values[0]) / (values[-1] - values[0])
        return round(left + share * (right - left), 1)

    def row(number: int, level: LevelCheck) -> Beside:
        y, at = _TOP + _TALL * (number + 0.5), across(level.utilization)
        predicted = across(level.predicted) if _known(level.predicted) else None
        ends = (level.low, level.high)
        low, high = map(across, ends) if _known(*ends) else (at, at)
        return Beside(level, y, predicted, low, at, high)

    bottom = _TOP + _TALL * len(levels)
    return Compared(
        bottom + _FOOT,
        bottom,
        tuple(row(number, level) for number, level in enumerate(levels)),
        tuple(Tick(across(value), f"{100 * value:g} %") for value in values if value <= 1.0),
    )


def ticks(low: float, high: float, count: int = 6) -> tuple[float, ...]:
    """Round numbers from at or below `low` to at or above `high`, about `count` steps apart."""
    span = high - low
    if not span > 0.0:
        return (low - 0.05, low, low + 0.05)
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((power * size for size in (1.0, 2.0, 5.0) if power * size >= raw), power * 10)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return tuple(round(number * step, 10) + 0.0 for number in range(first, last + 1))


def _signed(value: float) -> str:
    text = f"{value:+.3f}".rstrip("0").rstrip(".")
    return "0" if text in ("+0", "-0") else text.replace("-", "−")


def _known(*values: float | None) -> bool:
    return all(value is not None and math.isfinite(value) for value in values)
