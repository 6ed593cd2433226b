"""``relaygen eval``: several ways of answering, the same questions, honest tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relaygen._errors import EngineError
from relaygen._types import ROLES, Role
from relaygen.cli import _options
from relaygen.cli._extras import require
from relaygen.cli._help import GroupedCommand, Number, collecting, option
from relaygen.cli._options import EMBEDDED, MODELS, PAIR, PairOptions
from relaygen.evaluate._arms import DEFAULT, OWN, parse_arms
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL
from relaygen.policies import LargeOnly
from relaygen.profiles import POLICIES, load

if TYPE_CHECKING:
    from relaygen._api import Relay
    from relaygen._sync import LoopThread
    from relaygen.engines.base import Engine
    from relaygen.evaluate._arms import Speculation
    from relaygen.evaluate._asking import Decoding
    from relaygen.evaluate._grade import Near
    from relaygen.evaluate._job import Evaluation

DATA = "The data"
ARMS = "The arms"
TEXT = "The generation"
FILES = "Files"
STEPS = ("run", "report")

_COUNT = click.IntRange(min=1)


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options, as the user gave them."""

    data: str
    preset: str | None
    n: int | None
    runs: int
    seed: int
    arms: str
    level: str | None
    temperature: float | None
    max_tokens: int | None
    concurrency: int
    large: str | None
    small: str | None
    profile: str
    ctx: int
    threads: int | None
    ngl: int
    no_mirror: bool
    out: Path
    step: str | None
    embeddings: str | None

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
            parallel=self.concurrency,
        )

    def job(self) -> Evaluation:
        """The evaluation; nothing is written or started yet.

        Raises:
            UsageError, ProfileError: an option makes no sense.
            MissingExtraError: a library is not installed.
        """
        from relaygen.evaluate._folder import Folder, Settings, hash_of
        from relaygen.evaluate._job import Evaluation
        from relaygen.evaluate._questions import load_items

        profile = load(self.profile)
        arms = parse_arms(self.arms.split(","))
        sampling = profile.sampling
        if self.temperature is not None:
            sampling = replace(sampling, temperature=self.temperature)
        urls = [_options.is_url(spec) for spec in (self.large, self.small)]
        context = None if all(urls) else self.ctx
        settings = Settings(
            profile=profile.name,
            profile_sha256=hash_of(profile),
            level=self.level or "",
            large="" if urls[0] else self.large or EMBEDDED_LARGE.name,
            small="" if urls[1] else self.small or EMBEDDED_SMALL.name,
            data=self.data,
            preset=self.preset or "",
            seed=self.seed,
            sampling={**asdict(sampling), "logit_bias": {}},
            max_tokens=self.max_tokens or _options.answer_tokens(profile, context),
            ctx=0 if all(urls) else self.ctx,
            devices=1 if not any(urls) else 2,
            n=self.n,
            runs=self.runs,
            arms=tuple(arm.name for arm in arms),
        )
        items = load_items(self.data, preset=self.preset, seed=self.seed, n=self.n)
        if any(item.kind != "choice" for item in items):
            require("math_verify", extra="eval")
        job = Evaluation(
            Folder(self.out),
            settings,
            profile,
            items,
            arms,
            at_once=self.concurrency,
            near=self.near(),
        )
        for decoding in job.decodings:
            _decoding(self.pair, decoding).plan()  # refuses what a server cannot do
        return job

    def near(self) -> Near | None:
        """What compares meanings, where that is asked for.

        Raises:
            MissingExtraError: the library is not installed.
        """
        from relaygen.evaluate._grade import semantic_similarity

        if self.embeddings is None:
            return None
        require("sentence_transformers", extra="embeddings")
        return partial(semantic_similarity, model=self.embeddings)


_asked = collecting(
    Asked,
    "asked",
    [
        option(
            DATA,
            "--data",
            metavar="FILE|hub:NAME",
            required=True,
            help="Questions: JSON lines, JSON or CSV, or a data set of the Hugging Face hub "
            "(hub:OWNER/NAME@SPLIT).",
        ),
        option(
            DATA,
            "--preset",
            metavar="NAME",
            help="Whose columns the data has, for example gsm8k. Default: found out.",
        ),
        option(DATA, "--n", type=_COUNT, metavar="N", help="The first N questions. Default: all."),
        option(
            DATA,
            "--runs",
            type=_COUNT,
            metavar="N",
            default=1,
            show_default=True,
            help="Answers of each arm to each question; more than one needs a temperature.",
        ),
        option(
            DATA,
            "--seed",
            type=click.IntRange(0, 2**31 - 1),
            metavar="N",
            default=0,
            show_default=True,
            help="Of everything that is drawn; all arms answer a question with the same seed.",
        ),
        option(
            ARMS,
            "--arms",
            metavar="NAME,…",
            default=",".join(DEFAULT),
            show_default=True,
            help="What is compared; see Arms below.",
        ),
        option(
            ARMS,
            "--level",
            metavar="NAME",
            help="Of the profile, for arms that have levels and name none. Default: the profile's "
            "own cues.",
        ),
        *MODELS,
        option(
            PAIR,
            "--profile",
            metavar="NAME|FILE",
            default="embedded",
            show_default=True,
            help="Cues, thinking style and sampling defaults of the pair.",
        ),
        *EMBEDDED,
        option(
            TEXT,
            "--temperature",
            type=Number(0.0, 2.0),
            metavar="X",
            help="0 is greedy. Default: the profile's.",
        ),
        option(
            TEXT,
            "--max-tokens",
            type=_COUNT,
            metavar="N",
            help="Of one answer. Default: 1024, or 8192 where the models think in tags; at most "
            "three quarters of an embedded engine's context.",
        ),
        option(
            TEXT,
            "--concurrency",
            type=_COUNT,
            metavar="N",
            default=1,
            show_default=True,
            help="Answers at the same time. Above 1 no times are reported.",
        ),
        option(
            FILES,
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            required=True,
            help="The folder for results and reports.",
        ),
        option(
            FILES,
            "--step",
            type=click.Choice(STEPS),
            help="Do this step only. Default: both, going on where a run was stopped.",
        ),
        option(
            FILES,
            "--embeddings",
            metavar="MODEL",
            help="Report also how near answers without a gold one are to the large model's in "
            "meaning, by this model of sentence-transformers.",
        ),
    ],
)


class _Command(GroupedCommand):
    """Arms in place of policies."""

    policies = False

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """And a section on arms."""
        super().format_options(ctx, formatter)
        known = {name: text for name, (_, text) in POLICIES.items()} | OWN
        more = {
            "NAME@LEVEL": "relay, margin or random at a level of the profile",
            "NAME+draft": "the large model with the small one as its draft; also +ngram, and "
            "+small-ngram for the small model",
        }
        with formatter.section("Arms"):
            formatter.write_dl(list((known | more).items()))


@click.command(name="eval", cls=_Command)
@_asked
def evaluate(asked: Asked) -> None:
    """Let several arms answer the same questions, and compare them.

    Each answer is kept as it comes: started again, the same command goes on where it was stopped,
    and with more questions or arms it asks for those only.
    """
    from relaygen._files import lock

    require("filelock", "jinja2", "matplotlib", "numpy", "scipy", extra="eval")
    job = asked.job()
    with lock(asked.out, extra="eval"):
        job.claim()
        if asked.step != "report":
            _run(asked, job)
        _show(job) if asked.step != "run" else None


def _run(asked: Asked, job: Evaluation) -> None:
    from relaygen.cli._steps import show_steps
    from relaygen.evaluate._asking import AGAIN

    try:
        with _opened(asked, job) as (loop, relays), show_steps() as progress:
            loop.call(job.run(relays, progress))
    except KeyboardInterrupt:
        click.echo(f"stopped; {AGAIN}", err=True)
        raise


@contextmanager
def _opened(asked: Asked, job: Evaluation) -> Iterator[tuple[LoopThread, dict[Decoding, Relay]]]:
    """The engines of all arms, and the one event loop that they live in."""
    from relaygen._api import Relay
    from relaygen._sync import LoopThread

    engines: dict[tuple[Role, Speculation], Engine] = {}  # two arms may share one of them
    relays: dict[Decoding, Relay] = {}
    for decoding in job.decodings:
        opened = _options.open_relay(_decoding(asked.pair, decoding), job.profile, LargeOnly())
        used = [
            engines.setdefault((role, kind), opened.engines[role])
            for role, kind in zip(ROLES, decoding, strict=True)
        ]
        relays[decoding] = Relay(*used, profile=job.profile, policy=LargeOnly())
    loop = LoopThread()
    try:
        yield loop, relays
    finally:
        for engine in engines.values():
            loop.call(engine.aclose())
        loop.close()


def _decoding(pair: PairOptions, decoding: Decoding) -> PairOptions:
    """The pair with speculative decoding as an arm wants it."""
    large, small = decoding
    return replace(
        pair,
        spec=None if large == "none" else large,
        small_spec=None if small == "none" else small,
    )


def _show(job: Evaluation) -> None:
    """Write the report and print it.

    Raises:
        EngineError: answers failed; they are asked for again by the same command.
    """
    from relaygen.cli._evaluated import show_summary
    from relaygen.evaluate._asking import AGAIN

    summary = job.report()
    show_summary(summary)
    click.echo(f"report   {job.folder.page}")
    failed = sum(arm.errors for arm in summary.arms)
    if failed:
        what = "1 answer" if failed == 1 else f"{failed} answers"
        raise EngineError(f"{what} failed: see {job.folder.results}", hint=AGAIN)
