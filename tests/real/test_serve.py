"""The official client over ``relaygen serve`` over two real llama-servers."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from relaygen._types import Role
from tests.served import check, serving, stream

from .conftest import model_path

pytestmark = pytest.mark.models
SCRIPT = Path(__file__).parents[2] / "scripts" / "llama-server.py"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def llama_server(role: Role) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    command = [sys.executable, str(SCRIPT), str(model_path(role)), "--port", str(port)]
    sink = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=sink, stderr=sink), f"http://127.0.0.1:{port}"


def wait(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(600):
        assert process.poll() is None, "a llama-server ended at its start"
        try:
            if httpx.get(f"{url}/health", timeout=5.0).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{url} does not start")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    large, small = llama_server("large"), llama_server("small")
    try:
        wait(*large)
        wait(*small)
        log = tmp_path_factory.mktemp("serve") / "log"
        with serving(["--large", large[1], "--small", small[1]], log) as address:
            yield address
    finally:
        for process, _ in (large, small):
            process.kill()
            process.wait()


def test_the_official_client_streams_a_relayed_chat(url: str) -> None:
    found = stream(url, max_tokens=400)
    check(found)
    assert found.relay["cached_share"]["large"] is not None
    print(f"{found.relay['tokens']}, {found.relay['handoffs']} hand-offs, {found.chunks} chunks")


def test_one_model_alone_is_reached_by_name(url: str) -> None:
    found = stream(url, "What is 2 + 3?", "relaygen@large", max_tokens=40)
    assert found.models == ["large"]
    assert found.relay["tokens"]["small"] == 0
    assert "5" in found.content
