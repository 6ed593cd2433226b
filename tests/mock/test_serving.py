from __future__ import annotations

import socket
import threading
from contextlib import ExitStack

import httpx
import pytest

from relaygen import UsageError
from relaygen.mock import MockConfig, listen, serving

from .support import HEAD, body


def test_nothing_is_left_behind() -> None:
    before = threading.active_count()
    with serving(MockConfig(token_ms=1000.0)) as url:
        assert threading.active_count() > before
        with httpx.Client(base_url=url, trust_env=False) as http:
            assert http.get("/health").status_code == 200
    assert threading.active_count() == before
    with pytest.raises(httpx.ConnectError), httpx.Client(base_url=url, trust_env=False) as http:
        http.get("/health")


def test_a_stream_under_way_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    received = b""
    with ExitStack() as stack:
        url = stack.enter_context(serving(MockConfig(token_ms=3_600_000.0)))
        with (
            httpx.Client(base_url=url, trust_env=False) as http,
            http.stream("POST", "/v1/completions", json=body(HEAD, stream=True)) as response,
        ):
            stack.close()
            with pytest.raises(httpx.RemoteProtocolError):
                received = response.read()
    assert received == b""
    assert caplog.records == []


def test_two_at_once() -> None:
    with serving(MockConfig(model="a")) as one, serving(MockConfig(model="b")) as other:
        for url, name in ((one, "a"), (other, "b")):
            with httpx.Client(base_url=url, trust_env=False) as http:
                assert http.get("/v1/models").json()["data"][0]["id"] == name


def test_the_default_engine() -> None:
    with serving() as url, httpx.Client(base_url=url, trust_env=False) as http:
        assert http.get("/mock/trace").json()["name"] == "short"


def test_an_address_that_is_taken() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UsageError, match="cannot listen at 127") as raised,
    ):
        listen("127.0.0.1", taken.getsockname()[1])
    assert "--port" in raised.value.hint
