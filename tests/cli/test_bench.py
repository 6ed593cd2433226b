"""``relaygen bench``: what it prints, keeps and refuses, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relaygen._api import Relay
from relaygen.cli import _options, main
from relaygen.engines.scripted import ScriptedEngine
from tests.support import THINKING

FAST = ("--large-ms", "2", "--small-ms", "1", "--tokens", "80")


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["bench", *args])


def test_a_sweep_is_a_table_and_lines_of_json(tmp_path: Path) -> None:
    out = tmp_path / "bench.jsonl"
    out.write_text('{"kind": "older"}\n')
    result = call("--sweep", "streams", "--streams", "1,2", *FAST, "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "1 of 1 texts whole" in result.stdout
    assert "2 of 2 texts whole" in result.stdout
    assert "of the ceiling (slowest " in result.stdout
    assert "length of the prompt" not in result.stdout
    assert "measuring: 5 of 5" in result.stderr
    older, *records = map(json.loads, out.read_text().splitlines())
    assert older == {"kind": "older"}
    assert [(r["streams"], r["whole"], r["tokens"]) for r in records] == [(1, 1, 80), (2, 2, 80)]


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "bench.jsonl"
    args = ["--sweep", "streams", "--streams", "1,2,3,4,5,6,7,8,9", *FAST, "--out", str(out)]
    command = [sys.executable, "-m", "relaygen", "bench", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out.exists() and out.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "stopped; what was measured is in" in stderr
    assert "Traceback" not in stderr
    assert "1 of 1 texts whole" in stdout
    assert json.loads(out.read_text().splitlines()[0])["streams"] == 1


def test_live_compares_the_arms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def opened(pair: object, profile: object, policy: object) -> Relay:
        engines = ScriptedEngine(THINKING), ScriptedEngine(THINKING)
        return Relay(*engines, profile=profile, policy=policy)  # type: ignore[arg-type]

    monkeypatch.setattr(_options, "open_relay", opened)
    out = tmp_path / "live.jsonl"
    args = ("--profile", "qwen3-32b+1.7b", "--runs", "1", "--question", "How?")
    result = call("--live", *args, "--out", str(out))
    assert result.exit_code == 0, result.output
    kinds = [json.loads(line)["kind"] for line in out.read_text().splitlines()]
    assert kinds == ["answer", "answer", "live"]
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["large", "relay"]
    assert "ms per token" in result.stdout
    assert "answers agree" in result.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--live", "--tokens", "100"), "--tokens is for mock engines"),
        (("--large", "http://x:1"), "--large is for --live"),
        (("--runs", "2"), "--runs is for --live"),
        (("--live", "--policy", "large"), "one model alone"),
        (("--whole", "--tokens", "100"), "different things"),
        (("--tokens", "10"), "at least"),
        (("--trace", "none-such"), "cannot read the trace"),
        (("--out", "no/such/folder/file"), "cannot write"),
        (("--streams", "1,0"), "0 is not in the range"),
        (("--handoffs", "ten"), "not a valid float"),
    ],
)
def test_what_makes_no_sense_is_refused(args: tuple[str, ...], said: str) -> None:
    result = call(*args)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
