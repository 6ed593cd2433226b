"""``--level`` in every command that takes a profile."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relaygen.cli import main

from .playing import PLAIN, stage

LEVELS = """
[levels.careful]
cues = ["Thus"]
utilization = 0.85
[levels.fast]
cues = ["So", "Thus,"]
policy = "margin"
stay = 0.8
leave = 0.3
unproven = true
"""


@pytest.fixture
def leveled(tmp_path: Path) -> str:
    shipped = (resources.files("relaygen.profiles") / "data" / "embedded.toml").read_text("utf-8")
    path = tmp_path / "leveled.toml"
    path.write_text(shipped + LEVELS, "utf-8")
    return str(path)


def call(*args: str, lines: str | None = None) -> Result:
    return CliRunner().invoke(main, list(args), input=lines)


def test_run_at_a_level(monkeypatch: pytest.MonkeyPatch, leveled: str) -> None:
    stage(monkeypatch, PLAIN)
    smalls = {}
    for level in ("careful", "fast", None):
        chosen = ("--level", level) if level else ()
        made = json.loads(call("run", "--profile", leveled, *chosen, "--json", "?").stdout)
        assert (made["level"], made["policy"], made["answer"]) == (level, "relay", PLAIN)
        assert any("unproven" in note for note in made["notes"]) == (level == "fast")
        smalls[level] = [s["text"] for s in made["segments"] if s["role"] == "small"]
    assert smalls["careful"] == [" [bold]x[/bold] is 3."]
    assert smalls["fast"] == [PLAIN.partition("So")[2]]  # sure of all that follows
    assert len(smalls[None]) > 1


def test_the_summary_says_that_a_level_is_unproven(
    monkeypatch: pytest.MonkeyPatch, leveled: str
) -> None:
    stage(monkeypatch, PLAIN)
    text = " ".join(call("run", "--profile", leveled, "--level", "fast", "?").stderr.split())
    assert "note: level fast of profile embedded is unproven" in text
    text = call("chat", "--profile", leveled, "--level", "fast", lines="one?\n").stderr
    assert "level fast of profile embedded is unproven" in " ".join(text.split())


def test_a_chat_keeps_its_level_when_the_policy_changes(
    monkeypatch: pytest.MonkeyPatch, leveled: str
) -> None:
    stage(monkeypatch, PLAIN)
    lines = "/policy\n/policy large\n/policy margin\n/policy relay\n"
    said = call("chat", "--profile", leveled, "--level", "fast", lines=lines).stderr
    named = [line.split()[1] for line in said.splitlines() if line.startswith("policy ")]
    assert named == ["margin", "large", "margin", "margin"]
    said = call("chat", "--profile", leveled, lines="/policy margin\n").stderr
    assert "margin:0.9:0.3, or a level of the profile: fast" in said


@pytest.mark.parametrize("command", ["run", "chat", "serve"])
def test_no_such_level(command: str, leveled: str) -> None:
    for profile, says in ((leveled, "levels: careful, fast"), ("embedded", "it has no levels")):
        result = call(command, "--profile", profile, "--level", "nope", lines="?")
        assert result.exit_code == 2
        (line,) = [line for line in result.stderr.splitlines() if "nope" in line]
        assert says in line
    result = call(command, "--profile", leveled, "--level", "fast", "--policy", "large", lines="?")
    assert result.exit_code == 2
    assert "policy large has no levels" in result.stderr


def test_show_tells_the_levels(leveled: str) -> None:
    lines = call("profile", "show", leveled).stdout.splitlines()
    (careful,) = [line for line in lines if line.startswith("careful")]
    (fast,) = [line for line in lines if line.startswith("fast")]
    assert careful.split(maxsplit=2)[:2] == ["careful", "(1)"]
    assert careful.split(maxsplit=2)[2].rstrip() == "utilization 85 %; Thus"
    assert fast.split(maxsplit=2)[2].rstrip() == (
        "policy margin, margins 0.8 and 0.3; unproven; So  “Thus,”"
    )
    assert "careful (" not in call("profile", "show", "embedded").stdout


def test_validate_names_a_bad_level(tmp_path: Path, leveled: str) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(Path(leveled).read_text("utf-8").replace("stay = 0.8", "stay = 0.1"), "utf-8")
    result = call("profile", "validate", leveled, str(bad))
    assert result.stdout.splitlines() == [
        f"{leveled}: ok",
        f"{bad}: levels.fast.stay: must not be below leave",
    ]
