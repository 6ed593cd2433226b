"""``relaygen chat``: several turns on one pair of live engines."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from relaygen._errors import RelayGenError
from relaygen._types import Message
from relaygen.cli import _options, report
from relaygen.cli._help import GroupedCommand, option
from relaygen.cli._options import OUTPUT, PairOptions, TextOptions, pair_options, text_options

if TYPE_CHECKING:
    from relaygen._results import Generation
    from relaygen.cli._live import Live
    from relaygen.cli._summary import Shown

_PROMPT = "> "
_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?")  # a path such as /etc/hosts is no command

COMMANDS: Mapping[str, str] = {
    "/help": "list these commands",
    "/reset": "forget the conversation",
    "/policy [NAME]": "say which policy writes, or change it",
    "/usage": "the last answer's summary, and the conversation's sums",
    "/quit": "end",
}
"""What may be typed instead of a message, and what it does."""


@click.command(cls=GroupedCommand)
@pair_options
@text_options
@option(OUTPUT, "--quiet", is_flag=True, help="Print the answers only: no reasoning, no summaries.")
def chat(pair: PairOptions, text: TextOptions, quiet: bool) -> None:
    """Talk with the pair, on engines that stay live.

    Earlier answers go back to the models without their reasoning. Ctrl-C stops an answer, at the
    prompt it ends the chat. Without a terminal, each line of the standard input is one turn.
    /help lists the commands.
    """
    profile, policy = pair.plan()
    settings = text.settings(profile, policy)
    relay = _options.open_relay(pair, profile, policy, policy.roles)

    from relaygen.cli._live import Live
    from relaygen.cli._summary import Shown

    with Live(relay) as live:
        shown = Shown(policy, pair.profile, on_cpu=pair.on_cpu)
        Chat(live, pair, settings, shown, quiet=quiet).run()


class Chat:
    """One conversation.

    Args:
        live: the engines.
        pair: where those are found that a policy needs later.
        settings: keyword arguments of `Relay.task`, the same for every turn.
        shown: what summaries say besides a turn's numbers; its policy is the one in force.
        quiet: answers only.
    """

    def __init__(
        self,
        live: Live,
        pair: PairOptions,
        settings: Mapping[str, Any],
        shown: Shown,
        *,
        quiet: bool,
    ) -> None:
        from relaygen.cli._render import Screen

        self._live = live
        self._pair = pair
        self._settings = settings
        self._shown = shown
        self._quiet = quiet
        self._screen = Screen(reasoning=not quiet, status=not quiet)
        self._messages: list[Message] = []
        self._turns: list[Generation] = []
        self._typed = sys.stdin.isatty()

    def run(self) -> None:
        """Read turns until the end of the input.

        Raises:
            RelayGenError: an engine failed, and nobody is there to decide what next.
        """
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        with self._screen as screen:
            screen.status("starting the engines …")
            self._live.start(self._shown.policy)
            screen.end()
        if self._typed and not self._quiet:
            self._screen.err.say("/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends")
        while (line := self._read()) is not None:
            try:
                if not self._take(line.strip()):
                    return
            except RelayGenError as error:
                if not self._typed:
                    raise
                report(error)

    def _read(self) -> str | None:
        """The next line, None where there is none."""
        if not self._typed:
            return sys.stdin.readline() or None
        prompt = _PROMPT
        if sys.stdout.isatty():
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # lets `input` edit lines and recall earlier ones
        else:
            self._screen.err.write(prompt)
            prompt = ""
        try:
            return input(prompt)
        except (EOFError, KeyboardInterrupt):
            self._screen.err.write("\n")
            return None

    def _take(self, line: str) -> bool:
        """One line of input; False ends the chat."""
        command = _COMMAND.fullmatch(line)
        if command is None:
            if line:
                self._turn(line)
            return True
        name, argument = command[1], (command[2] or "").strip()
        if name == "reset":
            self._messages.clear()
            self._say("the conversation starts anew")
        elif name == "policy":
            self._policy(argument)
        elif name == "usage":
            self._usage()
        elif name == "help":
            for what, does in COMMANDS.items():
                self._say(f"{what:15} {does}")
        elif name != "quit":
            self._say(f"there is no command /{name}; /help lists them")
        return name != "quit"

    def _say(self, text: str) -> None:
        self._screen.err.say(text)

    def _policy(self, name: str) -> None:
        from dataclasses import replace

        from relaygen.profiles import POLICIES, own_policy_at

        if name:
            relay = self._live.relay
            try:
                _, policy = own_policy_at(None, name, relay.profile)
                self._live.relay = _options.with_models_of(policy, relay, self._pair)
            except RelayGenError as error:
                report(error)
                return
            except KeyboardInterrupt:  # while a model was fetched
                self._say(f"policy {self._shown.policy.name} stays")
                return
            self._shown = replace(self._shown, policy=policy)
        self._say(f"policy {self._shown.policy.name} (there are {', '.join(POLICIES)})")

    def _turn(self, text: str) -> None:
        """Ask, and keep what was answered. A turn without any answer is forgotten.

        Raises:
            RelayGenError: an engine failed.
        """
        messages = [*self._messages, Message("user", text)]
        task = self._live.relay.task(messages, policy=self._shown.policy, **self._settings)
        screen = self._screen
        with screen:
            outcome = self._live.generate(task, screen.show, waiting=screen.status)
        generation = outcome.generation
        self._turns.append(generation)
        if generation.answer:
            self._messages = [*messages, Message("assistant", generation.answer)]
        if not self._quiet:
            screen.short_summary(generation)
        if outcome.error is not None:
            raise outcome.error
        if outcome.interrupted:
            kept = "what it has so far stays in the conversation"
            self._say(f"stopped; {kept if generation.answer else 'the question is forgotten'}")
        if self._typed and not self._quiet:
            screen.err.write("\n")

    def _usage(self) -> None:
        if not self._turns:
            self._say("nothing was generated yet")
            return
        self._screen.summary(self._turns[-1], self._shown)
        self._say(_sums(self._turns))


def _sums(turns: Sequence[Generation]) -> str:
    """The whole conversation in one line."""
    from relaygen._words import plural
    from relaygen.cli._summary import seconds_text

    usages = [generation.usage for generation in turns]
    large = sum(usage.large_tokens for usage in usages)
    small = sum(usage.small_tokens for usage in usages)
    seconds = seconds_text(sum(usage.seconds for usage in usages))
    share = f" · utilization {100 * large / (large + small):.0f} %" if large + small else ""
    return (
        f"{plural(len(turns), 'turn')} so far: "
        f"{large} large + {small} small tokens{share} · {seconds}"
    )
