"""The doctor on engines that fail, and on policies that do: a finding each, never a traceback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from relaygen import EngineReplyError, EngineUnreachableError, Relay
from relaygen._types import Conversation, Delta, EngineInfo, Prompt, Role, SegmentRequest
from relaygen.doctor import Report, status, verdict
from relaygen.doctor._attempts import Attempts
from relaygen.engines.scripted import Failure
from relaygen.mock import MockConfig, serving
from relaygen.policies import RelayPolicy
from relaygen.policies.base import Start

from .support import LARGE, TAGS, Caching, Clock, Timed, examined, found, mocked


class Own(Timed):
    """Somebody's own engine: it raises at one place what is none of our errors."""

    def __init__(self, clock: Clock, where: str, token_ms: float = 10.0) -> None:
        super().__init__(clock, token_ms=token_ms)
        self._where = where

    def _maybe(self, where: str) -> None:
        if where == self._where:
            raise KeyError("weights")

    async def info(self) -> EngineInfo:
        self._maybe("info")
        return await super().info()

    async def render(self, conversation: Conversation) -> Prompt:
        self._maybe("render")
        if conversation.raw is not None:
            self._maybe("raw")
        return await super().render(conversation)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        self._maybe("tokenize")
        return await super().tokenize(text, special=special)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        self._maybe("stream")
        if request.top:
            self._maybe("top")
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def release(self, session: str) -> None:
        self._maybe("release")

    async def aclose(self) -> None:
        self._maybe("aclose")


WORDS = "KeyError: 'weights'"
PLACE = "(test_failing.py, line "


@pytest.mark.parametrize(
    ("where", "check", "code"),
    [
        ("info", "reachable", 5),
        ("render", "reachable", 5),
        ("stream", "reachable", 5),
        ("release", "reachable", 5),
        ("raw", "prefix-cache", 1),
        ("tokenize", "prefix-cache", 1),
        ("top", "margins", 1),
    ],
)
@pytest.mark.parametrize("role", ["large", "small"])
def test_an_exception_of_an_engines_own_is_a_finding_and_the_rest_goes_on(
    clock: Clock, where: str, check: str, code: int, role: Role
) -> None:
    wheres = {"large": "", "small": "", role: where}
    large, small = Own(clock, wheres["large"], 10.0), Own(clock, wheres["small"], 1.0)
    report = examined(Relay(large, small), quick=True)
    told = [each for each in found(report, check) if WORDS in each.text]
    assert [each.role for each in told] == [role]
    assert told[0].level in ("error", "warning")
    assert status(report) == code
    if where != "info":
        other = ({"large", "small"} - {role}).pop()
        assert other in report.rollbacks
    assert any(WORDS in each for each in verdict(report).why)


def test_an_engine_whose_prompt_is_nonsense(clock: Clock) -> None:
    class Odd(Timed):
        async def render(self, conversation: Conversation) -> Any:
            prompt = await super().render(conversation)
            return Prompt(prompt.ids, prompt.text, None)  # type: ignore[arg-type]

    report = examined(Relay(Odd(clock, token_ms=10.0), Timed(clock, token_ms=1.0)), quick=True)
    (told,) = found(report, "thinking", "error")
    assert "NoneType" in told.text
    assert set(report.rollbacks) == {"large", "small"}


def test_an_engine_that_cannot_be_closed_is_a_finding_and_the_other_is_closed(
    clock: Clock,
) -> None:
    class Closing(Caching):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    small = Closing()
    report = examined(Relay(Own(clock, "aclose"), small), quick=True)
    (told,) = found(report, "capabilities", "warning")
    assert told.text.startswith(f"fails when it is closed: its aclose raised {WORDS} {PLACE}")
    assert told.hint == "mend it there"
    assert small.closed


def test_a_sample_that_fails_by_an_exception_of_the_engines_own() -> None:
    class Later(Caching):
        async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
            if request.max_tokens > 100:
                raise KeyError("weights")
            async with aclosing(super().stream(request)) as deltas:
                async for delta in deltas:
                    yield delta

    report = examined(Relay(Later(), Caching()))
    (told,) = found(report, "sample")
    assert (told.level, told.role) == ("error", "large")
    assert told.text.startswith(f"failed: its stream raised {WORDS} {PLACE}")
    assert report.complete


def test_a_policy_of_ones_own_that_fails_is_blamed_itself() -> None:
    class Broken(RelayPolicy):
        def start(self, start: Start) -> Any:
            raise KeyError("weights")

    report = examined(Relay(Caching(), Caching(), policy=Broken.of(("So",))))
    (told,) = found(report, "sample")
    assert (told.level, told.role) == ("error", "")
    assert told.text.startswith(f"policy 'relay': its start raised {WORDS} {PLACE}")


# Engines that go.


class Dying(Caching):
    """Answers so many requests."""

    def __init__(self, lives: int) -> None:
        super().__init__()
        self._lives = lives

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        if len(self.requests) >= self._lives:
            self.requests.append(request)
            raise EngineUnreachableError("http://gpu:1 refused the connection")
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta


@pytest.mark.parametrize("lives", [0, 1, 4, 5, 8])
def test_an_engine_that_dies_is_gone_and_is_asked_no_more(lives: int) -> None:
    large = Dying(lives)
    report = examined(Relay(large, Caching()), quick=True)
    (told,) = [each for each in report.findings if each.level == "error"]
    assert (told.check, told.role) == ("reachable", "large")
    assert told.text == "does not answer: http://gpu:1 refused the connection"
    assert len(large.requests) <= lives + 2  # once more, to be sure
    assert "small" in report.rollbacks
    assert (verdict(report).answer, status(report)) == ("cannot tell", 5)
    assert verdict(report).change == ("large: start the engine, or name another address",)
    assert not report.complete


def test_an_engine_that_dies_in_the_sample_is_gone() -> None:
    large = Caching()
    examined(Relay(large, Caching()), until="rollback")
    report = examined(Relay(Dying(len(large.requests)), Caching()))
    assert report.speeds.keys() == {"large", "small"}
    assert (verdict(report).answer, status(report)) == ("cannot tell", 5)
    assert not report.complete


def test_one_broken_connection_is_no_engine_that_is_gone() -> None:
    broken = Failure(EngineUnreachableError("reset by peer"), 2)
    report = examined(Relay(Caching(failures=[broken]), Caching()), quick=True)
    (told,) = [each for each in report.findings if each.level == "error"]
    assert (told.check, told.text) == ("margins", "failed: reset by peer")
    assert "large" in report.rollbacks
    assert status(report) == 1


def test_a_check_that_does_not_end_is_given_up() -> None:
    report = Report("p", "relay")

    async def stalls(role: Role) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        attempts = Attempts(report, {"large": 0.01, "small": 60.0}, stalls)
        await attempts.note("margins", "large", stalls)
        await attempts.note("speed", "large", stalls)
        assert attempts.gone == {"large"}

    asyncio.run(run())
    (told,) = report.findings
    assert (told.check, told.text) == ("reachable", "does not answer: no end within 0.01 s")
    assert told.hint == "it hangs, or is slow: look into the engine's log"


def test_a_slow_engine_that_answers_is_not_said_to_fail() -> None:
    report = Report("p", "relay")

    async def stalls(role: Role) -> None:
        await asyncio.Event().wait()

    async def answers(role: Role) -> None:
        return None

    async def run() -> None:
        attempts = Attempts(report, {"large": 0.01, "small": 60.0}, answers)
        await attempts.note("prefix-cache", "large", stalls)
        assert not attempts.gone

    asyncio.run(run())
    (told,) = report.findings
    assert (told.level, told.check) == ("warning", "prefix-cache")
    assert told.text == "not examined: no end within 0.01 s"
    assert told.hint == "it hangs, or is slow: look into the engine's log"


def test_an_engine_that_writes_nothing() -> None:
    report = examined(Relay(Caching(), Caching(free=lambda text: "")))
    (told,) = found(report, "reachable", "error")
    assert (told.role, told.text) == ("small", "writes nothing")
    assert status(report) == 5
    assert report.sample is None


class Sampled(Timed):
    """Ends at once, or fails, where a whole answer is asked for."""

    def __init__(self, clock: Clock, error: Exception | None = None) -> None:
        super().__init__(clock, token_ms=10.0)
        self._raised = error

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        if request.max_tokens > 100:
            if self._raised is not None:
                raise self._raised
            yield Delta(end="turn")
            return
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta


def test_a_large_model_that_has_no_answer(clock: Clock) -> None:
    report = examined(Relay(Sampled(clock), Timed(clock, token_ms=1.0)))
    (told,) = found(report, "sample", "error")
    assert (told.role, told.text) == ("large", "writes nothing in answer")
    assert report.sample is None
    (gain,) = found(report, "gain")
    assert gain.text.endswith("the sample failed")


@pytest.mark.parametrize("context", [1, 8])
def test_a_context_too_short_for_a_question_is_named(context: int) -> None:
    report = examined(Relay(Caching(), Caching(context=context)), quick=True)
    (told,) = found(report, "context", "error")
    assert told.role == "small"
    assert "4096" in told.hint
    assert not found(report, "reachable", "error")
    assert (verdict(report).answer, status(report)) == ("use it after changing", 1)
    assert "large" in report.rollbacks


# Engines that take chats only.


class Parrot(Caching):
    """Refuses what is no chat: always, or only where it is asked to render it."""

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self._strict = strict

    async def render(self, conversation: Conversation) -> Prompt:
        if conversation.raw is not None:
            raise EngineReplyError("a parrot repeats messages", refused=True)
        return await super().render(conversation)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        if self._strict and len(request.ids) > 90:
            raise EngineReplyError("a parrot has short messages", refused=True)
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta


def test_an_engine_that_refuses_raw_texts_is_examined_by_chats() -> None:
    report = examined(Relay(Parrot(), Caching()), quick=True)
    assert not [each for each in report.findings if each.level == "error"]
    (told, on) = found(report, "prefix-cache")[:2]
    assert (told.level, told.role) == ("note", "large")
    assert told.text == "refuses raw texts: examined by a chat in its own template"
    assert on.text.startswith("prefix cache on: ")
    assert set(report.speeds) == set(report.rollbacks) == {"large", "small"}


def test_an_engine_that_refuses_long_texts_leaves_its_cache_unknown() -> None:
    report = examined(Relay(Parrot(strict=True), Caching()), quick=True)
    assert not [each for each in report.findings if each.level == "error"]
    (told, *_) = found(report, "prefix-cache", "note")
    assert told.text.startswith("refuses raw texts: prefix cache not examined (a parrot has")
    assert any("catch-up not examined" in each.text for each in found(report, "speed", "note"))
    assert set(report.rollbacks) == {"small"}
    assert (verdict(report).answer, status(report)) == ("cannot tell", 1)
    assert "unknown" in verdict(report).why[0]


# The answer stage.


@pytest.mark.parametrize("error", [EngineReplyError("answered 500"), KeyError("weights")])
def test_a_small_engine_that_fails_to_answer_leaves_the_texts_their_worth(
    clock: Clock, error: Exception
) -> None:
    with serving(MockConfig(**LARGE)) as one:
        report = examined(Relay(one, Sampled(clock, error), profile=TAGS))
    (told,) = found(report, "answers")
    assert (told.level, told.role) == ("error", "small")
    words = "answered 500" if isinstance(error, EngineReplyError) else f"its stream raised {WORDS}"
    assert told.text.startswith(f"failed: {words}")
    sample = report.sample
    assert sample is not None
    assert [each.same for each in sample.answers] == [None] * 3
    assert sample.cues["So"] == 3


def test_both_roles_at_one_server_gain_nothing() -> None:
    with serving(MockConfig(**LARGE)) as url:
        report = examined(Relay(url, url, profile=TAGS))
    (told,) = found(report, "gain")
    assert told.level == "against"
    assert f"mock ({url})" in told.text
    assert report.sample is None
    assert (verdict(report).answer, status(report)) == ("don't", 1)


def test_two_servers_with_one_models_name_are_two() -> None:
    report = mocked(quick=True)
    assert not [each for each in found(report, "gain") if "both roles" in each.text]
