from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from relaygen._errors import ChecksumError
from relaygen.cli import _progress, main
from relaygen.cli import models as command
from relaygen.models import (
    CATALOGUE,
    EMBEDDED_LARGE,
    EMBEDDED_SMALL,
    EmbeddedModel,
    FetchProgress,
    ProgressEvent,
    Store,
)


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RELAYGEN_HOME", str(tmp_path))


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["models", *args])


def place(model: EmbeddedModel) -> Path:
    path = Store.default().path(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(model.size)  # sparse
    return path


def test_list_says_what_is_here_and_what_is_not() -> None:
    path = place(EMBEDDED_SMALL)
    result = call("list")
    assert result.exit_code == 0
    heading, large, small = result.stdout.splitlines()
    assert heading.split() == ["name", "role", "size", "licence", "where"]
    words = [EMBEDDED_LARGE.name, "large", "1.12", "GB", "Apache-2.0", "not", "downloaded"]
    assert large.split() == words
    assert small.split() == [EMBEDDED_SMALL.name, "small", "491", "MB", "Apache-2.0", str(path)]


def test_list_as_json() -> None:
    path = place(EMBEDDED_LARGE)
    large, small = json.loads(call("list", "--json").stdout)
    assert large["path"] == str(path)
    assert small["path"] is None
    assert [large["name"], small["name"]] == [model.name for model in CATALOGUE]
    assert small["sha256"] == EMBEDDED_SMALL.sha256
    assert small["size"] == EMBEDDED_SMALL.size


def test_path_prints_the_path_alone() -> None:
    path = place(EMBEDDED_LARGE)
    result = call("path", EMBEDDED_LARGE.name)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{path}\n", "")


def test_path_of_what_is_not_here() -> None:
    result = call("path", EMBEDDED_LARGE.name)
    assert (result.exit_code, result.stdout) == (4, "")
    assert (
        result.stderr.splitlines()[1]
        == f"hint: fetch it with: relaygen models pull {EMBEDDED_LARGE.name}"
    )


class Pull:
    """Takes the place of the real pull; remembers its arguments, reports as told."""

    def __init__(self, *events: ProgressEvent, error: BaseException | None = None) -> None:
        self.events = events
        self.error = error
        self.calls: list[tuple[str, bool, bool]] = []

    def __call__(
        self, model: EmbeddedModel, *, mirror: bool, verify: bool, progress: FetchProgress
    ) -> Path:
        self.calls.append((model.name, mirror, verify))
        for event in self.events:
            progress(event)
        if self.error:
            raise self.error
        return Path("/models") / model.file


@pytest.mark.parametrize(
    ("args", "calls"),
    [
        ([], [(EMBEDDED_LARGE.name, True, False), (EMBEDDED_SMALL.name, True, False)]),
        ([EMBEDDED_SMALL.name], [(EMBEDDED_SMALL.name, True, False)]),
        ([EMBEDDED_SMALL.name.upper(), "--no-mirror"], [(EMBEDDED_SMALL.name, False, False)]),
        ([EMBEDDED_LARGE.name, "--verify"], [(EMBEDDED_LARGE.name, True, True)]),
    ],
)
def test_pull_takes_both_or_the_named(
    args: list[str], calls: list[tuple[str, bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = Pull()
    monkeypatch.setattr(command, "pull", pull)
    result = call("pull", *args)
    assert result.exit_code == 0
    assert pull.calls == calls
    paths = [
        f"/models/{model.file}"
        for model in CATALOGUE
        if model.name in dict.fromkeys(c[0] for c in calls)
    ]
    assert [line.split()[-1] for line in result.stdout.splitlines()] == paths


def test_pull_of_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pull = Pull()
    monkeypatch.setattr(command, "pull", pull)
    assert call("pull", "gpt-9").exit_code == 2
    assert pull.calls == []


def test_pull_without_a_terminal_writes_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        ProgressEvent("m", "mirror", note="using [packages]"),
        ProgressEvent("m", "mirror", 0, 2 * 10**9),
        ProgressEvent("m", "mirror", 10**9, 2 * 10**9),
        ProgressEvent("m", "join", 10**9, 2 * 10**9),
    ]
    monkeypatch.setattr(command, "pull", Pull(*events))
    result = call("pull", EMBEDDED_LARGE.name)
    assert result.stderr.splitlines() == [
        "m: using [packages]",
        "m: fetching packages: 0 B of 2.00 GB (0 %)",
        "m: joining: 1.00 GB of 2.00 GB (50 %)",
    ]


def test_an_interrupted_pull_says_that_it_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "pull", Pull(error=KeyboardInterrupt()))
    result = call("pull")
    assert result.exit_code == 130
    assert result.stderr == "stopped; run the same command again to resume\n"


def test_a_failed_pull_has_the_status_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pull = Pull(error=ChecksumError("wrong bytes"))
    monkeypatch.setattr(command, "pull", pull)
    result = call("pull")
    assert result.exit_code == 4
    assert result.stderr == "error: wrong bytes\n"
    assert len(pull.calls) == 1


def test_plain_lines_are_seconds_apart() -> None:
    lines: list[str] = []
    now = [100.0]
    progress = _progress.PlainProgress(lines.append, clock=lambda: now[0])
    for second in range(12):
        now[0] = 100.0 + second
        progress(ProgressEvent("m", "hub", second * 10**6, 0))
    assert lines == ["m: fetching: 0 B", "m: fetching: 5 MB", "m: fetching: 10 MB"]


def screen(width: int, monkeypatch: pytest.MonkeyPatch, *, colour: bool = True) -> str:
    """What a terminal of that width is sent."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, width=width, color_system="standard", highlight=False,
        legacy_windows=False,
    )  # fmt: skip
    with _progress._bars(console) as progress:
        progress(ProgressEvent("t[b]", "hub", note="about [packages]"))
        progress(ProgressEvent("t[b]", "hub", 250_000_000, 10**9))
        progress(ProgressEvent("t[b]", "hub", 500_000_000, 10**9))
        progress(ProgressEvent("t[b]", "verify", 800_000_000, 10**9))
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_the_bar_fits_its_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen(width, monkeypatch))
    lines = text.replace("\r", "\n").splitlines()
    assert max(len(line) for line in lines) <= width
    assert "about [packages]" in " ".join(text.split())
    assert "80%" in text


def test_a_wide_terminal_shows_bytes_and_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen(120, monkeypatch))
    assert "t[b]: checking" in text
    assert "fetching" not in text[text.index("checking") :]  # one bar at a time
    assert "0.8/1.0 GB" in text


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    colours = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert colours.search(screen(120, monkeypatch))
    assert not colours.search(screen(120, monkeypatch, colour=False))
