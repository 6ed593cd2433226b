"""``relaygen doctor``: what works in a pair, what a relay would gain, and what to change."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from relaygen.cli._help import GroupedCommand, option
from relaygen.cli._options import OUTPUT, PairOptions, pair_options
from relaygen.cli.serve import engine_options, open_engines
from relaygen.serve._engines import EngineOptions

if TYPE_CHECKING:
    from relaygen.doctor import Examination


@click.command(
    cls=GroupedCommand,
    epilog="Exit status: 0 use it, also after changes that make it better; 1 requests fail or are "
    "not what they should be, the verdict is don't, or the times are not known; 5 an engine does "
    "not answer.",
)
@pair_options
@engine_options
@option(
    OUTPUT,
    "--quick",
    is_flag=True,
    help="Sample no answers, and measure everything once.",
)
@option(OUTPUT, "--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(
    ctx: click.Context, pair: PairOptions, engines: EngineOptions, quick: bool, as_json: bool
) -> None:
    """Examine a pair, and say whether to use a relay with it and what to change.

    Short requests show what the engines can do and how fast they are; a few answers of the large
    model show which cues fire. Nothing else should use the engines meanwhile.
    """
    from relaygen.doctor import Examination, report_dict, status

    profile, policy = pair.plan()
    relay = open_engines(pair, engines, profile, policy)
    examination = Examination(relay, quick=quick)
    interrupted = _run(examination)
    report = examination.report
    if as_json:
        from relaygen._jsonable import json_line

        click.echo(json_line(report_dict(report)))
    else:
        from relaygen.cli._doctor_table import show_report

        show_report(report)
    if interrupted:
        raise KeyboardInterrupt
    ctx.exit(status(report))


def _run(examination: Examination) -> bool:
    """To the end, or to Ctrl-C: True. The engines are freed."""
    from relaygen._sync import LoopThread
    from relaygen.cli._steps import show_steps

    loop = LoopThread()
    try:
        # An iteration: Ctrl-C waits until half-started engines are gone.
        with show_steps() as progress, closing(loop.iterate(examination.steps())) as steps:
            for step in steps:
                progress(step)
    except KeyboardInterrupt:
        click.echo("interrupted: this is what was found until then", err=True)
        return True
    finally:
        loop.call(examination.aclose())
        loop.close()
    return False
