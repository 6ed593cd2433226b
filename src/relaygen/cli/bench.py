"""``relaygen bench``: what the relay itself costs on mock engines, and its speed on real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from relaygen._errors import EngineError, UsageError
from relaygen.cli import _options
from relaygen.cli._extras import require
from relaygen.cli._help import GroupedCommand, Number, collecting, option
from relaygen.cli._options import PairOptions, pair_options

if TYPE_CHECKING:
    from relaygen._progress import Progress
    from relaygen._types import Role
    from relaygen.bench import LiveResult, Measured, Shape, Sweep

KIND = "What is measured"
MOCK = "Mock engines"
LIVE = "Real engines (--live)"
OUTPUT = "Output"

_SWEEPS: tuple[Sweep, ...] = ("streams", "context", "handoffs")
_TOKENS = 400
_QUICK_TOKENS = 150
QUESTIONS = (
    "A shop sells pens at 12 cents and books at 150 cents. How much do 7 pens and two books cost?",
    "How many whole numbers from 1 to 200 are divisible by 6 or by 8?",
    "A train leaves at 9:40 and arrives at 13:05. It stands still for 25 minutes in all. "
    "For how long does it move?",
)
"""Asked of real engines where none are given."""


class Several(click.ParamType):  # type: ignore[type-arg]  # generic in no older click
    """Numbers with commas between them.

    Args:
        one: what each is.
    """

    name = "several"

    def __init__(self, one: click.IntRange | click.FloatRange) -> None:
        self._one = one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As a tuple."""
        if isinstance(value, tuple):
            return value
        return tuple(self._one.convert(part.strip(), param, ctx) for part in value.split(","))


@dataclass(frozen=True, slots=True)
class MockAsked:
    """Of mock engines. None: the default, which ``--quick`` makes smaller."""

    sweep: tuple[str, ...] = ()
    streams: tuple[int, ...] | None = None
    contexts: tuple[int, ...] | None = None
    handoffs: tuple[float, ...] | None = None
    trace: str | None = None
    tokens: int | None = None
    whole: bool = False
    quick: bool = False
    large_ms: float | None = None
    small_ms: float | None = None
    large_prefill_ms: float | None = None
    small_prefill_ms: float | None = None


@dataclass(frozen=True, slots=True)
class LiveAsked:
    """Of real engines."""

    question: tuple[str, ...] = ()
    runs: int | None = None
    max_tokens: int | None = None


_COUNT = click.IntRange(min=1)
_FROM = Number(min=0)
_ABOVE = Number(min=0, min_open=True)


@click.command(cls=GroupedCommand)
@option(KIND, "--live", is_flag=True, help="Real engines, not mock engines: relay against large.")
@collecting(
    MockAsked,
    "mock",
    [
        option(
            MOCK,
            "--sweep",
            type=click.Choice(_SWEEPS),
            multiple=True,
            help="Vary this only. Repeatable. Default: all three.",
        ),
        option(
            MOCK,
            "--streams",
            type=Several(click.IntRange(1, 256)),
            metavar="N,…",
            help="Generations at a time. Default: 1,4,16,64,256.",
        ),
        option(
            MOCK,
            "--contexts",
            type=Several(click.IntRange(0, 100_000)),
            metavar="N,…",
            help="Tokens of the prompt. Default: 1000,8000,32000.",
        ),
        option(
            MOCK,
            "--handoffs",
            type=Several(Number(0, 1000, min_open=True)),
            metavar="N,…",
            help="Hand-offs per 1,000 tokens. Default: 10,50,200.",
        ),
        option(
            MOCK,
            "--trace",
            metavar="NAME|FILE",
            help="What the engines write: long, short or a file. Default: long.",
        ),
        option(
            MOCK,
            "--tokens",
            type=_COUNT,
            metavar="N",
            help=f"Shorten the trace to so many. Default: {_TOKENS}.",
        ),
        option(MOCK, "--whole", is_flag=True, help="Play the whole trace."),
        option(
            MOCK, "--quick", is_flag=True, help="Fewer points, a shorter trace: about a minute."
        ),
        option(MOCK, "--large-ms", type=_ABOVE, metavar="MS", help="Large: a token. Default: 40."),
        option(MOCK, "--small-ms", type=_ABOVE, metavar="MS", help="Small: a token. Default: 6.5."),
        option(
            MOCK,
            "--large-prefill-ms",
            type=_FROM,
            metavar="MS",
            help="Large: a prompt token that is not cached. Default: 0.3.",
        ),
        option(
            MOCK,
            "--small-prefill-ms",
            type=_FROM,
            metavar="MS",
            help="Small: likewise. Default: 0.05.",
        ),
    ],
)
@pair_options
@collecting(
    LiveAsked,
    "asked",
    [
        option(
            LIVE,
            "--question",
            multiple=True,
            metavar="TEXT",
            help="What is asked. Repeatable. Default: three small sums.",
        ),
        option(LIVE, "--runs", type=_COUNT, metavar="N", help="Times each is asked. Default: 3."),
        option(LIVE, "--max-tokens", type=_COUNT, metavar="N", help="Of an answer. Default: 512."),
    ],
)
@option(
    OUTPUT,
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append each figure to this file as JSON lines, as it comes.",
)
@click.pass_context
def bench(
    ctx: click.Context,
    live: bool,
    mock: MockAsked,
    pair: PairOptions,
    asked: LiveAsked,
    out: Path | None,
) -> None:
    """Measure what the relay itself costs, on mock engines that play a trace.

    The ceiling is computed from the trace and the decode costs alone. Nothing else should run
    meanwhile. With --live, real engines answer questions in turn by the relay and by the large
    model alone.
    """
    other = "mock engines" if live else "--live"
    for name in _of_other_kind(ctx, live):
        raise UsageError(f"--{name.replace('_', '-')} is for {other}")
    with _sink(out) as write:
        if live:
            _live(pair, asked, write)
        else:
            _mock(mock, write)


def _of_other_kind(ctx: click.Context, live: bool) -> list[str]:
    """The options given that say nothing here."""
    kinds = (MockAsked,) if live else (PairOptions, LiveAsked)
    names = [field.name for kind in kinds for field in fields(kind)]
    source = click.core.ParameterSource.COMMANDLINE
    return [name for name in names if ctx.get_parameter_source(name) == source]


@contextmanager
def _sink(out: Path | None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Takes records, each a line that is written at once.

    Raises:
        UsageError: the file cannot be written.
    """
    from relaygen._jsonable import json_line

    if out is None:
        yield lambda record: None
        return
    try:
        file: IO[str] = out.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}", hint="choose another") from None
    with file:

        def write(record: Mapping[str, Any]) -> None:
            file.write(json_line(dict(record)) + "\n")
            file.flush()

        try:
            yield write
        except KeyboardInterrupt:
            click.echo(f"stopped; what was measured is in {out}", err=True)
            raise


def _run(work: Coroutine[Any, Any, None]) -> None:
    """On the event loop that ``relaygen serve`` has."""
    if find_spec("uvloop") is None:
        asyncio.run(work)
        return
    import uvloop

    uvloop.run(work)


def _mock(asked: MockAsked, write: Callable[[Mapping[str, Any]], None]) -> None:
    require("starlette", "uvicorn", extra="serve")
    from relaygen.bench import LARGE, SMALL, Figures, measure, played, points, shortened
    from relaygen.bench._measure import measured_dict
    from relaygen.cli._bench_table import show_measured
    from relaygen.cli._steps import show_steps
    from relaygen.mock import load_trace

    if asked.whole and asked.tokens is not None:
        raise UsageError("--whole and --tokens say different things", hint="give one of them")
    trace = load_trace(asked.trace or "long")
    if not asked.whole:
        trace = shortened(trace, asked.tokens or (_QUICK_TOKENS if asked.quick else _TOKENS))
    shapes: dict[Role, Shape] = {
        "large": _shape(LARGE, asked.large_ms, asked.large_prefill_ms),
        "small": _shape(SMALL, asked.small_ms, asked.small_prefill_ms),
    }
    wanted = points(
        [sweep for sweep in _SWEEPS if not asked.sweep or sweep in asked.sweep],
        streams=asked.streams or ((1, 8) if asked.quick else (1, 4, 16, 64, 256)),
        contexts=asked.contexts or ((1000, 4000) if asked.quick else (1000, 8000, 32000)),
        rates=asked.handoffs or ((50.0, 200.0) if asked.quick else (10.0, 50.0, 200.0)),
        utilization=Figures.of(played(trace)).utilization,
    )
    found: list[Measured] = []

    async def work(progress: Progress) -> None:
        async with aclosing(measure(trace, wanted, shapes=shapes, progress=progress)) as measured:
            async for one in measured:
                write(measured_dict(one))
                found.append(one)

    try:
        with show_steps() as progress:
            _run(work(progress))
    finally:
        show_measured(trace, found)
    broken = sum(one.streams - one.whole for one in found)
    if broken:
        raise EngineError(f"{broken} texts are not the trace's")


def _shape(usual: Shape, token_ms: float | None, prefill_ms: float | None) -> Shape:
    changes = {"token_ms": token_ms, "prefill_ms": prefill_ms}
    return replace(usual, **{name: ms for name, ms in changes.items() if ms is not None})


def _live(pair: PairOptions, asked: LiveAsked, write: Callable[[Mapping[str, Any]], None]) -> None:
    from relaygen._task import Limits
    from relaygen.bench._live import live_dict, measure_live
    from relaygen.cli._bench_table import show_live
    from relaygen.cli._steps import show_steps

    profile, policy = pair.plan()
    if policy.roles != {"large", "small"}:
        raise UsageError(f"policy {policy.name} is one model alone: nothing to compare")
    relay = _options.open_relay(pair, profile, policy)
    found: list[LiveResult] = []

    async def work(progress: Progress) -> None:
        async with relay:
            result = await measure_live(
                relay,
                asked.question or QUESTIONS,
                runs=asked.runs or 3,
                progress=progress,
                each=write,
                limits=Limits(max_tokens=asked.max_tokens or 512),
            )
        write(live_dict(result))
        found.append(result)

    with show_steps() as progress:
        _run(work(progress))
    show_live(found[0])
