"""What a calibration rests on: its settings, its questions and its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .._errors import UsageError
from .._profile import Profile
from ._folder import Folder, Settings
from ._outcome import Rule
from ._traces import Question


@dataclass(frozen=True, slots=True)
class Basis:
    """What is asked of a calibration, and where its files are.

    Attributes:
        folder: its own.
        settings: what is asked; see `Folder.claim`.
        base: the profile that says how the models think and draw tokens.
        questions: all of the file.
        out: where the profile goes, beside the one in the folder.
        imported: traces of another tool in place of generated ones.
        check_n: fresh questions that the pair is asked at each level, to see whether it does what
            was predicted; 0 for no such check.
    """

    folder: Folder
    settings: Settings
    base: Profile
    questions: Sequence[Question]
    out: Path
    imported: Path | None = None
    check_n: int = 0

    def __post_init__(self) -> None:
        Rule.of(self.settings.rule)

    @property
    def asked(self) -> Sequence[Question]:
        """The questions of this calibration."""
        return self.questions[: self.settings.n]

    @property
    def template(self) -> str:
        """What the user says."""
        return "{question}" + self.settings.suffix

    def made(self) -> Profile:
        """The profile of the selection that is there.

        Raises:
            UsageError: there is none.
        """
        from ..profiles import parse

        try:
            text = self.folder.profile.read_text("utf-8")
        except FileNotFoundError:
            raise UsageError(
                f"there is no profile in {self.folder.path}", hint="run the step select first"
            ) from None
        return parse(text, where=str(self.folder.profile))
