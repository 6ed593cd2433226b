"""docs/reference/ is what scripts/reference.py writes from the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import relaygen
from relaygen import Profile
from relaygen.cli import COMMANDS

from .scripts import loaded


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with loaded("scripts/reference.py") as module:
        yield module


@pytest.fixture(scope="module")
def pages(script: ModuleType) -> dict[str, str]:
    written: dict[str, str] = script.reference()
    return written


def test_no_page_is_stale(script: ModuleType, pages: dict[str, str]) -> None:
    assert not script.stale(pages), "run: python scripts/reference.py"


def test_a_stale_page_is_told(script: ModuleType, pages: dict[str, str], tmp_path: Path) -> None:
    for name, text in pages.items():
        (tmp_path / name).write_text(text.replace("--large MODEL", "--huge MODEL"))
    (told,) = script.stale(pages, tmp_path)
    assert told.startswith("docs/reference/cli.md is stale:")
    assert "-  --huge MODEL" in told
    assert "+  --large MODEL" in told


def test_a_page_too_many_is_told(script: ModuleType, pages: dict[str, str], tmp_path: Path) -> None:
    for name, text in {**pages, "old.md": "old"}.items():
        (tmp_path / name).write_text(text)
    assert script.stale(pages, tmp_path) == ["docs/reference/old.md is written by nothing"]


def test_the_check_fails_with_what_to_do(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reference"
    assert script.run(check=True, folder=folder) == 1
    assert capsys.readouterr().err.endswith("run: python scripts/reference.py\n")
    assert script.run(check=False, folder=folder) == script.run(check=True, folder=folder) == 0
    assert capsys.readouterr().err == ""


def test_every_command_is_there(pages: dict[str, str]) -> None:
    for name in COMMANDS:
        assert f"\n## relaygen {name}\n" in pages["cli.md"]
    assert "\n## relaygen profile show\n" in pages["cli.md"]
    in_help = pages["cli.md"].split("```")[1::2]
    assert all(len(line) <= 80 for help in in_help for line in help.splitlines())


def test_every_entry_of_a_profile_is_there(pages: dict[str, str]) -> None:
    for field in dataclasses.fields(Profile):
        assert f"\n| `{field.name}` |" in pages["configuration.md"]


def test_what_the_server_reads_is_there(pages: dict[str, str]) -> None:
    for words in (
        "| `max-queue` | whole number | `256` | `RELAYGEN_SERVE_MAX_QUEUE` |",
        "| `pause` | `auto`, `off` |  | `RELAYGEN_SERVE_PAUSE` |",
        "| `strict` | true or false |  | `RELAYGEN_SERVE_STRICT` |",
        "| `cors-origin` | list: text |  | `RELAYGEN_SERVE_CORS_ORIGIN` |",
        "| `RELAYGEN_HOME` |",
    ):
        assert f"\n{words}" in pages["configuration.md"]


def test_a_variable_that_nobody_described_stops_it(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: text for name, text in script.ENVIRONMENT.items() if name != "RELAYGEN_HOME"}
    monkeypatch.setattr(script, "ENVIRONMENT", known)
    with pytest.raises(SystemExit, match="RELAYGEN_HOME is not in ENVIRONMENT"):
        script.check_environment()


def test_every_public_name_is_there(pages: dict[str, str]) -> None:
    for name in relaygen.__all__:
        assert name.startswith("_") or f"\n### {name}\n" in pages["python.md"]
    for words in (
        "`RandomPolicy(share: float)`",
        "`generate(question: Question, **options: Any) -> Generation`",
        "`Stay(held: int = 0)`",
        "*, num_runs: int = 3,",
    ):
        assert words in pages["python.md"]


def test_signatures_as_they_are_written(script: ModuleType) -> None:
    def called(a: int, *, b: str = "x", **rest: float) -> str:
        return ""

    assert script.signature(called) == "(a: int, *, b: str = 'x', **rest: float) -> str"
    assert script.signature(relaygen.UsageError) == script.signature(relaygen.Engine) == ""


def test_the_terminal_makes_no_difference(
    script: ModuleType, pages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("RELAYGEN_SERVE_PORT", "9")
    assert script.reference() == pages
