"""``relaygen mock-engine`` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import fields

import httpx
from click.testing import CliRunner

from relaygen.cli import main
from relaygen.mock import FAILURE_KINDS, Failure

from .support import HEAD, TRACE, body, engine


def test_it_serves_until_it_is_stopped() -> None:
    command = [sys.executable, "-m", "relaygen", "mock-engine", "--port", "0", "--trace", "short"]
    command += ["--token-ms", "0", "--prefill-ms", "0", "--fail", "end:4", "--regroup", "3"]
    command += ["--served-model-name", "m", "--hide-cached", "--context", "5000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("mock engine at http://127.0.0.1:")
            url = line.split()[-1]
            with httpx.Client(base_url=url, trust_env=False, timeout=20) as http:
                assert http.get("/v1/models").json()["data"][0]["max_model_len"] == 5000
                broken, whole = (
                    http.post("/v1/completions", json=body(HEAD, model="m")).json() for _ in "ab"
                )
            assert len(broken["choices"][0]["token_ids"]) == 4
            assert whole["choices"][0]["text"] == TRACE.text
            assert whole["usage"]["prompt_tokens_details"] is None
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(20)
    assert code in (0, 130)


def test_its_help_has_the_body_of_a_failure_and_every_kind() -> None:
    shown = CliRunner().invoke(main, ["mock-engine", "--help"], terminal_width=80).output
    text = " ".join(shown.split())
    body = text.partition("/mock/failures plans failures while it runs: ")[2].partition(", or")[0]
    with engine() as mock:
        mock.post("/mock/failures", json.loads(body))
        (planned,) = mock.get("/mock/failures")
    assert (planned["kind"], planned["token"]) == ("reset", 10)
    for name in {field.name for field in fields(Failure)} - {"kind", "token"}:
        assert f"{name} (" in text.partition("Further fields")[2]
    for kind, what in FAILURE_KINDS.items():
        assert f"{kind} {what}" in text


def test_what_makes_no_sense() -> None:
    run = CliRunner().invoke
    for arguments, told in (
        (["--fail", "fire"], "there is no failure 'fire'"),
        (["--trace", "nothing"], "cannot read the trace"),
        (["--jitter", "2"], "--jitter"),
        (["--burst", "0"], "--burst"),
    ):
        result = run(main, ["mock-engine", "--port", "0", *arguments])
        assert result.exit_code == 2
        assert told in result.output
