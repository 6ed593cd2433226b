from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relaygen.cli import main
from relaygen.profiles import load, names

GOOD = (
    'name = "mine"\ndescription = "for [b]tests[/b]"\nlarge = "l"\nsmall = "s"\n'
    'thinking = "none"\nanswer_role = "relay"\ncues = ["So", "Thus,"]\n'
    '[one_shot_groups]\nend = ["qed"]\n[provenance]\nsource = "here"\nnotes = ["one", "two"]\n'
)


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["profile", *args])


def narrow(monkeypatch: pytest.MonkeyPatch, *args: str) -> list[str]:
    """The lines of a command on a terminal of 40 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal then
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in call(*args).stdout.splitlines()]


def test_list_names_every_profile() -> None:
    result = call("list")
    assert result.exit_code == 0
    for name in names():
        profile = load(name)
        line = next(line for line in result.stdout.splitlines() if line.startswith(f"{name} "))
        assert profile.thinking in line
        assert f" {len(profile.cues)} " in line
        assert profile.large in line
        assert profile.description in line


def test_list_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = narrow(monkeypatch, "list")
    assert all(len(line.rstrip()) <= 40 for line in lines)
    for name in names():
        assert any(line.rstrip() == name for line in lines)
        assert any(f"{len(load(name).cues)} cues" in line for line in lines)


def test_list_as_json() -> None:
    rows = json.loads(call("list", "--json").stdout)
    assert [row["name"] for row in rows] == list(names())
    assert set(rows[0]) == {"name", "large", "small", "thinking", "cues", "description"}


@pytest.mark.parametrize("name", names())
def test_show_a_shipped_profile(name: str) -> None:
    result = call("show", name)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{name}\n{load(name).description}\n")
    for cue in load(name).cues:
        assert cue in result.stdout


def test_show_a_file_literally(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    text = call("show", str(path)).stdout
    assert "for [b]tests[/b]" in text
    assert "So  “Thus,”" in text
    assert "one-shot end" in text
    assert text.count("note ") == 2
    assert "prefill" not in text


def test_show_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = narrow(monkeypatch, "show", "qwen3-32b+1.7b")
    assert all(len(line.rstrip()) <= 40 for line in lines)


def test_show_the_file_as_it_is(tmp_path: Path) -> None:
    shipped = resources.files("relaygen.profiles") / "data" / "embedded.toml"
    assert call("show", "embedded", "--toml").stdout == shipped.read_text("utf-8")
    path = tmp_path / "mine.toml"
    path.write_text("# ünsound\n", "utf-8")
    assert call("show", str(path), "--toml").stdout == "# ünsound\n"


@pytest.mark.parametrize("more", [(), ("--toml",)])
def test_show_what_is_not_there(more: tuple[str, ...], tmp_path: Path) -> None:
    result = call("show", "nope", *more)
    assert result.exit_code == 2
    assert "no profile 'nope'" in result.stderr
    assert "embedded" in result.stderr
    assert call("show", str(tmp_path), *more).exit_code == 2


def test_validate_names_every_problem(tmp_path: Path) -> None:
    good, bad, broken = (tmp_path / f"{name}.toml" for name in ("good", "bad", "broken"))
    good.write_text(GOOD)
    bad.write_text(GOOD.replace('thinking = "none"', 'thinking = "maybe"\nextra = 1'))
    broken.write_text("= 1")
    result = call("validate", str(good), str(bad), str(broken), str(tmp_path / "gone.toml"))
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert lines[0] == f"{good}: ok"
    assert [line.partition(": ")[0] for line in lines[1:]] == [
        str(bad),
        str(bad),
        str(broken),
        str(tmp_path / "gone.toml"),
    ]
    assert any("thinking" in line for line in lines)
    assert any("extra: there is no such entry" in line for line in lines)
    assert "not TOML" in lines[3]


def test_validate_good_ones() -> None:
    result = call("validate", *names())
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"{name}: ok" for name in names()]
    assert call("validate").exit_code == 2
