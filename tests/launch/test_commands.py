"""Launch commands: what is known of pairs, and every flag."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import product

import pytest

from relaygen import UsageError
from relaygen._types import Role
from relaygen.launch import (
    ENGINES,
    SPECS,
    Command,
    KnownPair,
    commands,
    pair,
    pairs,
    relay_command,
    remarks,
)
from relaygen.launch._pairs import EngineName, Spec
from relaygen.profiles import load

QWEN, R1 = "qwen3-32b+1.7b", "r1-distill-32b+1.5b"


def both(large: Spec = "none", small: Spec = "none") -> dict[Role, Spec]:
    return {"large": large, "small": small}


def after(command: Command, flag: str) -> str:
    assert command.argv.count(flag) == 1
    return command.argv[command.argv.index(flag) + 1]


def config(command: Command) -> dict[str, object]:
    found: dict[str, object] = json.loads(after(command, "--speculative-config"))
    return found


def everything() -> Iterator[tuple[KnownPair, EngineName, Role, Spec]]:
    roles: tuple[Role, ...] = ("large", "small")
    return product(pairs().values(), ENGINES, roles, SPECS)


def test_known_pairs_are_profiles_with_the_same_models() -> None:
    assert set(pairs()) == {"embedded", QWEN, R1}
    for name, known in pairs().items():
        profile = load(name)
        for given, served in ((profile.large, known.large), (profile.small, known.small)):
            assert given.removesuffix("-GGUF") == served.model
            assert ":" in served.gguf


def test_everything_is_a_command_or_a_reason() -> None:
    for known, engine, role, spec in everything():
        specs = {**both(), role: spec}
        served = known.large if role == "large" else known.small
        if served.speculates(spec, engine) or spec == "none":
            made = commands(known, engine, specs)[role]
            assert shlex.split(made.text.replace("\\\n", "")) == [
                *(f"{name}={value}" for name, value in made.env.items()),
                *made.argv,
            ]
            drafted = [each for each in made.argv if "spec" in each]
            assert bool(drafted) == (spec != "none"), (known.name, engine, spec)
        else:
            with pytest.raises(
                UsageError, match=f"{served.model} has no {spec} on {engine}: ."
            ) as e:
                commands(known, engine, specs)
            assert "ngram" in e.value.hint


def test_an_unknown_pair() -> None:
    with pytest.raises(UsageError, match="'x'") as caught:
        pair("x")
    assert QWEN in caught.value.hint


@pytest.mark.parametrize("engine", ENGINES)
def test_models_ports_devices_and_contexts(engine: EngineName) -> None:
    known = pair(QWEN)
    for context in (None, 1000):
        size = context or known.context
        made = commands(known, engine, both(), context=context)
        for number, role in enumerate(made):
            command = made[role]
            served = known.large if role == "large" else known.small
            assert command.env["CUDA_VISIBLE_DEVICES"] == str(number)
            assert after(command, "--port") == ("8001", "8002")[number]
            name = served.gguf if engine == "llama-server" else served.model
            assert name in command.argv
            expected = {"vllm": size, "sglang": size, "llama-server": 4 * size}[engine]
            flag = {"vllm": "--max-model-len", "sglang": "--context-length", "llama-server": "-c"}
            assert after(command, flag[engine]) == str(expected)
            raw = command.env.get("SGLANG_RETURN_ORIGINAL_LOGPROB")
            assert raw == ("1" if engine == "sglang" else None)


def test_vllm() -> None:
    made = commands(pair(QWEN), "vllm", both("eagle3", "draft"))
    assert config(made["large"]) == {
        "method": "eagle3",
        "model": "RedHatAI/Qwen3-32B-speculator.eagle3",
        "num_speculative_tokens": 3,
    }
    assert config(made["small"]) == {
        "method": "draft_model",
        "model": "Qwen/Qwen3-0.6B",
        "num_speculative_tokens": 4,
    }
    for command in made.values():
        assert after(command, "--logprobs-mode") == "raw_logprobs"
        assert after(command, "--per-request-spec-decode-metrics") == "summary"
        assert "--enable-prefix-caching" in command.argv
        assert "--enable-prompt-tokens-details" in command.argv
    plain, ngram = (commands(pair(QWEN), "vllm", both("none", "ngram"))[r] for r in made)
    assert "--per-request-spec-decode-metrics" not in plain.argv
    assert config(ngram) == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }


def test_vllm_is_told_of_vocabularies_that_differ_in_their_padding() -> None:
    assert config(commands(pair(R1), "vllm", both("draft"))["large"]) == {
        "method": "draft_model",
        "model": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        "num_speculative_tokens": 4,
        "use_heterogeneous_vocab": True,
    }


def test_sglang() -> None:
    made = commands(pair(QWEN), "sglang", both("eagle3", "draft"))
    names = {
        "large": ("EAGLE3", "AngelSlim/Qwen3-32B_eagle3"),
        "small": ("STANDALONE", "Qwen/Qwen3-0.6B"),
    }
    for role, command in made.items():
        algorithm, drafter = names[role]
        assert after(command, "--speculative-algorithm") == algorithm
        assert after(command, "--speculative-draft-model-path") == drafter
        numbers = [
            after(command, f"--speculative-{each}")
            for each in ("num-steps", "eagle-topk", "num-draft-tokens")
        ]
        assert numbers == ["3", "1", "4"]
    ngram = commands(pair(QWEN), "sglang", both("ngram"))["large"]
    assert after(ngram, "--speculative-algorithm") == "NGRAM"
    assert "--speculative-draft-model-path" not in ngram.argv


def test_llama_server() -> None:
    made = commands(pair(R1), "llama-server", both("draft", "ngram"))
    large, small = made["large"], made["small"]
    assert after(large, "--spec-type") == "draft-simple"
    assert after(large, "--spec-draft-hf") == "bartowski/DeepSeek-R1-Distill-Qwen-1.5B-GGUF:Q8_0"
    assert after(large, "--spec-draft-n-max") == "3"
    assert after(small, "--spec-type") == "ngram-simple"
    assert after(small, "--spec-ngram-simple-size-n") == "6"
    assert after(small, "--spec-ngram-simple-size-m") == "8"


def test_the_relay_over_them() -> None:
    assert relay_command(pair(QWEN)).argv == (
        "relaygen", "serve", "--large", "http://127.0.0.1:8001",
        "--small", "http://127.0.0.1:8002", "--profile", QWEN,
    )  # fmt: skip


def test_remarks() -> None:
    assert remarks("vllm", both()) == remarks("llama-server", both()) == []
    assert any("min_p" in each for each in remarks("vllm", both("none", "ngram")))
    assert any("margins" in each for each in remarks("llama-server", both("draft")))
    assert any("experimental" in each for each in remarks("sglang", both()))
    assert not any("CUDA" in each for each in remarks("sglang", both("draft")))
    assert any("CUDA" in each for each in remarks("sglang", both("ngram")))
