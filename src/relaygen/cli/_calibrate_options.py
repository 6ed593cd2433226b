"""What ``relaygen calibrate`` is asked: its options, and the calibration that they mean."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from relaygen._errors import UsageError
from relaygen.cli import _data
from relaygen.cli._data import DATA, FILES, printable
from relaygen.cli._help import Number, collecting, option
from relaygen.cli._options import EMBEDDED, MODELS, PAIR, ModelOptions, is_url
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL
from relaygen.profiles import load

if TYPE_CHECKING:
    from relaygen.calibrate._job import Job

SELECTION = "The selection"
CHECK = "The check"
STEPS = ("traces", "score", "select", "check", "report")

_SHIPPED = "the shipped questions"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(ModelOptions):
    """The command's options, as the user gave them."""

    data: Path | None
    n: int | None
    runs: int
    seed: int
    max_tokens: int | None
    question_suffix: str | None
    import_traces: Path | None
    scorer: Literal["small", "large"]
    score_with: Path | None
    cues: Path | None
    mine: bool
    rule: str
    min_effect: float
    policy: Literal["relay", "margin"]
    check: int
    out: Path
    work: Path | None
    step: str | None

    @property
    def folder(self) -> Path:
        """Where the calibration keeps its files."""
        return self.work or self.out.parent / f"calibration-{self.out.stem}"

    def job(self) -> Job:
        """The calibration; nothing is written or started yet.

        Raises:
            UsageError, ProfileError: an option makes no sense.
        """
        from relaygen._questions import PROMPT
        from relaygen.calibrate._folder import Folder, Settings, style_of
        from relaygen.calibrate._job import Job
        from relaygen.calibrate._traces import load_questions

        base = load(self.profile)
        if self.step == "check" and not self.check:
            raise UsageError("the step check needs a number of questions", hint="--check N")
        if self.out.suffix != ".toml":
            raise UsageError(f"--out must name a .toml file, not {self.out}")
        if printable(str(self.out)) != str(self.out):  # it names the profile, too
            raise UsageError(f"--out is no valid UTF-8: {self.out}")
        shipped = resources.files("relaygen.calibrate") / "data" / "questions.jsonl"
        data = self.data.read_bytes() if self.data else shipped.read_bytes()
        suffix = self.question_suffix
        context = None if is_url(self.large) else self.ctx
        settings = Settings(
            base=base.name,
            style=style_of(base),
            large=printable(self.large or EMBEDDED_LARGE.name),
            small=printable(self.small or EMBEDDED_SMALL.name),
            questions=printable(self.data.name) if self.data else _SHIPPED,
            questions_sha256=hashlib.sha256(data).hexdigest(),
            n=self.n,
            runs=self.runs,
            seed=self.seed,
            max_tokens=self.max_tokens or _data.answer_tokens(base, context),
            scorer=self.scorer,
            suffix=PROMPT.removeprefix("{question}") if suffix is None else suffix,
            cues=_cues(self.cues),
            mine=self.mine,
            rule=self.rule,
            min_effect=self.min_effect,
            imported=_hash(self.import_traces),
            score_with=printable(str(self.score_with or "")),
            policy=self.policy,
        )
        questions = load_questions(self.data)
        return Job(
            Folder(self.folder),
            settings,
            base,
            questions,
            self.out,
            self.import_traces,
            self.check,
        )


def _cues(path: Path | None) -> tuple[str, ...]:
    """One cue on each line that is not empty."""
    if path is None:
        return ()
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not valid UTF-8") from None
    return tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _hash(path: Path | None) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path else ""


calibrate_options = collecting(
    Asked,
    "asked",
    [
        option(
            DATA,
            "--data",
            type=_FILE,
            metavar="FILE",
            help="JSON lines with a question each. Default: 24 shipped ones.",
        ),
        _data.N,
        _data.runs("Traces per question"),
        _data.SEED,
        _data.max_tokens(DATA, "trace"),
        option(
            DATA,
            "--question-suffix",
            metavar="TEXT",
            help="Put behind every question. Default: a request to reason step by step and to box "
            "the answer, as for mathematics.",
        ),
        option(
            DATA,
            "--import-traces",
            type=_FILE,
            metavar="FILE",
            help="Take these traces (JSON lines with question and text) and generate none.",
        ),
        *MODELS,
        option(
            PAIR,
            "--profile",
            metavar="NAME|FILE",
            default="embedded",
            show_default=True,
            help="Says how the models think and draw tokens; its cues play no part.",
        ),
        *EMBEDDED,
        option(
            SELECTION,
            "--scorer",
            type=click.Choice(["small", "large"]),
            default="small",
            show_default=True,
            help="Whose margins count.",
        ),
        option(
            SELECTION,
            "--score-with",
            type=click.Path(exists=True, path_type=Path),
            metavar="PATH",
            help="Score in this process by the transformers library, not by the scorer's engine: "
            "the same model as a folder with safetensors, or as a GGUF file.",
        ),
        option(
            SELECTION,
            "--cues",
            type=_FILE,
            metavar="FILE",
            help="More candidates, one on each line.",
        ),
        option(
            SELECTION,
            "--mine/--no-mine",
            default=True,
            show_default=True,
            help="Try frequent sentence openers of the traces too: found on one half of the "
            "questions, tested on the other.",
        ),
        option(
            SELECTION,
            "--rule",
            metavar="RULE",
            default="significant",
            show_default=True,
            help="significant: effects that a test supports. paper: margins above the mean. "
            "target-utilization:X: best first, until the large model's share is X.",
        ),
        option(
            SELECTION,
            "--min-effect",
            type=Number(0.0, 1.0),
            metavar="X",
            default=0.02,
            show_default=True,
            help="The least difference of margins that is worth a hand-off.",
        ),
        option(
            SELECTION,
            "--policy",
            type=click.Choice(["relay", "margin"]),
            default="relay",
            show_default=True,
            help="Of the profile's levels. relay: the small model writes the rest of a sentence. "
            "margin: it goes on while it is sure, with the thresholds of the level.",
        ),
        option(
            CHECK,
            "--check",
            type=click.IntRange(min=0),
            metavar="N",
            default=0,
            show_default=True,
            help="Let the pair answer the N questions behind those of the calibration, at each "
            "level and one at a time, and compare what it does with what was predicted.",
        ),
        option(
            FILES,
            "--out",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            required=True,
            help="The profile to write, a .toml file; named like the file.",
        ),
        _data.folder(
            "--work",
            "Where traces, scores and the report are kept. Default: calibration-NAME beside the "
            "profile.",
        ),
        _data.step(STEPS),
    ],
)
"""Adds the options of `Asked`; the function gets them as ``asked``."""
