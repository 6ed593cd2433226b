"""Reading and checking profile files."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import ProfileError
from .._files import read
from .._profile import Profile, ProfileLevel
from ..text.cues import CueSet
from ._policy import POLICIES

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _shipped() -> dict[str, str]:
    folder = resources.files(__package__) / "data"
    return {
        entry.name.removesuffix(".toml"): entry.read_text("utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def names() -> tuple[str, ...]:
    """The shipped profiles, in alphabetical order."""
    return tuple(_shipped())


def load(name_or_path: str | Path) -> Profile:
    """A shipped profile by name, or a file.

    Raises:
        ProfileError: there is none, or it does not hold up; the message names the entry.
    """
    return parse(source(name_or_path), where=str(name_or_path))


def source(name_or_path: str | Path) -> str:
    """The TOML text of a shipped profile by name, or of a file.

    Raises:
        ProfileError: there is none, or it cannot be read.
    """
    shipped = _shipped()
    if isinstance(name_or_path, str) and name_or_path in shipped:
        return shipped[name_or_path]
    if not os.path.exists(name_or_path):
        raise ProfileError(
            f"there is no profile {str(name_or_path)!r}",
            hint=f"shipped profiles: {', '.join(shipped)}; or give the path of a .toml file",
        )
    return read(name_or_path, error=ProfileError)


def parse(text: str, *, where: str) -> Profile:
    """A profile from TOML text; `where` names it in errors.

    Raises:
        ProfileError: the first problem, with its place.
    """
    found = _validated(text, where)
    if isinstance(found, Profile):
        return found
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise ProfileError(
        f"{where}: {found[0]}{more}", hint="relaygen profile validate lists every problem"
    )


def problems(text: str) -> list[str]:
    """Everything that is wrong with a profile, one line each; empty for a good one."""
    found = _validated(text, "profile")
    return [] if isinstance(found, Profile) else found


def _validated(text: str, where: str) -> Profile | list[str]:
    from pydantic import TypeAdapter, ValidationError

    try:
        profile = TypeAdapter(Profile).validate_python(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        return [f"not TOML: {error}"]
    except ValidationError as error:
        return [_line(issue) for issue in error.errors(include_url=False)]
    wrong = list(_inconsistencies(profile))
    return wrong or (profile.at(profile.level) if profile.level else profile)


def _line(issue: ErrorDetails) -> str:
    place = ".".join(map(str, issue["loc"]))
    if issue["type"] == "unexpected_keyword_argument":
        return f"{place}: there is no such entry"
    if issue["type"] in ("missing", "missing_argument"):
        return f"{place}: is missing"
    return f"{place}: {issue['msg'].removeprefix('Value error, ')}"


_LEVEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # it stands behind name@


def _level_problems(name: str, level: ProfileLevel, profile: Profile) -> Iterator[str]:
    """What is wrong with one level."""
    if not _LEVEL_NAME.fullmatch(name):
        yield f"levels.{name}: a name has letters, digits, points, dashes and underscores only"
    if name in POLICIES:
        yield f"levels.{name}: that is the name of a policy"
    if not level.cues or any(not cue.strip() for cue in level.cues):
        yield f"levels.{name}.cues: {'an entry' if level.cues else 'it'} is empty"
        return
    known = CueSet(level.cues)
    for marker in profile.answer_markers:
        if marker in known:
            yield f"levels.{name}.cues: {marker!r} is an answer marker too; it can be one only"
    share = level.utilization
    if share is not None and not 0.0 <= share <= 1.0:
        yield f"levels.{name}.utilization: must be between 0 and 1"
    thresholds = {"stay": level.stay, "leave": level.leave}
    for threshold, value in thresholds.items():
        if value is not None and not math.isfinite(value):
            yield f"levels.{name}.{threshold}: must be a finite number"
            return
        if value is None and (level.policy == "margin" or set(thresholds.values()) != {None}):
            yield f"levels.{name}.{threshold}: is missing"
            return
    if level.stay is not None and level.leave is not None and level.stay < level.leave:
        yield f"levels.{name}.stay: must not be below leave"


def _inconsistencies(profile: Profile) -> Iterator[str]:
    """What types alone cannot say."""
    for place, cues in (("cues", profile.cues), ("answer_markers", profile.answer_markers)):
        if any(not cue.strip() for cue in cues):
            yield f"{place}: an entry is empty"
            return
    known = CueSet(profile.cues)
    for marker in profile.answer_markers:
        if marker in known:
            yield f"answer_markers: {marker!r} is a cue too; it can be one only"
    for group, group_cues in profile.one_shot_groups.items():
        if any(not cue.strip() for cue in group_cues):
            yield f"one_shot_groups.{group}: an entry is empty"
    for name, level in profile.levels.items():
        yield from _level_problems(name, level, profile)
    if profile.level and profile.level not in profile.levels:
        yield f"level: there is no level {profile.level!r}"
    if profile.max_consecutive_delegations < 1:
        yield "max_consecutive_delegations: must be at least 1"
    if profile.thinking == "none" and profile.prefill:
        yield "prefill: a profile without thinking has nothing to open"
