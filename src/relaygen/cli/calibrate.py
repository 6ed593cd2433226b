"""``relaygen calibrate``: from questions to a profile for one pair, with evidence."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from relaygen._errors import UsageError
from relaygen.cli import _options
from relaygen.cli._extras import require
from relaygen.cli._help import GroupedCommand, Number, collecting, option
from relaygen.cli._options import EMBEDDED, MODELS, PAIR, PairOptions
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL
from relaygen.policies import LargeOnly
from relaygen.profiles import load, make_policy

if TYPE_CHECKING:
    from relaygen.calibrate._check import Check
    from relaygen.calibrate._job import Job
    from relaygen.engines.transformers_local import TransformersScorer

DATA = "The data"
SELECTION = "The selection"
CHECK = "The check"
FILES = "Files"
STEPS = ("traces", "score", "select", "check", "report")

_SHIPPED = "the shipped questions"
_COUNT = click.IntRange(min=1)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options, as the user gave them."""

    data: Path | None
    large: str | None
    small: str | None
    profile: str
    ctx: int
    threads: int | None
    ngl: int
    no_mirror: bool
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
    check: int
    out: Path
    work: Path | None
    step: str | None

    @property
    def folder(self) -> Path:
        """Where the calibration keeps its files."""
        return self.work or self.out.parent / f"calibration-{self.out.stem}"

    @property
    def pair(self) -> PairOptions:
        """For opening the engines."""
        return PairOptions(
            self.large,
            self.small,
            profile=self.profile,
            policy="large",
            ctx=self.ctx,
            threads=self.threads,
            ngl=self.ngl,
            no_mirror=self.no_mirror,
        )

    def job(self) -> Job:
        """The calibration; nothing is written or started yet.

        Raises:
            UsageError, ProfileError: an option makes no sense.
        """
        from relaygen._questions import PROMPT
        from relaygen.calibrate._folder import Folder, Settings
        from relaygen.calibrate._job import Job, style_of
        from relaygen.calibrate._traces import load_questions

        base = load(self.profile)
        if self.step == "check" and not self.check:
            raise UsageError("the step check needs a number of questions", hint="--check N")
        if self.out.suffix != ".toml":
            raise UsageError(f"--out must name a .toml file, not {self.out}")
        shipped = resources.files("relaygen.calibrate") / "data" / "questions.jsonl"
        data = self.data.read_bytes() if self.data else shipped.read_bytes()
        suffix = self.question_suffix
        context = None if _options.is_url(self.large) else self.ctx
        settings = Settings(
            base=base.name,
            style=style_of(base),
            large=self.large or EMBEDDED_LARGE.name,
            small=self.small or EMBEDDED_SMALL.name,
            questions=self.data.name if self.data else _SHIPPED,
            questions_sha256=hashlib.sha256(data).hexdigest(),
            n=self.n,
            runs=self.runs,
            seed=self.seed,
            max_tokens=self.max_tokens or _options.answer_tokens(base, context),
            scorer=self.scorer,
            suffix=PROMPT.removeprefix("{question}") if suffix is None else suffix,
            cues=_cues(self.cues),
            mine=self.mine,
            rule=self.rule,
            min_effect=self.min_effect,
            imported=_hash(self.import_traces),
            score_with=str(self.score_with or ""),
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


_asked = collecting(
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
        option(DATA, "--n", type=_COUNT, metavar="N", help="The first N questions. Default: all."),
        option(
            DATA,
            "--runs",
            type=_COUNT,
            metavar="N",
            default=1,
            show_default=True,
            help="Traces per question; more than one needs a temperature.",
        ),
        option(
            DATA,
            "--seed",
            type=click.IntRange(0, 2**31 - 1),
            metavar="N",
            default=0,
            show_default=True,
            help="Of everything that is drawn.",
        ),
        option(
            DATA,
            "--max-tokens",
            type=_COUNT,
            metavar="N",
            help="Of one trace. Default: 1024, or 8192 where the models think in tags; at most "
            "three quarters of an embedded engine's context.",
        ),
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
        option(
            FILES,
            "--work",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Where traces, scores and the report are kept. Default: calibration-NAME beside "
            "the profile.",
        ),
        option(
            FILES,
            "--step",
            type=click.Choice(STEPS),
            help="Do this step only. Default: all, each from where it was stopped.",
        ),
    ],
)


class _Command(GroupedCommand):
    """There is no policy to choose here."""

    policies = False


@click.command(cls=_Command)
@_asked
def calibrate(asked: Asked) -> None:
    """Find the cues of a pair and write them as a profile.

    The large model answers questions; the small one reads along and says how sure it is of every
    token. Words behind which it is surer than elsewhere become the profile's cues. Started again,
    the same command goes on where it was stopped.
    """
    job = asked.job()
    wanted = STEPS if asked.step is None else (asked.step,)
    steps = tuple(step for step in wanted if asked.check or step != "check")
    require("filelock", extra="calibrate")
    if {"select", "check", "report"} & set(steps):
        require("numpy", "scipy", "jinja2", extra="calibrate")
    local = _local_scorer(asked) if "score" in steps else None
    with job.working():
        try:
            _run(asked, job, steps, local)
        except KeyboardInterrupt:
            click.echo("stopped; run the same command again to go on", err=True)
            raise


def _local_scorer(asked: Asked) -> TransformersScorer | None:
    """That of ``--score-with``; what it lacks is said before an hour of work.

    Raises:
        ModelError: it is no model.
        MissingExtraError: a package that reads it is not installed.
    """
    if asked.score_with is None:
        return None
    from relaygen.engines.transformers_local import TransformersScorer

    return TransformersScorer(asked.score_with)


def _run(asked: Asked, job: Job, steps: tuple[str, ...], local: TransformersScorer | None) -> None:
    """What the steps found is shown at the end, but the selection before a check, which is long."""
    if {"traces", "score"} & set(steps):
        _run_engines(asked, job, steps, local)
    if "select" in steps:
        from relaygen.cli._selected import show_selection

        show_selection(job.select())
    if "check" in steps:
        from relaygen.cli._checked import show_check

        show_check(_run_check(asked, job))
    report = job.report() if "report" in steps else None
    if "select" in steps:
        click.echo(f"profile  {asked.out}")
    if report is not None:
        click.echo(f"report   {report}")
    if "select" in steps:
        click.echo(f"next     {job.command}")


def _run_engines(
    asked: Asked, job: Job, steps: tuple[str, ...], local: TransformersScorer | None
) -> None:
    """Traces and scores; only the engine at work is started."""
    from relaygen.cli._steps import show_steps

    if "traces" in steps or local is None:
        relay = _options.open_relay(asked.pair, job.base, LargeOnly())
        with relay, show_steps() as progress:
            if "traces" in steps:
                relay.run(job.traces(relay, progress))
                if job.settings.scorer == "small":
                    relay.run(relay.engines["large"].aclose())  # its memory is the scorer's now
            if "score" in steps and local is None:
                relay.run(job.score(relay, progress))
    if local is not None:
        with show_steps() as progress:
            asyncio.run(job.score(local, progress))


def _run_check(asked: Asked, job: Job) -> Check | None:
    """The live pair with the profile that was made; engines of the steps before are closed."""
    from relaygen.cli._steps import show_steps

    profile = job.made()
    pair = replace(asked.pair, policy="relay")
    relay = _options.open_relay(pair, profile, make_policy("relay", profile))
    with relay, show_steps() as progress:
        return relay.run(job.check(relay, progress))
