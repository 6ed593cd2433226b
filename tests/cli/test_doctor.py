"""``relaygen doctor``: its report at any width, its document, its exit status, Ctrl-C."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from relaygen import Relay
from relaygen._checks import Finding
from relaygen._profile import Profile
from relaygen.cli import _options, main
from relaygen.cli._doctor_table import lines, show_report
from relaygen.cli._options import PairOptions
from relaygen.doctor import Report
from relaygen.mock import MockConfig, serving
from relaygen.policies import Policy
from tests.cli.playing import environment
from tests.doctor.support import LARGE, SMALL, TAGS, Caching

NOBODY = ("--large", "http://127.0.0.1:9", "--small", "http://127.0.0.1:10")


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *args])


def on_mocks(*args: str, small: dict[str, Any] | None = None, **large: Any) -> Result:
    configs = MockConfig(**{**LARGE, **large}), MockConfig(**{**SMALL, **(small or {})})
    with serving(configs[0]) as one, serving(configs[1]) as two:
        return call("--large", one, "--small", two, "--profile", TAGS, *args)


# Reports.


def test_sections_marks_remedies_and_the_verdict_last() -> None:
    result = on_mocks("--quick", small={"processed_logprobs": True, "kv_tokens": 0})
    told = result.stdout.splitlines()
    assert told[0] == f"profile {TAGS}, policy relay"
    titles = [line for line in told if re.fullmatch(r"[A-Z][a-z ]+", line)]
    assert titles[:5] == ["Engines", "Pair", "Prefix caches", "Speed", "Gain"]
    place = told.index("  ! small prefix cache off: every hand-off computes the whole text again")
    assert told[place + 1] == "          → start vLLM with --enable-prefix-caching"
    assert "  ✓ large its log-probabilities are the model's own" in told
    (verdict,) = [number for number, line in enumerate(told) if line.startswith("Verdict: ")]
    assert verdict > place
    assert any(re.match(r"  1\.  ?\S", line) for line in told[verdict:])


def test_the_document() -> None:
    result = on_mocks("--quick", "--json")
    document = json.loads(result.stdout)
    assert document["form"] == "relaygen doctor 1"
    assert document["status"] == result.exit_code
    assert document["engines"]["small"]["kind"] == "vllm"
    assert document["engines"]["large"]["rollback"]["cost"] == "free"
    assert document["complete"] is document["quick"] is True
    assert result.stderr.splitlines()[-1] == "examining: 11 of 11"


def test_errors_are_status_1() -> None:
    result = on_mocks("--quick", template="plain", small={"template": "plain"})
    assert result.exit_code == 1
    assert "  ✗ large no thinking takes place" in result.stdout


def test_nobody_answers() -> None:
    result = call(*NOBODY)
    assert result.exit_code == 5
    assert "Verdict: cannot tell" in result.stdout
    assert json.loads(call(*NOBODY, "--json").stdout)["status"] == 5


def test_the_servers_keys_and_names_are_options(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    locked = {"api_key": "secret", "model": "m"}
    small = {"api_key": "secret"}
    assert on_mocks("--quick", small=small, **locked).exit_code == 5
    keys = ("--large-key-file", str(key), "--small-key-file", str(key), "--large-model", "m")
    result = on_mocks("--quick", "--json", *keys, small=small, **locked)
    assert json.loads(result.stdout)["complete"] is True


def test_without_models_the_embedded_pair_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PairOptions] = []

    def open_relay(pair: PairOptions, profile: Profile, policy: Policy) -> Relay:
        asked.append(pair)
        return Relay(Caching(), Caching(), profile=profile, policy=policy)

    monkeypatch.setattr(_options, "open_relay", open_relay)
    result = call("--quick", "--level", "fast", "--profile", "embedded-calibrated")
    assert asked[0].large is asked[0].small is None
    assert result.stdout.splitlines()[0].endswith("level fast")


def test_calls_that_make_no_sense() -> None:
    assert call(*NOBODY, "--policy", "large").exit_code == 2
    assert call(*NOBODY, "--profile", "nobody's").exit_code == 2


def test_ctrl_c_says_what_was_found_until_then() -> None:
    slow: dict[str, Any] = {"trace": "long", "token_ms": 10.0}
    with serving(MockConfig(**slow)) as one, serving(MockConfig(**{**slow, "token_ms": 1})) as two:
        args = ["doctor", "--large", one, "--small", two, "--profile", TAGS]
        process = subprocess.Popen(
            [sys.executable, "-m", "relaygen", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        try:
            assert process.stderr is not None
            while not process.stderr.readline().startswith("answering: 0 of 3"):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted: this is what was found until then" in err
    assert "equal vocabularies" in out
    assert "Verdict: cannot tell" in out


OWN = """
from relaygen.engines.scripted import ScriptedEngine

class Broken(ScriptedEngine):
    async def stream(self, request):
        raise ZeroDivisionError("by nothing")
        yield

def working(role):
    return ScriptedEngine(free=lambda text: " yes")
"""


def test_an_engine_of_ones_own_may_raise_what_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owned.py").write_text(OWN, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = call("--large", "owned:working", "--small", "owned:Broken", "--quick", "--json")
    assert result.exit_code == 5
    document = json.loads(result.stdout)
    told = [each for each in document["findings"] if each["level"] == "error"]
    said = "failed: its stream raised ZeroDivisionError: by nothing (owned.py, line 6)"
    assert (told[0]["text"], told[0]["hint"]) == (said, "mend it there")
    assert {each["role"] for each in told} == {"small"}
    assert document["engines"]["large"]["rollback"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_without_the_letters_of_a_cue(encoding: str) -> None:
    findings = [Finding("note", "", "never fired: '所以', 'Così'", check="cues")]
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with redirect_stdout(out):
        show_report(Report("p", "relay", findings=findings, complete=True))
        out.flush()
    told = out.buffer.getvalue().decode(encoding)
    assert ("'所以'" if encoding == "utf-8" else "'??'") in told
    assert ("'Cos?'" if encoding == "ascii" else "'Così'") in told


# Lines.

WORDS = st.text(st.characters(codec="utf-8"), max_size=200)
LEVELS = st.sampled_from(["ok", "note", "warning", "error", "against"])
CHECKS = st.sampled_from(["reachable", "templates", "rollback", "speed", "cues", "gain", "length"])
FINDINGS = st.builds(Finding, LEVELS, st.sampled_from(["large", "small", ""]), WORDS, WORDS, CHECKS)


@given(st.lists(FINDINGS, max_size=6), st.integers(40, 130), WORDS)
def test_no_line_is_wider_than_asked(findings: list[Finding], width: int, name: str) -> None:
    report = Report(name, "relay", findings=findings, complete=True)
    told = [line.plain for line in lines(report, width=width)]
    assert max(map(len, told)) <= width
    assert all(char.isprintable() for line in told for char in line)
    assert any(line.startswith("Verdict: ") for line in told)


def test_every_finding_is_shown_once() -> None:
    checks = (
        *("reachable", "capabilities", "context", "margins", "vocabularies", "templates"),
        *("thinking", "prefix-cache", "rollback", "speed", "sample", "cues", "answers"),
        *("gain", "length"),
    )
    findings = [Finding("note", "", f"about {check}", check=check) for check in checks]
    told = [line.plain for line in lines(Report("p", "relay", findings=findings), width=80)]
    assert sorted(line for line in told if line.startswith("  ·")) == sorted(
        f"  ·       about {check}" for check in checks
    )


def test_marks_differ_without_colour_and_have_ascii_forms() -> None:
    levels: list[Any] = ["ok", "note", "warning", "error"]
    findings = [Finding(level, "large", "x", "do", "speed") for level in levels]
    report = Report("p", "relay", findings=findings, complete=True)
    told = [line.plain for line in lines(report, width=80, plain=True)]
    assert [line[2] for line in told if line.endswith("large x")] == ["+", "-", "!", "x"]
    assert "          -> do" in told
    assert all(line.isascii() for line in told)
    rich = [line.plain[2] for line in lines(report, width=80) if line.plain.endswith("large x")]
    assert len(set(rich)) == 4
