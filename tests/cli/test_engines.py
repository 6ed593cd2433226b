"""``relaygen engines``."""

from __future__ import annotations

import json
import shlex

from click.testing import CliRunner, Result

from relaygen.cli import main
from relaygen.launch import commands, pair

PAIR = ("--pair", "qwen3-32b+1.7b")


def split(text: str) -> list[str]:
    return shlex.split(text.replace("\\\n", ""), comments=True)


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["engines", *args])


def test_what_is_printed_runs_in_a_shell() -> None:
    result = call(*PAIR, "--spec", "eagle3", "--context", "5000")
    assert result.exit_code == 0
    made = commands(
        pair("qwen3-32b+1.7b"), "vllm", {"large": "eagle3", "small": "none"}, context=5000
    )
    large, small, relay = result.stdout.split("\n\n")
    assert split(large) == split(made["large"].text)
    assert split(small) == split(made["small"].text)
    assert split(relay)[:2] == ["relaygen", "serve"]
    assert "# note: " in relay


def test_as_json() -> None:
    made = json.loads(call("--pair", "embedded", "--small-spec", "ngram", "--json").stdout)
    assert (made["pair"], made["engine"]) == ("embedded", "llama-server")
    assert made["speculation"] == {"large": "none", "small": "ngram"}
    assert made["large"]["argv"][0] == made["small"]["argv"][0] == "llama-server"
    assert made["relay"]["argv"][:2] == ["relaygen", "serve"]
    assert "ngram-simple" in made["small"]["argv"]
    assert "ngram-simple" not in made["large"]["argv"]
    assert made["large"]["env"] == {"CUDA_VISIBLE_DEVICES": "0"}
    assert len(made["notes"]) == 1


def test_the_engine_can_be_chosen() -> None:
    assert "sglang.launch_server" in call(*PAIR, "--engine", "sglang").stdout


def test_what_a_pair_cannot_do_is_refused_with_the_reason() -> None:
    result = call(*PAIR, "--spec", "mtp")
    assert result.exit_code == 2
    assert "has no mtp on vllm: it has no layers that predict several tokens" in result.stderr
    assert result.stdout == ""


def test_an_unknown_pair() -> None:
    assert call("--pair", "gpt").exit_code == 2
