"""``relaygen run``: one question, answered by both models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from relaygen._errors import RelayGenError, UsageError
from relaygen.cli import _options
from relaygen.cli._help import GroupedCommand, option
from relaygen.cli._options import OUTPUT, PairOptions, TextOptions, pair_options, text_options

if TYPE_CHECKING:
    from relaygen._events import Event
    from relaygen.cli._live import Outcome

_PRICE = click.FloatRange(min=0.0)


@click.command(cls=GroupedCommand)
@click.argument("question", required=False)
@option(
    "Input",
    "--file",
    type=click.File("rb"),
    metavar="FILE",
    help="Read the question from a file; - is the standard input.",
)
@pair_options
@text_options
@option(OUTPUT, "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@option(
    OUTPUT,
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write every event as one line of JSON, as it happens, to a new file.",
)
@option(
    OUTPUT,
    "--price-large",
    type=_PRICE,
    metavar="X",
    help="Price of a million tokens of the large model; with --price-small the summary says "
    "what was saved.",
)
@option(
    OUTPUT,
    "--price-small",
    type=_PRICE,
    metavar="X",
    help="Price of a million tokens of the small model.",
)
@option(OUTPUT, "--quiet", is_flag=True, help="Print the answer only: no reasoning, no summary.")
def run(
    question: str | None,
    file: BinaryIO | None,
    pair: PairOptions,
    text: TextOptions,
    as_json: bool,
    trace: Path | None,
    price_large: float | None,
    price_small: float | None,
    quiet: bool,
) -> None:
    """Answer one question with both models.

    The question is the argument, a file, or the standard input. Reasoning goes to the standard
    error, the answer to the standard output, and a summary follows on the standard error.
    """
    asked = _question(question, file)
    prices = _prices(price_large, price_small)
    profile, policy = pair.plan()
    settings = text.settings(profile, policy)
    with _tracing(trace) as record:
        relay = _options.open_relay(pair, profile, policy, policy.roles)
        task = relay.task(asked, **settings)

        from relaygen.cli._live import Live
        from relaygen.cli._render import Screen
        from relaygen.cli._summary import Shown

        screen = Screen(reasoning=not quiet, answer=not as_json, status=not quiet)

        def show(event: Event) -> None:
            record(event)
            screen.show(event)

        with Live(relay) as live, screen:
            outcome = live.generate(task, show, waiting=screen.status)
            screen.end()
            if as_json:
                origin = {
                    "policy": pair.policy,
                    "profile": profile.name,
                    "level": profile.level or None,
                    "seed": text.seed,
                }
                _print_json(outcome, origin)
            elif not quiet:
                shown = Shown(policy, pair.profile, prices, pair.on_cpu, outcome.cut)
                screen.summary(outcome.generation, shown)
    if outcome.error is not None:
        raise outcome.error
    if outcome.interrupted:
        raise KeyboardInterrupt


def _question(argument: str | None, file: BinaryIO | None) -> str:
    """The one question there is.

    Raises:
        UsageError: none, more than one, an empty one, or one that is not UTF-8.
    """
    if argument is not None and file is not None:
        raise UsageError(
            "the question is given twice", hint="give the argument or --file, not both"
        )
    try:
        if argument is not None:
            argument.encode()
            question = argument
        elif file is not None:
            question = file.read().decode("utf-8-sig")
        elif not sys.stdin.isatty():
            question = sys.stdin.buffer.read().decode("utf-8-sig")
        else:
            raise UsageError("there is no question", hint='for example: relaygen run "Why is …?"')
    except UnicodeError:
        raise UsageError("the question is not valid UTF-8") from None
    if not question.strip():
        raise UsageError("the question is empty")
    return question.rstrip("\r\n") if argument is None else question


def _prices(large: float | None, small: float | None) -> tuple[float, float] | None:
    if large is None and small is None:
        return None
    if large is None or small is None:
        raise UsageError("a saving needs both prices", hint="give --price-large and --price-small")
    return large, small


@contextmanager
def _tracing(path: Path | None) -> Iterator[Callable[[Event], None]]:
    """A function that appends an event to the trace file at once.

    Raises:
        UsageError: the file has something in it already, or cannot be opened.
    """
    if path is None:
        yield lambda event: None
        return
    try:
        if path.exists() and path.stat().st_size:
            raise UsageError(
                f"{path} exists and is not empty", hint="name a new file, or remove this one"
            )
        file = path.open("ab", buffering=0)  # nothing may be left to write when closing fails
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    from relaygen._jsonable import event_dict, json_line

    started = perf_counter()
    with file:

        def record(event: Event) -> None:
            at = round(perf_counter() - started, 6)
            rest = f"{json_line({'at': at, **event_dict(event)})}\n".encode()
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError as error:
                raise RelayGenError(f"cannot write {path}: {error.strerror}") from error

        yield record


def _print_json(outcome: Outcome, origin: Mapping[str, Any]) -> None:
    from relaygen._jsonable import generation_dict, json_line

    error = None if outcome.error is None else str(outcome.error)
    line = json_line({**generation_dict(outcome.generation), **origin, "error": error})
    click.echo(line.encode())  # UTF-8 whatever the locale says
