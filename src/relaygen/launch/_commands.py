"""The commands. Flags of vLLM 0.32, SGLang 0.5.23 and llama.cpp b11549."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._types import ROLES, Role
from ._pairs import EngineName, KnownPair, Served, Spec

PORTS: Mapping[Role, int] = {"large": 8001, "small": 8002}
"""Where the commands put the servers."""

_SLOTS = 4
_EAGLE_TOKENS, _DRAFT_TOKENS, _NGRAM_TOKENS = 3, 4, 5
_LLAMA_DRAFT, _LLAMA_NGRAM, _LLAMA_LOOKUP = 3, 8, 6


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments.

    Attributes:
        argv: the program and each argument.
        env: what is set for it.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """For a POSIX shell; each flag on a line of its own."""
        lines = [" ".join(f"{name}={shlex.quote(value)}" for name, value in self.env.items())]
        for each in self.argv:
            if each.startswith("-"):
                lines.append(shlex.quote(each))
            else:
                lines[-1] = f"{lines[-1]} {shlex.quote(each)}".lstrip()
        return " \\\n  ".join(lines)


def commands(
    pair: KnownPair,
    engine: EngineName,
    specs: Mapping[Role, Spec],
    *,
    context: int | None = None,
) -> dict[Role, Command]:
    """What starts the pair's two servers, a GPU each.

    Args:
        pair: which.
        engine: the servers' kind.
        specs: how each model decodes.
        context: tokens of one conversation; None for the pair's own.

    Raises:
        UsageError: a model cannot be speculated so on this engine; the message says why.
    """
    made: dict[Role, Command] = {}
    for number, role in enumerate(ROLES):
        served = pair.large if role == "large" else pair.small
        spec, size = specs[role], context or pair.context
        drafter = served.drafter(spec, engine)
        if engine == "vllm":
            argv = _vllm(served, PORTS[role], size, spec, drafter)
        elif engine == "sglang":
            argv = _sglang(served, PORTS[role], size, spec, drafter)
        else:
            argv = _llama(served, PORTS[role], size, spec, drafter)
        env = {"CUDA_VISIBLE_DEVICES": str(number)}
        if engine == "sglang":
            env["SGLANG_RETURN_ORIGINAL_LOGPROB"] = "1"
        made[role] = Command(argv, env)
    return made


def _vllm(served: Served, port: int, context: int, spec: Spec, drafter: str) -> tuple[str, ...]:
    argv = [
        "vllm", "serve", served.model, "--port", str(port), "--max-model-len", str(context),
        "--enable-prefix-caching", "--enable-prompt-tokens-details",
        "--logprobs-mode", "raw_logprobs",
    ]  # fmt: skip
    if spec == "none":
        return tuple(argv)
    config: dict[str, Any]
    if spec == "ngram":
        config = {
            "method": "ngram",
            "num_speculative_tokens": _NGRAM_TOKENS,
            "prompt_lookup_min": 2,
            "prompt_lookup_max": 4,
        }
    elif spec == "draft":
        config = {
            "method": "draft_model",
            "model": drafter,
            "num_speculative_tokens": _DRAFT_TOKENS,
        }
        if served.draft_vocabulary != served.vocabulary:  # vLLM compares sizes, padding included
            config["use_heterogeneous_vocab"] = True
    else:
        config = {"method": spec, "model": drafter, "num_speculative_tokens": _EAGLE_TOKENS}
    argv += ["--speculative-config", json.dumps(config)]
    return (*argv, "--per-request-spec-decode-metrics", "summary")


def _sglang(served: Served, port: int, context: int, spec: Spec, drafter: str) -> tuple[str, ...]:
    argv = [
        "python3", "-m", "sglang.launch_server", "--model-path", served.model,
        "--port", str(port), "--context-length", str(context), "--enable-cache-report",
    ]  # fmt: skip
    if spec == "none":
        return tuple(argv)
    if spec == "ngram":
        argv += ["--speculative-algorithm", "NGRAM"]
        return (*argv, "--speculative-num-draft-tokens", str(_NGRAM_TOKENS))
    algorithm = "STANDALONE" if spec == "draft" else spec.upper()
    # All three or none of these numbers may be given; with one branch, one token more is verified.
    return (
        *argv,
        "--speculative-algorithm", algorithm, "--speculative-draft-model-path", drafter,
        "--speculative-num-steps", str(_EAGLE_TOKENS), "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", str(_EAGLE_TOKENS + 1),
    )  # fmt: skip


def _llama(served: Served, port: int, context: int, spec: Spec, drafter: str) -> tuple[str, ...]:
    argv = [
        "llama-server", "-hf", served.gguf, "--port", str(port), "-ngl", "99",
        "-c", str(context * _SLOTS), "-np", str(_SLOTS),
    ]  # fmt: skip
    if spec == "none":
        return tuple(argv)
    if spec == "ngram":
        return (
            *argv,
            "--spec-type", "ngram-simple",
            "--spec-ngram-simple-size-n", str(_LLAMA_LOOKUP),
            "--spec-ngram-simple-size-m", str(_LLAMA_NGRAM),
        )  # fmt: skip
    return (
        *argv,
        "--spec-type", "draft-simple", "--spec-draft-hf", drafter,
        "--spec-draft-n-max", str(_LLAMA_DRAFT), "--spec-draft-ngl", "99",
    )  # fmt: skip


def relay_command(pair: KnownPair) -> Command:
    """What serves the pair over those two servers."""
    argv = ["relaygen", "serve"]
    for role in ROLES:
        argv += [f"--{role}", f"http://127.0.0.1:{PORTS[role]}"]
    argv += ["--profile", pair.name]
    return Command(tuple(argv))


def remarks(engine: EngineName, specs: Mapping[Role, Spec]) -> list[str]:
    """What one should know of these commands, one line each."""
    speculating = any(spec != "none" for spec in specs.values())
    found = []
    if engine == "sglang":
        found.append(
            "relaygen's SGLang adapter is experimental: made from the source of 0.5.23, never run"
        )
        found.append("SGLang draws by a seed only with --enable-deterministic-inference")
        if "ngram" in specs.values():
            found.append("SGLang's NGRAM runs on CUDA only")
    if engine == "vllm" and speculating:
        found.append(
            "while it speculates vLLM refuses min_p and logit_bias, so policy no-wait cannot run"
        )
        found.append(
            "acceptance is told at a stream's end: requests that a hand-off aborts are missing"
        )
    if engine == "llama-server" and speculating:
        found.append(
            "llama-server gives no candidates of drafted tokens, so policies that read margins "
            "refuse this engine"
        )
    return found
