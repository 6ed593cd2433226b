"""``relaygen plan``: what a relay will gain, from what its parts cost."""

from __future__ import annotations

from pathlib import Path

import click

from relaygen.cli._help import Number, PlainCommand, collecting, option
from relaygen.plan import Asked, plan_dict, planned

COSTS = "Costs"
TEXT = "The text"
PLACE = "The engines"
OUTPUT = "Output"

STREAMS = 1024
"""At most; each number of streams takes a time that grows with its square."""

_ABOVE = Number(min=0, min_open=True)
_FROM = Number(min=0)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=PlainCommand)
@collecting(
    Asked,
    "asked",
    [
        option(
            COSTS, "--large-ms", type=_ABOVE, metavar="MS", help="Large model: decoding a token."
        ),
        option(
            COSTS, "--small-ms", type=_FROM, metavar="MS", help="Small model: decoding a token."
        ),
        option(
            COSTS,
            "--large-catch-up-ms",
            type=_FROM,
            metavar="MS",
            help="Large model: reading a token of the small one, beyond a decode step. Default: 0.",
        ),
        option(
            COSTS,
            "--small-catch-up-ms",
            type=_FROM,
            metavar="MS",
            help="Small model: reading a token of the large one, beyond a decode step. Default: 0.",
        ),
        option(
            COSTS,
            "--overhead-ms",
            type=_FROM,
            metavar="MS",
            help="A hand-off beside reading, in each direction. Default: 0.",
        ),
        option(
            COSTS,
            "--large-spec-speedup",
            type=_ABOVE,
            metavar="X",
            help="How many times as fast drafting makes the large model's decoding. Default: 1.",
        ),
        option(
            COSTS,
            "--small-spec-speedup",
            type=_ABOVE,
            metavar="X",
            help="The same of the small model. Default: 1.",
        ),
        option(
            COSTS,
            "--relay-speedup",
            type=_ABOVE,
            metavar="X",
            help="Solve for the cost of a delegated token, hand-offs included, from this speed-up "
            "of a relay without drafting; instead of --small-ms and the rest.",
        ),
        option(
            COSTS,
            "--costs",
            type=_FILE,
            metavar="FILE",
            help="Of benchmarks/gpu_physics.py, of relaygen run --json, or an evaluation's "
            "results.jsonl.",
        ),
        option(
            COSTS,
            "--context",
            type=click.IntRange(min=1),
            default=4096,
            show_default=True,
            metavar="N",
            help="Tokens of text at which gpu_physics figures are taken.",
        ),
        option(TEXT, "--utilization", type=Number(0, 1), metavar="U", help="Large tokens / all."),
        option(
            TEXT,
            "--segment-tokens",
            type=_ABOVE,
            metavar="N",
            help="Mean length of a delegated segment.",
        ),
        option(
            TEXT,
            "--handoffs",
            type=_FROM,
            metavar="N",
            help="Hand-offs per 1,000 tokens, instead of --segment-tokens.",
        ),
        option(
            TEXT,
            "--prompt-tokens",
            type=_FROM,
            metavar="N",
            help="Of a question, with --tokens. Default: not counted.",
        ),
        option(
            TEXT, "--tokens", type=_ABOVE, metavar="N", help="Of the text that is written to it."
        ),
        option(
            TEXT,
            "--trace",
            type=_FILE,
            metavar="FILE",
            help="Generations that tell all of these: relaygen run --json or --trace, "
            "or an evaluation's results.jsonl.",
        ),
        option(
            TEXT,
            "--arm",
            default="relay",
            show_default=True,
            metavar="NAME",
            help="Whose generations count in an evaluation's results.",
        ),
        option(
            PLACE,
            "--devices",
            type=click.IntRange(1, 2),
            default=2,
            show_default=True,
            metavar="N",
            help="One that both models compute on, or two.",
        ),
        option(
            PLACE,
            "--hidden-catch-up",
            is_flag=True,
            help="Each model reads while the other writes; on two devices.",
        ),
        option(
            PLACE,
            "--concurrency",
            type=click.IntRange(1, STREAMS),
            multiple=True,
            metavar="N",
            help="Streams at a time. Repeatable.",
        ),
        option(
            PLACE,
            "--batch",
            type=click.IntRange(1, STREAMS),
            metavar="N",
            help="Requests that an engine decodes at once without slowing down. Default: as "
            "gpu_physics measured it, or 1.",
        ),
        option(
            OUTPUT,
            "--measured-speedup",
            type=_ABOVE,
            metavar="X",
            help="What was observed: print how far off the forecast is.",
        ),
    ],
)
@option(OUTPUT, "--json", "as_json", is_flag=True, help="Print JSON.")
def plan(asked: Asked, as_json: bool) -> None:
    """Forecast what a relay gains, what limits it, and how busy the engines get.

    From what the parts cost, given or measured, and how the text is shared: utilization and the
    length of delegated segments. An option goes before --trace, and that before --costs.
    """
    made = planned(asked)
    if as_json:
        from relaygen._jsonable import json_line

        click.echo(json_line(plan_dict(made)))
        return
    from relaygen.cli._plan_table import show_plan

    show_plan(made)
