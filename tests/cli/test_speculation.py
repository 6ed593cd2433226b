"""``--spec`` and ``--small-spec`` where a pair is opened."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from relaygen.cli import main

from .playing import PLAIN, stage

URL = "http://127.0.0.1:9"


def test_the_options_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    played = stage(monkeypatch, PLAIN)
    for args, expected in (
        ((), (None, None)),
        (("--spec", "draft", "--small-spec", "ngram"), ("draft", "ngram")),
    ):
        assert CliRunner().invoke(main, ["run", *args, "?"]).exit_code == 0
        assert (played.asked[-1].spec, played.asked[-1].small_spec) == expected


@pytest.mark.parametrize("command", ["run", "chat", "serve"])
@pytest.mark.parametrize(
    ("url", "spec"), [("--large", "--spec"), ("--small", "--small-spec")], ids=["large", "small"]
)
def test_servers_are_refused_before_anything_starts(command: str, url: str, spec: str) -> None:
    args = [command, url, URL, spec, "ngram", *(["?"] if command == "run" else [])]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 2
    assert f"the {url[2:]} engine is a server" in result.stderr
    assert "relaygen engines" in result.stderr


def test_no_model_is_smaller_than_the_small_one() -> None:
    assert CliRunner().invoke(main, ["run", "--small-spec", "draft", "?"]).exit_code == 2
