"""Which flag of which server changes what: vLLM 0.32, SGLang 0.5.23, llama.cpp b11549.

The keys are those of `EngineInfo.kind`. A remedy is what its operator has to do.
"""

from __future__ import annotations

from collections.abc import Mapping

SHOW_CACHED: Mapping[str, str] = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
}
"""To see how many prompt tokens were cached."""

CACHE: Mapping[str, str] = {
    "vllm": "start vLLM with --enable-prefix-caching",
    "sglang": "start SGLang without --disable-radix-cache",
    "llama-server": "start llama-server without --no-cache-prompt",
}
"""To have a prefix cache."""

RAW: Mapping[str, str] = {
    "vllm": "start vLLM with --logprobs-mode raw_logprobs",
    "sglang": "set SGLANG_RETURN_ORIGINAL_LOGPROB=1 in SGLang's environment",
    "llama-server": "take a llama-server that answers n_probs with the model's own probabilities",
}
"""To get log-probabilities that do not follow the temperature."""

SPECULATION: Mapping[str, str] = {
    "vllm": "start vLLM without --speculative-config",
    "sglang": "start SGLang without --speculative-algorithm",
    "llama-server": "start llama-server without --spec-type and -md",
    "embedded": "leave --spec and --small-spec out",
}
"""To get candidates with every token."""

TEMPLATE: Mapping[str, str] = {
    "vllm": "start vLLM with --chat-template FILE",
    "sglang": "start SGLang with --chat-template FILE",
    "llama-server": "start llama-server with --chat-template-file FILE",
}
"""To use another chat template."""

_CONTEXT: Mapping[str, str] = {
    "vllm": "start it with --max-model-len {0}",
    "sglang": "start it with --context-length {0}",
    "llama-server": "start it with -c {0} times its -np (each slot has -c divided by -np, unless "
    "-kvu is given)",
    "embedded": "give --ctx {0}",
    "completions": "start it with {0} tokens of context",
}


def longer_context(kind: str, tokens: int) -> str:
    """How to give a server a context of so many tokens."""
    return _CONTEXT.get(kind, "start it with a longer one, {0} tokens").format(tokens)
