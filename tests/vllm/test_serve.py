"""The official client over ``relaygen serve`` over two real vLLM servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.served import QUESTION, check, serving, stream

from .servers import KEY, Server

pytestmark = pytest.mark.vllm
KEYS = {"RELAYGEN_SERVE_LARGE_KEY": KEY, "RELAYGEN_SERVE_SMALL_KEY": KEY}


@pytest.fixture(scope="module")
def url(
    large_server: Server, small_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("serve") / "log"
    arguments = ["--large", large_server.url, "--small", small_server.url]
    with serving(arguments, log, KEYS) as address:
        yield address


@pytest.fixture(scope="module")
def twin_url(small_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One model in both roles."""
    log = tmp_path_factory.mktemp("twins") / "log"
    arguments = ["--large", small_server.url, "--small", small_server.url]
    with serving(arguments, log, KEYS) as address:
        yield address


def test_the_official_client_streams_a_relayed_chat(url: str) -> None:
    found = stream(url, max_tokens=400)
    check(found)
    print(f"{found.relay['tokens']}, {found.relay['handoffs']} hand-offs, {found.chunks} chunks")


def test_a_greedy_relay_of_one_model_streams_what_it_writes_alone(twin_url: str) -> None:
    """Near-ties are looked at in `test_pair`; in float32 this question has none."""
    relayed = stream(twin_url, QUESTION, max_tokens=120)
    alone = stream(twin_url, QUESTION, "relaygen@large", max_tokens=120)
    assert relayed.relay["handoffs"] >= 2
    assert relayed.content == alone.content
