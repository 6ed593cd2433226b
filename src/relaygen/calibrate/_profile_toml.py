"""A profile as a TOML file, and the profile that a calibration makes.

`relaygen.profiles` reads what this writes, to an equal profile: the writer knows dataclasses, not
which fields a profile has, so a new field of a profile needs nothing here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from .._errors import ProfileError
from .._profile import Evidence, Profile, ProfileLevel, Provenance

if TYPE_CHECKING:
    from ._outcome import Calibration, CueResult, Level

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_ALWAYS = ("sampling", "temperature", "top_p", "top_k", "min_p")  # for the reader of the file
_WIDTH = 100  # characters of a line of an array
_DIGITS = 4  # decimals of what was measured

LEAD = "careful"
"""The level whose cues a profile has where no level is named."""


def calibrated(
    base: Profile,
    calibration: Calibration,
    *,
    name: str,
    policy: Literal["relay", "margin"] = "relay",
    **about: Any,
) -> Profile:
    """The profile that a calibration makes of a base profile.

    Thinking style, marks, prefill, sampling and answer markers are the base's. Answer markers that
    became cues are none any more.

    Args:
        base: what the traces were made with.
        calibration: the selection.
        name: of the new profile.
        policy: of its levels. A ``relay`` level has the thresholds of the margin policy for its
            cues too; a ``margin`` level has the cues that suit that policy best.
        about: fields of `Profile` (``description``, ``large``, ``small``), and ``source``,
            ``scorer``, ``questions`` and ``notes`` of its `Provenance`.

    Raises:
        ProfileError: nothing was selected, so there is no profile to make.
    """
    levels = {level.name: _level(level, policy) for level in calibration.levels if level.cues}
    chosen = {cue.name for cue in calibration.cues if cue.selected}
    if not levels or not chosen:
        raise ProfileError(
            "no cue was selected, so there is no profile to write",
            hint="calibrate on more questions, or with --rule paper",
        )
    level = LEAD if LEAD in levels else next(iter(levels))
    told = dict.fromkeys(cue for level in levels.values() for cue in level.cues)
    shown = {cue.name: cue for cue in calibration.cues}
    provenance = Provenance(
        rule=rule_text(calibration),
        cues={cue: evidence(shown[cue]) for cue in told if cue in shown},
        **{key: about.pop(key) for key in ("source", "scorer", "questions", "notes")},
    )
    return replace(
        base,
        name=name,
        cues=levels[level].cues,
        levels=levels,
        level=level,
        answer_markers=tuple(marker for marker in base.answer_markers if marker not in told),
        provenance=provenance,
        **about,
    )


def _level(level: Level, policy: Literal["relay", "margin"]) -> ProfileLevel:
    steered = level.own if policy == "relay" else level.best
    used = level.under(policy)
    return ProfileLevel(
        cues=used.cues,
        policy=policy if steered is not None else "relay",
        stay=None if steered is None else steered.stay,
        leave=None if steered is None else steered.leave,
        utilization=_rounded(used.utilization),
        unproven=used.unproven,
    )


def rule_text(calibration: Calibration) -> str:
    """The rule as a profile and a report tell it."""
    least = f"effect at least {calibration.min_effect:g}"
    told = {"significant": f"significant: Holm at 0.05, {least}"}
    rule = told.get(calibration.rule, calibration.rule)
    if calibration.fallback:
        return f"{rule}; nothing was, so cues with a margin above the mean (unproven)"
    return f"{rule} (unproven)" if calibration.unproven else rule


def evidence(cue: CueResult) -> Evidence:
    """What a profile tells of a cue, rounded."""
    return Evidence(
        count=cue.occurrences,
        traces=cue.traces,
        share=_rounded(cue.share) or 0.0,
        margin=_rounded(cue.margin),
        agreement=_rounded(cue.agreement),
        effect=_rounded(cue.effect),
        low=_rounded(cue.low),
        high=_rounded(cue.high),
        holm=_rounded(cue.holm),
    )


def _rounded(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return round(float(value), _DIGITS) + 0.0  # no -0.0


def dumps(profile: Profile) -> str:
    """TOML text that `relaygen.profiles.parse` reads back to an equal profile.

    Values that equal their default are left out, but for the version and how tokens are drawn.
    """
    head = [f"version = {profile.version}"]
    return "\n".join([*head, *_table(profile, "")]) + "\n"


def _table(value: Any, path: str) -> Iterator[str]:
    """Lines of a dataclass or mapping: plain values first, then tables."""
    later: list[tuple[str, Any]] = []
    for key, item in _items(value):
        if _is_table(item):
            later.append((key, item))
        else:
            yield f"{_key(key)} = {_value(item)}"
    later.sort(key=lambda entry: entry[0] == "provenance")  # the story is told at the end
    for key, item in later:
        place = f"{path}.{_key(key)}" if path else _key(key)
        if _inline(item):
            yield from _short_table(place, item)
            continue
        inner = list(_table(item, place))
        if not inner or not inner[0].startswith("\n["):
            yield f"\n[{place}]"
        yield from inner


def _short_table(place: str, rows: Mapping[str, Any]) -> Iterator[str]:
    """One line for each entry, for tables that are read from top to bottom."""
    yield f"\n[{place}]"
    for key, item in rows.items():
        pairs = ", ".join(f"{_key(name)} = {_value(value)}" for name, value in _items(item))
        yield f"{_key(key)} = {{ {pairs} }}"


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
        return
    for field in fields(value):
        item = getattr(value, field.name)
        if item is not None and (field.name in _ALWAYS or not _is_default(field, item)):
            yield field.name, item


def _is_default(field: Field[Any], item: Any) -> bool:
    if field.default is not MISSING:
        return bool(item == field.default)
    return field.default_factory is not MISSING and bool(item == field.default_factory())


def _is_table(item: Any) -> bool:
    return isinstance(item, Mapping) or is_dataclass(item)


def _inline(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and bool(item)
        and all(isinstance(entry, Evidence) for entry in item.values())
    )


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(item: Any) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str):
        return _string(item)
    if isinstance(item, int):
        return str(item)
    if isinstance(item, float):
        return _float(item)
    return _array([_value(entry) for entry in cast("tuple[Any, ...]", item)])


def _float(number: float) -> str:
    text = repr(number)
    return text if any(mark in text for mark in ".ein") else f"{text}.0"


def _string(text: str) -> str:
    made = []
    for char in text:
        if char in _ESCAPES:
            made.append(_ESCAPES[char])
        elif ord(char) < 0x20 or ord(char) == 0x7F:
            made.append(f"\\u{ord(char):04X}")
        else:
            made.append(char)
    return f'"{"".join(made)}"'


def _array(entries: list[str]) -> str:
    """On one line where it fits, else filled lines."""
    short = f"[{', '.join(entries)}]"
    if len(short) <= _WIDTH - 20 and "\n" not in short:
        return short
    lines, line = [], " "
    for entry in entries:
        if line.strip() and len(line) + len(entry) + 2 > _WIDTH:
            lines.append(line)
            line = " "
        line += f" {entry},"
    return "\n".join(["[", *lines, line, "]"])
