"""``relaygen calibrate``: from questions to a profile for one pair, with evidence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from relaygen._types import ROLES, Role
from relaygen.cli import _options
from relaygen.cli._calibrate_options import STEPS, Asked, calibrate_options
from relaygen.cli._extras import require
from relaygen.cli._help import GroupedCommand
from relaygen.policies import LargeOnly
from relaygen.profiles import make_policy

if TYPE_CHECKING:
    from relaygen.calibrate._check import Check
    from relaygen.calibrate._job import Job
    from relaygen.engines.transformers_local import TransformersScorer


class _Command(GroupedCommand):
    """Its levels have one of two policies, so the list of all would mislead."""

    policies = False


@click.command(cls=_Command)
@calibrate_options
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
        from relaygen.cli._selection_table import show_selection

        show_selection(job.select(), job.settings.policy)
    if "check" in steps:
        from relaygen.cli._check_table import show_check

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
    """Traces and scores; only models that are asked are fetched, and only one is in memory."""
    from relaygen.cli._steps import show_steps

    scorer = job.settings.scorer
    roles: set[Role] = {"large"} if "traces" in steps else set()
    if "score" in steps and local is None:
        roles.add(scorer)
    if roles:
        roles.update(ROLES if "check" in steps else ())  # a model that lacks is said at once
        relay = _options.open_relay(asked.pair(), job.base, LargeOnly(), roles)
        with relay, show_steps() as progress:
            if "traces" in steps:
                relay.run(job.traces(relay, progress))
                if scorer == "small":
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
    pair = asked.pair(policy="relay")
    relay = _options.open_relay(pair, profile, make_policy("relay", profile))
    with relay, show_steps() as progress:
        return relay.run(job.check(relay, progress))
