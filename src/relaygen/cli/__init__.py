"""The command line. A command's module is imported when the command runs, not before."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from relaygen._errors import RelayGenError, UsageError
from relaygen._version import __version__

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
BROKEN_PIPE = 141  # 128 + SIGPIPE

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("relaygen.cli.run:run", "Answer one question with both models."),
    "chat": ("relaygen.cli.chat:chat", "Talk with the pair."),
    "serve": ("relaygen.cli.serve:serve", "Serve the pair to any OpenAI client."),
    "calibrate": ("relaygen.cli.calibrate:calibrate", "Find a pair's cues, with evidence."),
    "eval": ("relaygen.cli.eval:evaluate", "Compare the pair with its models and rivals."),
    "plan": ("relaygen.cli.plan:plan", "Forecast what a relay gains, and what limits it."),
    "doctor": ("relaygen.cli.doctor:doctor", "Examine a pair: what works, what to change."),
    "engines": ("relaygen.cli.engines:engines", "Print commands that start a pair's servers."),
    "bench": ("relaygen.cli.bench:bench", "Measure what the relay itself costs."),
    "models": ("relaygen.cli.models:models", "List and fetch the embedded pair's model files."),
    "profile": ("relaygen.cli.profile:profile", "Show and check profiles."),
    "mock-engine": (
        "relaygen.cli.mock_engine:mock_engine",
        "Serve a fake engine that plays a trace, for tests.",
    ),
}
"""Command name -> (``module:attribute``, what ``--help`` says of it)."""

_EPILOG = """\b
Exit status:
    0  success
    1  any other failure
    2  the call, a flag, a value or a profile makes no sense
    3  an optional dependency is not installed
    4  a model file cannot be had or used
    5  an engine failed
  130  interrupted with Ctrl-C
  141  nobody reads the output any more

RELAYGEN_DEBUG=1 shows the traceback of an error.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when needed, and which prints this package's errors.

    A :class:`RelayGenError` becomes one line ``error: …`` and, where there is one, one line
    ``hint: …`` on stderr, and its ``exit_code`` the exit status. A call that click refuses is told
    in the same way. Ctrl-C and a closed pipe end the program without a word.

    Args:
        lazy: command name -> (``module:attribute``, short help).
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the mapping."""
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None where there is none of this name."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module_name, _, attribute = self.lazy[cmd_name][0].partition(":")
        try:
            command = getattr(importlib.import_module(module_name), attribute)
        except ModuleNotFoundError as error:
            if error.name != module_name:
                raise
            raise UsageError(f"this installation has no command {cmd_name!r}") from error
        assert isinstance(command, click.Command), f"{module_name}:{attribute} is no command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the mapping, importing none."""
        rows = [(name, text) for name, (_, text) in self.lazy.items()]
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            rows.append((name, command.get_short_help_str() if command else ""))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands and options, importing no command."""
        items = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.lazy.items()
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The group's own options; a command's are read when it is invoked."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _refuse(error, ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and turn how it fails into an exit status."""
        _open_closed_streams()
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe shows here, not in the interpreter's last breath
        except RelayGenError as error:
            report(error)
            ctx.exit(error.exit_code)
        except click.UsageError as error:
            _refuse(error, ctx)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # What is still buffered goes nowhere, or it would be tried again at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)
        return result


def _open_closed_streams() -> None:
    """A standard stream that was closed before this process began (``>&-``) is None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for as long as we live


def report(error: RelayGenError) -> None:
    """Print an error for people on stderr: one line, and one with the hint if there is any."""
    if os.environ.get("RELAYGEN_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    click.echo(f"error: {_one_line(str(error))}", err=True)
    if error.hint:
        click.echo(f"hint: {_one_line(error.hint)}", err=True)


def _refuse(error: click.UsageError, ctx: click.Context) -> NoReturn:
    """Print what click says of a call, and end."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        raise error  # all it says is the help
    said = error.format_message().rstrip(".")
    named = [ctx.command_path, ctx.invoked_subcommand or ""]
    path = error.ctx.command_path if error.ctx else " ".join(filter(None, named))
    report(UsageError(said[:1].lower() + said[1:], hint=f"{path} --help says what there is"))
    ctx.exit(error.exit_code)


def _one_line(text: str) -> str:
    """Whatever an engine said: a terminal must not obey it."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="relaygen")
def main() -> None:
    """Let a large and a small language model write one answer together."""
