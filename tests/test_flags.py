from __future__ import annotations

import pytest

from relaygen import _flags
from relaygen._flags import longer_context

SERVERS = ("vllm", "sglang", "llama-server")


@pytest.mark.parametrize("kind", SERVERS)
def test_every_server_has_a_remedy(kind: str) -> None:
    for remedies in (_flags.CACHE, _flags.RAW, _flags.SPECULATION, _flags.TEMPLATE):
        assert remedies[kind]
    assert "8192" in longer_context(kind, 8192)


def test_llama_servers_always_show_what_is_cached() -> None:
    assert set(_flags.SHOW_CACHED) == {"vllm", "sglang"}


def test_a_longer_context_names_the_flag() -> None:
    assert longer_context("vllm", 8192) == "start it with --max-model-len 8192"
    assert longer_context("sglang", 8192) == "start it with --context-length 8192"
    assert longer_context("embedded", 8192) == "give --ctx 8192"
    assert longer_context("another", 8192) == "start it with a longer one, 8192 tokens"
