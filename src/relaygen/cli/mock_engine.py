"""``relaygen mock-engine``: an engine over HTTP that plays a trace, for tests and measurements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import click

from relaygen._errors import UsageError
from relaygen.cli._help import Command, GroupedCommand, Number, option

Decorator = Callable[[Command], Command]

TRACE, SPEED, ENGINE, SERVER = "Trace", "Speed", "Engine", "Server"


class _Command(GroupedCommand):
    """A command whose help says what may fail."""

    policies = False

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from relaygen.mock import FAILURE_KINDS

        super().format_options(ctx, formatter)
        with formatter.section("Failures"):
            formatter.write_dl(list(FAILURE_KINDS.items()))


def _option(group: str, *names: str, **settings: Any) -> Decorator:
    return option(group, *names, **{"show_default": True, **settings})


def _number(
    group: str, name: str, default: float, help: str, *, top: float | None = None
) -> Decorator:
    return _option(group, name, type=Number(0, top), metavar="X", default=default, help=help)


def _count(group: str, name: str, default: int, help: str, *, least: int = 1) -> Decorator:
    return _option(
        group, name, type=click.IntRange(min=least), metavar="N", default=default, help=help
    )


@click.command(
    cls=_Command,
    epilog='POST /mock/failures plans failures while it runs: {"kind":"reset","token":10}, or a '
    "list of such. Further fields: request (which generation), session (only with this "
    "x-session-id), count (how many requests it befalls: 1, or null for all). GET tells those to "
    "come, DELETE forgets them.",
)
@_option(
    TRACE,
    "--trace",
    metavar="NAME|FILE",
    default="long",
    help="What the engine says: long (about 2000 tokens), short (139), or a file.",
)
@_option(TRACE, "--split", is_flag=True, help="Cut longer tokens in two: another vocabulary.")
@_option(
    TRACE,
    "--match",
    type=click.Choice(["ids", "text"]),
    default="ids",
    help="What a request is compared with the trace by; pairs with different vocabularies need "
    "text.",
)
@_option(
    TRACE,
    "--template",
    type=click.Choice(["thinking", "plain"]),
    default="thinking",
    help="plain: a chat template without thinking; only the trace's answer is played.",
)
@_number(SPEED, "--token-ms", 40.0, "Milliseconds per token.")
@_number(SPEED, "--prefill-ms", 0.3, "Milliseconds per prompt token that is not cached.")
@_number(SPEED, "--ttft-ms", 0.0, "Milliseconds before the first token of every request, besides.")
@_number(SPEED, "--jitter", 0.0, "Tokens come late by up to this share of --token-ms.", top=1)
@_count(SPEED, "--burst", 1, "Tokens come in bursts of 1 to N at the same mean speed.")
@_count(SPEED, "--regroup", 1, "Up to N tokens share a chunk, at random.")
@_option(SPEED, "--seed", type=int, metavar="N", default=0, help="Seed of everything random.")
@_count(ENGINE, "--context", 40_960, "Tokens of prompt and completion together.")
@_count(ENGINE, "--kv-tokens", 262_144, "Budget of the prefix cache, in tokens.", least=0)
@_count(ENGINE, "--max-stops", 4, "Stop strings of a request; more are refused.", least=0)
@_number(ENGINE, "--margin", 0.9, "Every token's lead in probability over the second best.", top=1)
@_option(
    ENGINE,
    "--processed-logprobs",
    is_flag=True,
    help="Log-probabilities follow the temperature.",
)
@_option(
    ENGINE,
    "--show-cached/--hide-cached",
    default=True,
    help="Whether usage says how many prompt tokens were cached.",
)
@_option(
    ENGINE,
    "--fail",
    multiple=True,
    metavar="KIND[:TOKEN[:REQUEST]]",
    help="Fail after TOKEN tokens of generation REQUEST (from 0; default: the next), once; the "
    "kinds are below. Repeatable; also POST /mock/failures.",
)
@_option(SERVER, "--served-model-name", "model", metavar="NAME", default="mock", help="Model name.")
@_option(SERVER, "--host", metavar="HOST", default="127.0.0.1", help="Where to listen.")
@_option(
    SERVER,
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8000,
    help="Likewise; 0 takes a free one.",
)
@_option(SERVER, "--api-key", metavar="KEY", default="", show_default=False, help="Guards /v1.")
def mock_engine(
    trace: str,
    match: Literal["ids", "text"],
    fail: tuple[str, ...],
    host: str,
    port: int,
    **settings: Any,
) -> None:
    """Serve a fake engine that plays a trace at a given speed.

    It has vLLM's routes, a prefix cache and planned failures. Any chat is answered with the trace;
    two engines with the same one play a pair (profile qwen3-32b+1.7b). A request that goes on
    otherwise than the trace is an error. GET /mock/log tells what was asked.
    """
    from relaygen.mock import Failure, MockConfig, listen, make_server

    failures = tuple(Failure.parse(spec) for spec in fail)
    config = MockConfig(trace=trace, match=match, failures=failures, **settings)
    server = make_server(config)
    with listen(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"mock engine at http://{shown}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])
    if not server.started:
        raise UsageError(f"the server did not start at {host}:{port}")
