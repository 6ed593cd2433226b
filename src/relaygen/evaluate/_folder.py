"""The folder of one evaluation: what was asked, and its results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import UsageError
from .._files import changed, lines, made, pinned, write
from .._jsonable import json_line
from .._profile import Profile

if TYPE_CHECKING:
    from ._questions import Item

FREE = ("n", "runs", "arms", "engines", "shares")
"""Settings that may change in a folder: the results that are there stay right."""


def hash_of(profile: Profile) -> str:
    """Of everything in a profile."""
    text = json.dumps(asdict(profile), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Settings:
    """What an evaluation is asked to do.

    Attributes:
        profile: its name.
        profile_sha256: see `hash_of`.
        level: of the arms that have levels and name none; "" for the profile's own cues.
        large, small: the models as the user names them; "" for a server, whose model counts.
        data: where the questions are from.
        preset: the columns' names; "" where they were found out.
        seed: of everything that is drawn.
        sampling: how tokens are drawn.
        max_tokens: of one answer.
        ctx: of an embedded engine.
        devices: 1 where both models compute on one, else 2.
        n: questions; None for all.
        runs: answers of each arm to each question.
        arms: their names.
        engines: by role, what the engines said of themselves.
        shares: by arm, the small model's share at which an arm ``random`` runs.
        questions: how many were asked; 0 in a folder of an older version.
    """

    profile: str
    profile_sha256: str
    level: str
    large: str
    small: str
    data: str
    preset: str
    seed: int
    sampling: Mapping[str, Any]
    max_tokens: int
    ctx: int
    devices: int
    n: int | None = None
    runs: int = 1
    arms: tuple[str, ...] = ()
    engines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    questions: int = 0


@dataclass(frozen=True, slots=True)
class Folder:
    """Where an evaluation keeps its files."""

    path: Path

    @property
    def settings(self) -> Path:
        """What was asked."""
        return self.path / "settings.json"

    @property
    def items(self) -> Path:
        """The questions as they were asked, as JSON lines, those of earlier runs too."""
        return self.path / "items.jsonl"

    @property
    def results(self) -> Path:
        """See `Result`."""
        return self.path / "results.jsonl"

    @property
    def summary(self) -> Path:
        """See `Summary`."""
        return self.path / "summary.json"

    @property
    def page(self) -> Path:
        """For people; it needs no other file."""
        return self.path / "report.html"

    @property
    def plots(self) -> Path:
        """Of the page, as files: SVG and PNG."""
        return self.path / "plots"

    @property
    def markdown(self) -> Path:
        """For people, without texts."""
        return self.path / "report.md"

    @property
    def table(self) -> Path:
        """For spreadsheets."""
        return self.path / "results.csv"

    def claim(self, settings: Settings, items: Sequence[Item]) -> Settings:
        """Make the folder, or check that it belongs to this evaluation.

        Returns:
            The settings with what earlier runs found out: the engines, and shares.

        Raises:
            UsageError: something else was asked in it before, or it cannot be written.
        """
        made(self.path)
        before = self._before()
        if before is None and self.results.exists():
            raise UsageError(
                f"{self.path} has results of unknown origin", hint="name another folder with --out"
            )
        if before is not None:
            self.compare(before, asdict(settings))
            settings = replace(settings, engines=before.engines, shares=before.shares)
        settings = replace(settings, questions=len(items))
        kept = self._checked(items)
        write(self.items, "".join(f"{json_line(dict(item))}\n" for item in kept.values()))
        self.update(settings)
        return settings

    def compare(self, before: Settings, now: Mapping[str, Any]) -> None:
        """See that these settings, all or some, are those of the folder.

        Args:
            before: the folder's.
            now: by name; what may change does not count.

        Raises:
            UsageError: one of them is another.
        """
        known, asked = (json.loads(json.dumps(dict(one))) for one in (asdict(before), now))
        other = changed(known, asked, (*FREE, "questions"))  # these are counted, not asked for
        if other:
            words = ", ".join(dict.fromkeys(map(_said, other)))
            raise UsageError(
                f"{self.path} holds an evaluation with another {words}",
                hint="ask the same again, or name another folder with --out",
            )

    def kept(self) -> Settings:
        """What was asked last.

        Raises:
            UsageError: nothing was, or the file is none of these settings.
        """
        found = self._before()
        if found is None:
            raise UsageError(
                f"there is no evaluation in {self.path}",
                hint="run one first: the same command without --step",
            )
        return found

    def asked(self) -> list[Item]:
        """All questions that were ever asked, those of the last run first.

        Raises:
            UsageError: the file cannot be read, or a line is no question.
        """
        from ._questions import Item

        found = []
        for number, value in lines(self.items):
            try:
                found.append(Item.from_json(value))
            except UsageError as error:
                raise UsageError(f"{self.items}, line {number}: {error}") from error
        return found

    def _before(self) -> Settings | None:
        """What an earlier run has left; None where there was none.

        Raises:
            UsageError: the file is none of these settings.
        """
        command, option = "relaygen eval", "--out"
        found = pinned(self.settings, command=command, option=option)
        if found is None:
            return None
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(Settings).validate_python(found)
        except ValidationError:
            raise UsageError(
                f"{self.settings} is not what {command} writes",
                hint=f"name another folder with {option}",
            ) from None

    def _checked(self, items: Sequence[Item]) -> dict[str, Mapping[str, Any]]:
        """These questions and, behind them, those that were asked before, by id.

        Raises:
            UsageError: one that was asked before is not what it was.
        """
        before = {str(value.get("id")): value for _, value in lines(self.items)}
        now = {item.id: item.to_json() for item in items}
        for id, value in now.items():
            if id in before and dict(before[id]) != value:
                raise UsageError(
                    f"{self.path} holds an evaluation with another question {id!r}",
                    hint="ask the same again, or name another folder with --out",
                )
        return {**now, **{id: value for id, value in before.items() if id not in now}}

    def update(self, settings: Settings) -> None:
        """Write the settings down.

        Raises:
            UsageError: the file cannot be written.
        """
        text = json.dumps(asdict(settings), indent=2, ensure_ascii=False)
        write(self.settings, text + "\n")


def _said(key: str) -> str:
    words = {"profile_sha256": "profile", "sampling": "temperature or other sampling"}
    return words.get(key, key.replace("_", "-"))
