from __future__ import annotations

import re
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relaygen import EngineUnreachableError, Message, ModelNotFoundError, Relay
from relaygen.cli import _options, main
from relaygen.cli.chat import COMMANDS
from relaygen.engines.scripted import Failure, ScriptedEngine

from .playing import PLAIN, TAGS, THINKING, child, stage

ANSWER = "The sum is three. So be it."
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def call(*args: str, lines: str) -> Result:
    return CliRunner().invoke(main, ["chat", *args], input=lines)


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Message, ...]]:
    """The conversations that the large engine was asked to continue."""
    seen: list[tuple[Message, ...]] = []
    real = ScriptedEngine.render

    async def render(self: ScriptedEngine, conversation: Any) -> Any:
        if not seen or seen[-1] != conversation.messages:  # both engines are asked
            seen.append(conversation.messages)
        return await real(self, conversation)

    monkeypatch.setattr(ScriptedEngine, "render", render)
    return seen


def test_a_line_is_a_turn_and_answers_go_back_without_reasoning(
    monkeypatch: pytest.MonkeyPatch, rendered: list[tuple[Message, ...]]
) -> None:
    stage(monkeypatch, THINKING)
    result = call(*TAGS, "--system", "Be brief.", lines="one?\n\n  two?  \n")
    assert result.exit_code == 0
    assert result.stdout == f"{ANSWER}\n" * 2
    assert result.stderr.count("Let me see.") == 2
    assert result.stderr.count("utilization") == 2
    assert rendered[-1] == (
        Message("system", "Be brief."),
        Message("user", "one?"),
        Message("assistant", ANSWER),
        Message("user", "two?"),
    )


def test_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, THINKING)
    result = call(*TAGS, "--quiet", lines="one?\ntwo?")
    assert (result.stdout, result.stderr) == (f"{ANSWER}\n" * 2, "")


def test_reset_forgets(
    monkeypatch: pytest.MonkeyPatch, rendered: list[tuple[Message, ...]]
) -> None:
    stage(monkeypatch, PLAIN)
    assert call(lines="one?\n/reset\ntwo?\n").exit_code == 0
    assert rendered[-1] == (Message("user", "two?"),)


def test_policy_is_said_changed_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stage(monkeypatch, PLAIN)
    result = call(lines="/policy\n/policy nope\n/policy large\none?\n/policy relay\ntwo?\n")
    assert result.exit_code == 0
    assert "policy relay (there are relay, margin, one-shot" in result.stderr
    assert "error: there is no policy 'nope'" in result.stderr
    assert "utilization 100 % · 0 hand-offs" in " ".join(result.stderr.split())
    assert made.small.requests  # the second turn was relayed
    assert len(made.large.requests) > 2


def test_models_are_opened_when_a_policy_asks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stage(monkeypatch, PLAIN)
    lines = "one?\n/policy large\n/policy relay\ntwo?\n/policy small\nthree?\n"
    result = call("--policy", "large", lines=lines)
    assert result.exit_code == 0
    assert result.stdout == PLAIN * 3
    assert made.roles == [{"large"}, {"small"}]
    assert made.asked[0] is made.asked[1]


def test_a_policy_whose_model_cannot_be_had_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = stage(monkeypatch, PLAIN)
    failures = iter((ModelNotFoundError("no such file"), KeyboardInterrupt()))

    def open_relay(*asked: Any) -> Relay:
        if made.asked:
            raise next(failures)
        return made.open_relay(*asked)

    monkeypatch.setattr(_options, "open_relay", open_relay)
    lines = "/policy relay\n/policy relay\none?\n"
    result = call("--policy", "large", lines=lines)
    assert result.exit_code == 0
    assert result.stdout == PLAIN
    assert "error: no such file\npolicy large stays\n" in result.stderr
    assert not made.small.requests


def test_usage_help_unknown_and_quit(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN)
    result = call(lines="/usage\none?\ntwo?\n/usage\n/help\n/nope\n/quit\nthree?\n")
    assert result.exit_code == 0
    assert result.stdout == PLAIN * 2
    assert "nothing was generated yet" in result.stderr
    assert re.search(r"2 turns so far: \d+ large \+ \d+ small tokens", result.stderr)
    assert "decode" in result.stderr
    for name in COMMANDS:
        assert name in result.stderr
    assert "no command /nope" in result.stderr


def test_a_path_is_no_command(
    monkeypatch: pytest.MonkeyPatch, rendered: list[tuple[Message, ...]]
) -> None:
    stage(monkeypatch, PLAIN)
    call(lines="/etc/hosts is what?\n")
    assert rendered == [(Message("user", "/etc/hosts is what?"),)]


def test_a_failure_ends_a_chat_that_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Failure(EngineUnreachableError("connection reset"), token=3)
    made = stage(monkeypatch, PLAIN, large={"failures": [failure]})
    result = call(lines="one?\ntwo?\n")
    assert result.exit_code == 5
    assert result.stdout == "We add [\n"
    assert result.stderr.splitlines()[-1] == "error: large engine: connection reset"
    assert len(made.large.requests) == 1


@pytest.mark.parametrize("args", [["--policy", "nope"], ["--top-p", "3"], ["--profile", "nope"]])
def test_mistakes_are_found_first(monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    made = stage(monkeypatch, PLAIN)
    assert call(*args, lines="one?\n").exit_code == 2
    assert not made.asked


def test_bytes_that_are_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN)
    result = CliRunner().invoke(main, ["chat"], input=b"caf\xe9?\n")
    assert result.exit_code == 0
    assert result.stdout == PLAIN


# On a terminal.


def test_ctrl_c_stops_the_answer_only_and_ctrl_d_ends() -> None:
    started = child("chat", columns=80, token_ms=30, env={"NO_COLOR": "1"})
    started.until("> ")
    started.type("one?\n")
    started.until("note :smile:")
    started.interrupt()
    started.until("stopped; what it has so far stays in the conversation")
    started.type("/usage\n")
    started.until("1 turn so far")
    started.type("\x04")
    assert started.end() == 0
    assert "Traceback" not in started.text


def test_ctrl_c_at_the_prompt_ends() -> None:
    started = child("chat", columns=80, env={"NO_COLOR": "1"})
    started.until("Ctrl-D ends")
    started.until("> ")
    started.interrupt()
    assert started.end() == 0
    shown = ESCAPES.sub("", started.text)
    assert "Traceback" not in shown


def test_a_question_stopped_in_its_reasoning_is_forgotten() -> None:
    started = child("chat", *TAGS, columns=80, token_ms=30, script=THINKING)
    started.until("> ")
    started.type("one?\n")
    started.until("see")
    started.interrupt()
    started.until("stopped; the question is forgotten")
    started.type("/quit\n")
    assert started.end() == 0


def test_a_terminal_survives_a_failure() -> None:
    # A scripted engine fails where it finds words in the text that are not its own.
    started = child("chat", columns=80, small={"script": PLAIN.replace("note", "see")})
    started.until("> ")
    started.type("one?\n")
    started.until("error: large engine")
    started.type("/policy small\n")
    started.until("policy small")
    started.type("two?\n")
    started.until("utilization 0 %")
    started.type("/quit\n")
    assert started.end() == 0
