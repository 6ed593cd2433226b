from __future__ import annotations

import asyncio
import io

import httpx
import pytest

from relaygen import Conversation, EngineError, Relay
from relaygen._types import Prompt, Role
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.policies.base import Decision, Start, Token
from relaygen.policies.single import Alone
from relaygen.serve._app import make_app
from relaygen.serve._guard import Keys
from relaygen.serve._logs import Log
from relaygen.serve._settings import Settings

from .support import CHAT, THINKING, Pair, call, get, pair, post, problem

SECRET = "sk-secret-1"


@pytest.mark.parametrize(
    ("authorization", "api_key", "accepted"),
    [
        ("Bearer sk-a", "", True),
        ("bearer  sk-b ", "", True),
        ("", "sk-b", True),
        ("Basic sk-a", "sk-a", True),
        ("Bearer sk-c", "", False),
        ("Bearer ", "", False),
        ("sk-a", "", False),
        ("Bearer sk-a sk-b", "", False),
        ("Bearer sk-\xe4", "", False),
        ("", "", False),
    ],
)
def test_keys(authorization: str, api_key: str, accepted: bool) -> None:
    assert Keys(["sk-a", "sk-b"]).accept(authorization, api_key) is accepted


def test_without_keys_everybody_may_call() -> None:
    assert Keys([]).accept("")
    assert Keys([]).accept("Bearer whatever")


def test_everything_but_what_tells_nothing_wants_a_key() -> None:
    served = pair(settings=Settings(api_keys=(SECRET,)))
    for path in ("/v1/models", "/nowhere", "/docs/nowhere", CHAT):
        refused = get(served, path)
        assert problem(refused) == (401, None, "invalid_api_key")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert problem(post(served))[0] == 401
    for path in ("/health", "/ready", "/metrics", "/openapi.json", "/docs", "/redoc"):
        assert get(served, path).status_code == 200
    assert post(served, headers={"authorization": f"Bearer {SECRET}"}).status_code == 200
    assert len(served.large.requests) > 0


def test_the_description_says_what_wants_a_key() -> None:
    paths = get(pair(settings=Settings(api_keys=(SECRET,))), "/openapi.json").json()["paths"]
    for path in ("/health", "/ready", "/metrics"):
        assert paths[path]["get"]["security"] == []
    assert "security" not in paths[CHAT]["post"]
    assert SECRET not in str(paths)


def test_a_request_that_the_server_gives_up_is_no_success() -> None:
    served = pair(large=ScriptedEngine(THINKING, token_ms=50))

    async def cancelled(client: httpx.AsyncClient) -> None:
        body = {"messages": [{"role": "user", "content": "?"}], "stream": True}
        asking = asyncio.ensure_future(client.post(CHAT, json=body))
        while not served.large.requests:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    call(served, cancelled)
    (line,) = served.lines
    assert line["error"] == "shutting_down"


@pytest.mark.parametrize(
    ("given", "kept"),
    [("req-1.a:b/c=", True), ("", False), ("a b", False), ("x" * 129, False), ("é", False)],
)
def test_a_sane_request_id_is_kept(given: str, kept: bool) -> None:
    id = get(pair(), "/health", headers={b"x-request-id": given.encode()}).headers["x-request-id"]
    assert (id == given) is kept
    assert len(id) == 32 or kept


def test_one_line_per_request_without_a_key_or_a_word_of_it() -> None:
    served = pair(settings=Settings(api_keys=(SECRET,)))
    headers = {"authorization": f"Bearer {SECRET}", "x-request-id": "r1"}
    body = {"messages": [{"role": "user", "content": "Geheimnis"}], "user": "somebody"}
    post(served, body=body, headers=headers)
    (line,) = served.lines
    assert (
        line
        | {
            "event": "request",
            "level": "info",
            "request_id": "r1",
            "method": "POST",
            "route": CHAT,
            "status": 200,
            "model": "relaygen",
            "policy": "relay",
            "stream": False,
            "handoffs": 5,
            "fallbacks": 0,
            "client": "127.0.0.1",
        }
        == line
    )
    assert line["completion_tokens"] == line["large_tokens"] + line["small_tokens"]
    assert line["seconds"] >= line["first_token_seconds"] > 0
    assert line["time"].endswith("Z")
    text = served.written.getvalue()
    for secret in (SECRET, "Geheimnis", "three", "somebody"):
        assert secret not in text


def test_a_streams_line_has_the_same() -> None:
    served = pair()
    post(served, body={"stream": True})
    post(served)
    streamed, whole = served.lines
    assert streamed["stream"] is True
    assert streamed["completion_tokens"] == whole["completion_tokens"]
    assert set(streamed) == set(whole)


def test_refusals_and_failures_are_written_down_too() -> None:
    error = EngineError("no")
    served = pair(large=ScriptedEngine(THINKING, failures=[Failure(error, request=None)]))
    post(served, body={"n": 3})
    post(served)
    get(served, "/health")
    refused, failed = served.lines
    assert (refused["status"], refused["error"], refused["level"]) == (400, "unsupported", "info")
    assert (failed["status"], failed["error"], failed["level"]) == (502, "engine_error", "error")


class _Broken(ScriptedEngine):
    async def release(self, session: str) -> None:
        raise ZeroDivisionError("Geheim" + "nis")


@pytest.mark.parametrize("stream", [True, False])
def test_a_defect_of_ours_is_a_plain_500_and_a_traceback_in_the_log(stream: bool) -> None:
    served = pair(large=_Broken(THINKING), policy="large")
    response = post(served, body={"stream": stream})
    if stream:
        assert '"code":"internal_error"' in response.text
    else:
        assert problem(response) == (500, None, "internal_error")
    line = served.lines[0]
    assert (line["level"], line["error"]) == ("error", "internal_error")
    assert line["exception"] == "ZeroDivisionError"
    assert "in release" in line["traceback"]
    assert "Geheimnis" not in response.text + served.written.getvalue()


class _Careless(Alone):
    """A policy of the operator's own and its session, with a defect."""

    name = "careless"
    first: Role = "large"
    roles: frozenset[Role] = frozenset(("large", "small"))
    margins: frozenset[Role] = frozenset()

    def start(self, start: Start) -> _Careless:
        return self

    def feed(self, token: Token) -> Decision:
        raise ZeroDivisionError("Geheim" + "nis")


class _Foreign(ScriptedEngine):
    """An engine of the operator's own, with a defect."""

    async def render(self, conversation: Conversation) -> Prompt:
        raise ZeroDivisionError("Geheim" + "nis")


@pytest.mark.parametrize("stream", [True, False])
def test_a_defect_of_the_operators_policy_is_not_the_clients_fault(stream: bool) -> None:
    relay = Relay(ScriptedEngine(THINKING), ScriptedEngine(THINKING), policy=_Careless())
    written = io.StringIO()
    served = Pair(ScriptedEngine(), ScriptedEngine(), make_app(relay, log=Log(written)), written)
    response = post(served, body={"stream": stream})
    assert '"code":"internal_error"' in response.text.replace(" ", "")
    line = served.lines[0]
    assert (line["level"], line["exception"]) == ("error", "PolicyError")
    assert "in feed" in line["traceback"]
    assert "Geheimnis" not in response.text + served.written.getvalue()


@pytest.mark.parametrize("stream", [True, False])
def test_a_defect_of_an_engine_of_ones_own_is_in_the_log(stream: bool) -> None:
    served = pair(large=_Foreign(THINKING))
    response = post(served, body={"stream": stream})
    assert '"code":"engine_error"' in response.text.replace(" ", "")
    line = served.lines[0]
    assert (line["error"], line["exception"]) == ("engine_error", "EngineError")
    assert "in render" in line["traceback"]
