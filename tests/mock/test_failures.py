"""Every kind of failure over a real socket, and the plan of them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from relaygen import UsageError
from relaygen.mock import FAILURE_KINDS, Failure
from relaygen.mock._failures import FailurePlan

from .support import HEAD, TRACE, Client, body, engine, until

TOKENS = len(TRACE.tokens) + 1  # and the end of the turn


def raw(client: Client, received: list[bytes] | None = None, **options: Any) -> bytes:
    """The bytes of a streamed reply; what came of them is in `received` even if it fails."""
    received = [] if received is None else received
    sent = body(HEAD, stream=True)
    with client.http.stream("POST", "/v1/completions", json=sent, **options) as response:
        received += response.iter_raw()
    return b"".join(received)


def test_a_reset_breaks_the_connection() -> None:
    with engine() as client:
        client.fail("reset", token=5)
        with pytest.raises(httpx.ReadError):
            raw(client)
        entry = client.ended()
        assert (entry["failure"], entry["tokens"], entry["finish"]) == ("reset", 5, None)
        assert not entry["aborted"]
        assert client.stream(HEAD).text == TRACE.text


def test_a_stall_holds_the_connection_until_the_client_goes() -> None:
    with engine() as client:
        client.fail("stall", token=5)
        received: list[bytes] = []
        with pytest.raises(httpx.ReadTimeout):
            raw(client, received, timeout=httpx.Timeout(20, read=0.3))
        assert b"".join(received).count(b"data: ") == 5
        entry = client.ended()
        assert (entry["failure"], entry["tokens"], entry["aborted"]) == ("stall", 5, True)


def test_garbage_takes_the_place_of_a_token() -> None:
    with engine() as client:
        client.fail("garbage", token=5)
        received = raw(client)
        events = received.split(b"\n\n")
        assert b"\xff\xfe" in events[5]
        assert b'"text"' in events[4]
        assert b'"text"' in events[6]
        assert len(events) == TOKENS + 2  # [DONE], and what is behind the last separator
        entry = client.ended()
        assert (entry["failure"], entry["tokens"], entry["finish"]) == ("garbage", TOKENS, "stop")


def test_an_error_event() -> None:
    with engine() as client:
        client.fail("error", token=5)
        reply = client.stream(HEAD)
        assert reply.error is not None
        assert reply.error["type"] == "InternalServerError"
        assert reply.done
        assert len(reply.ids) == 5


def test_an_end_without_a_finish_reason() -> None:
    with engine() as client:
        client.fail("end", token=5)
        reply = client.stream(HEAD)
        assert (len(reply.ids), reply.finish, reply.done) == (5, None, False)
        assert reply.error is None


def test_a_plain_500() -> None:
    with engine() as client:
        client.fail("http500")
        response = client.http.post("/v1/completions", json=body(HEAD, stream=True))
        assert response.status_code == 500
        assert response.json()["error"]["code"] == 500
        assert client.log()[-1]["failure"] == "http500"


def test_slow_loses_nothing_and_takes_ten_times_as_long() -> None:
    with engine(token_ms=1.0) as client:
        client.fail("slow", token=5)
        reply = client.stream(HEAD, max_tokens=15)
        assert len(reply.ids) == 15
        entry = client.ended()
        assert entry["failure"] == "slow"
        # Tokens never come before they are due.
        assert reply.emitted[-1] >= entry["started"] + 0.005 + 10 * 0.010
        assert entry["token_s"] == 0.001


@pytest.mark.parametrize("kind", ["reset", "error", "end"])
def test_failures_before_the_first_token(kind: str) -> None:
    with engine() as client:
        client.fail(kind, token=0)
        if kind == "reset":
            with pytest.raises(httpx.TransportError):
                raw(client)
        else:
            assert client.stream(HEAD).chunks == []
        assert client.ended()["tokens"] == 0


def test_failures_of_a_whole_reply() -> None:
    with engine() as client:
        for kind in ("error", "http500"):
            client.fail(kind, token=3)
            assert client.http.post("/v1/completions", json=body(HEAD)).status_code == 500
        client.fail("end", token=3)
        choice = client.complete(HEAD)["choices"][0]
        assert (len(choice["token_ids"]), choice["finish_reason"]) == (3, None)
        client.fail("garbage", token=3)
        with pytest.raises(ValueError, match=r"decode|Expecting"):
            client.http.post("/v1/completions", json=body(HEAD)).json()
        client.fail("reset", token=3)
        with pytest.raises(httpx.TransportError):
            client.complete(HEAD)
        client.fail("stall", token=3)
        with pytest.raises(httpx.ReadTimeout):
            client.http.post("/v1/completions", json=body(HEAD), timeout=0.3)
        assert client.ended()["aborted"]


def test_in_groups_exactly_the_tokens_before_come() -> None:
    with engine(regroup=8, burst=3) as client:
        for token in (1, 4, 9, 20):
            client.fail("end", token=token)
            assert len(client.stream(HEAD).ids) == token


def test_a_failure_meets_its_session_only() -> None:
    with engine() as client:
        client.fail("end", token=2, session="b")
        assert client.stream(HEAD, session="a").finish == "stop"
        assert client.stream(HEAD, session="b").finish is None
        assert client.stream(HEAD, session="b").finish == "stop"
        assert [e["failure"] for e in client.log("b")] == ["end", ""]


def test_a_failure_that_was_not_due_waits_for_the_next_request() -> None:
    with engine() as client:
        client.fail("end", token=10)
        assert client.stream(HEAD, max_tokens=3).finish == "length"
        assert until(lambda: client.get("/mock/failures"))[0]["left"] == 1
        assert client.stream(HEAD).finish is None
        assert client.get("/mock/failures") == []


def test_planned_failures_are_listed_and_dropped() -> None:
    with engine(failures=(Failure("end", 3, 1),)) as client:
        client.post("/mock/failures", [{"kind": "slow"}, {"kind": "stall", "count": None}])
        listed = client.get("/mock/failures")
        assert [one["kind"] for one in listed] == ["end", "slow", "stall"]
        assert client.http.delete("/mock/failures").json() == []
        assert client.stream(HEAD).finish == "stop"


def test_failures_of_the_configuration() -> None:
    with engine(failures=(Failure("end", 3, 1),)) as client:
        assert [client.stream(HEAD).finish for _ in range(3)] == ["stop", None, "stop"]


@pytest.mark.parametrize("sent", [{"kind": "fire"}, {}, {"kind": "end", "when": 3}, 3, "x"])
def test_what_is_no_failure_is_refused(sent: Any) -> None:
    with engine() as client:
        response = client.http.post("/mock/failures", json=sent)
        assert response.status_code == 400
        assert client.get("/mock/failures") == []


def test_the_plan_counts() -> None:
    plan = FailurePlan()
    twice, always = Failure("end", count=2), Failure("slow", count=None)
    plan.add(twice)
    plan.add(always)
    assert [plan.take(n, "") for n in range(4)] == [twice, twice, always, always]
    plan.give_back(twice)
    assert plan.take(5, "") is twice
    assert [one["left"] for one in plan.pending()] == [None]


def test_specs() -> None:
    assert Failure.parse("reset") == Failure("reset")
    assert Failure.parse("stall:12") == Failure("stall", 12)
    assert Failure.parse("slow:0:3") == Failure("slow", 0, 3)
    for spec in ("fire", "end:x", "end:1:2:3", "end:-1"):
        with pytest.raises(UsageError):
            Failure.parse(spec)


def test_values_are_checked() -> None:
    assert len(FAILURE_KINDS) == 7
    for wrong in (
        {"token": -1},
        {"token": None},
        {"count": True},
        {"request": 0.5},
        {"session": 3},
    ):
        with pytest.raises(UsageError):
            Failure.of({"kind": "end", **wrong})
