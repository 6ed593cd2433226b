"""The folder of one calibration: what was asked, and files that are there whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from .._errors import UsageError
from .._files import changed, made, pinned, write
from .._questions import PROMPT
from .._types import Role

if TYPE_CHECKING:
    from .._profile import Profile
    from ..engines.base import Engine
    from ._outcome import Calibration
    from ._score import Scorer

T = TypeVar("T")

FREE = ("n", "runs", "cues", "mine", "rule", "min_effect", "policy")
"""Settings that may change in a folder: traces and scores that are there stay right."""


def style_of(base: Profile) -> str:
    """A hash of what traces depend on in a profile."""
    parts = (base.thinking, asdict(base.tags), base.prefill, asdict(base.sampling))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a calibration is asked to do.

    Attributes:
        base: the base profile's name.
        style: hash of what of it the traces depend on.
        large, small: the models, as the user names them.
        questions: file name of the questions.
        questions_sha256: of the file's bytes.
        n: questions, in the file's order; None for all.
        runs: traces per question.
        seed: of everything that is drawn.
        max_tokens: of one trace.
        scorer: whose margins count.
        score_with: where the scorer's weights are for the transformers library; "" where its engine
            scores.
        suffix: behind every question.
        cues: candidates beside the usual ones.
        mine: whether openers of the traces become candidates.
        rule: ``significant``, ``paper`` or ``target-utilization:X``.
        min_effect: the least difference of margins worth a hand-off.
        policy: of the profile's levels; see `calibrated`.
        imported: hash of a file of traces that stands for generation; "" without one.
    """

    base: str
    style: str
    large: str
    small: str
    questions: str
    questions_sha256: str
    n: int | None = None
    runs: int = 1
    seed: int = 0
    max_tokens: int = 1024
    scorer: Role = "small"
    suffix: str = PROMPT.removeprefix("{question}")
    cues: tuple[str, ...] = ()
    mine: bool = True
    rule: str = "significant"
    min_effect: float = 0.02
    imported: str = ""
    score_with: str = ""
    policy: Literal["relay", "margin"] = "relay"

    @property
    def scored_by(self) -> str:
        """Who scores: a role, or ``scorer`` where none of the engines does."""
        return "scorer" if self.score_with else self.scorer


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a calibration keeps its files."""

    path: Path

    @property
    def questions(self) -> Path:
        """The questions as they were asked, as JSON lines."""
        return self.path / "questions.jsonl"

    @property
    def traces(self) -> Path:
        """See `Trace`."""
        return self.path / "traces.jsonl"

    @property
    def scores(self) -> Path:
        """See `Scores`."""
        return self.path / "scores.jsonl"

    @property
    def calibration(self) -> Path:
        """The selection."""
        return self.path / "calibration.json"

    @property
    def profile(self) -> Path:
        """What was made."""
        return self.path / "profile.toml"

    @property
    def checks(self) -> Path:
        """See `Answer`."""
        return self.path / "checks.jsonl"

    @property
    def report(self) -> Path:
        """For people."""
        return self.path / "report.html"

    @property
    def settings(self) -> Path:
        """What was asked."""
        return self.path / "settings.json"

    async def introduce(self, role: str, engine: Engine | Scorer) -> dict[str, Any]:
        """Note who an engine is, for the profile and for steps without engines.

        Raises:
            UsageError: the file cannot be written.
            EngineError: the engine does not answer.
        """
        info = await engine.info()
        own = {
            "model": info.model,
            "kind": info.kind,
            "vocabulary": info.vocabulary,
            "slots": info.slots,
        }
        known = self.engines()
        if known.get(role) != own:
            write(self._engines, json.dumps({**known, role: own}, indent=2) + "\n")
        return own

    def engines(self) -> dict[str, dict[str, Any]]:
        """Who the engines were, by role, as far as they were asked; see `introduce`."""
        try:
            found = json.loads(self._engines.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def _engines(self) -> Path:
        return self.path / "engines.json"

    def claim(self, settings: Settings) -> None:
        """Make the folder, or check that it belongs to this calibration.

        Raises:
            UsageError: something else was asked in it before, or it cannot be written.
        """
        made(self.path)
        before = pinned(self.settings, command="relaygen calibrate", option="--work")
        now = json.loads(json.dumps(asdict(settings)))
        if before is None and any(one.exists() for one in (self.traces, self.scores)):
            raise UsageError(
                f"{self.path} has traces or scores of unknown origin",
                hint="name another folder with --work, or bring traces in with --import-traces",
            )
        if before is not None:
            # A folder of an older version lacks what is newer than it.
            known = {each.name: each.default for each in dataclasses.fields(Settings)} | before
            other = changed(known, now, FREE)
            if other:
                words = ", ".join(dict.fromkeys(map(_said, other)))
                raise UsageError(
                    f"{self.path} holds a calibration with another {words}",
                    hint="ask the same again, or name another folder with --work",
                )
        if before != now:
            write(self.settings, json.dumps(now, indent=2, ensure_ascii=False) + "\n")

    def write_calibration(self, calibration: Calibration) -> None:
        """As JSON; nan is null.

        Raises:
            UsageError: the file cannot be written.
        """
        text = json.dumps(_plain(asdict(calibration)), indent=1, ensure_ascii=False)
        write(self.calibration, text + "\n")

    def read_calibration(self) -> Calibration:
        """The selection.

        Raises:
            UsageError: there is none, or it is of another version.
        """
        from ._outcome import Calibration

        try:
            return _revived(Calibration, json.loads(self.calibration.read_text("utf-8")))
        except FileNotFoundError:
            raise UsageError(
                f"there is no selection in {self.path}", hint="run the step select first"
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise UsageError(
                f"{self.calibration} cannot be read", hint="run the step select again"
            ) from None


def _said(key: str) -> str:
    words = {"base": "base profile", "style": "base profile", "questions_sha256": "questions"}
    return words.get(key, key.replace("_", "-"))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _revived(kind: type[T], value: dict[str, Any]) -> T:
    hints = get_type_hints(kind)
    return kind(**{key: _typed(hints[key], value[key]) for key in hints if key in value})


def _typed(hint: Any, value: Any) -> Any:
    if hint is float:
        return math.nan if value is None else float(value)
    if isinstance(hint, types.UnionType):
        return None if value is None else _typed(get_args(hint)[0], value)
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        each = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_typed(one, item) for one, item in zip(each, value, strict=True))
    return _revived(cast("type[Any]", hint), value) if dataclasses.is_dataclass(hint) else value
