"""``relaygen eval``: several ways of answering, the same questions, honest tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from relaygen._errors import EngineError
from relaygen._types import ROLES, Role
from relaygen.cli import _options
from relaygen.cli._eval_options import Asked, eval_options
from relaygen.cli._extras import require
from relaygen.cli._help import GroupedCommand
from relaygen.cli._options import PairOptions
from relaygen.evaluate._arms import OWN
from relaygen.policies import LargeOnly
from relaygen.profiles import POLICIES

if TYPE_CHECKING:
    from relaygen._api import Relay
    from relaygen._sync import LoopThread
    from relaygen.engines.base import Engine
    from relaygen.evaluate._arms import Speculation
    from relaygen.evaluate._job import Evaluation
    from relaygen.evaluate._reporting import Findings
    from relaygen.evaluate._schedule import Decoding


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
@eval_options
@click.pass_context
def evaluate(ctx: click.Context, asked: Asked) -> None:
    """Let several arms answer the same questions, and compare them.

    Each answer is kept as it comes: started again, the same command goes on where it was stopped,
    and with more questions or arms it asks for those only.
    """
    from relaygen._files import lock

    require("filelock", "jinja2", "matplotlib", "numpy", "scipy", extra="eval")
    if asked.step == "report":
        findings = asked.findings(_given(ctx))
        with lock(asked.out, extra="eval"):
            _show(findings)
        return
    job = asked.job()
    for decoding in job.decodings:
        _decoding(asked, decoding).plan()  # refuses what a server cannot do
    with lock(asked.out, extra="eval"):
        job.claim()
        _run(asked, job)
        if asked.step is None:
            _show(job)


def _given(ctx: click.Context) -> set[str]:
    """The options that the user typed."""
    typed = click.core.ParameterSource.COMMANDLINE
    return {name for name in ctx.params if ctx.get_parameter_source(name) is typed}


def _run(asked: Asked, job: Evaluation) -> None:
    from relaygen.cli._steps import show_steps
    from relaygen.evaluate._asking import AGAIN, ask

    try:
        with _opened(asked, job) as (loop, relays), show_steps() as progress:
            loop.call(ask(job, relays, progress))
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
        pair, roles = _decoding(asked, decoding), job.roles(decoding)
        opened = _options.open_relay(pair, job.profile, LargeOnly(), roles).engines
        used = [
            engines.setdefault((role, kind), opened[role]) if role in roles else opened[role]
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


def _decoding(asked: Asked, decoding: Decoding) -> PairOptions:
    """The pair with speculative decoding as an arm wants it."""
    large, small = decoding
    return replace(
        asked.pair(parallel=asked.concurrency),
        spec=None if large == "none" else large,
        small_spec=None if small == "none" else small,
    )


def _show(findings: Findings) -> None:
    """Write the report and print it.

    Raises:
        EngineError: answers failed; they are asked for again by the same command.
    """
    from relaygen.cli._eval_table import show_summary
    from relaygen.evaluate._asking import AGAIN

    summary = findings.report()
    show_summary(summary)
    click.echo(f"report   {findings.folder.page}")
    failed = sum(arm.errors for arm in summary.arms)
    if failed:
        what = "1 answer" if failed == 1 else f"{failed} answers"
        raise EngineError(f"{what} failed: see {findings.folder.results}", hint=AGAIN)
