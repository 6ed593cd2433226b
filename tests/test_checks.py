from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from relaygen import EngineReplyError, EngineUnreachableError, UsageError
from relaygen._checks import Finding, check_pair, prefix_cache
from relaygen._types import Conversation, Delta, EngineInfo, Prompt, Role, SegmentRequest
from relaygen.engines.base import Engine
from relaygen.engines.scripted import ScriptedEngine


class Served(ScriptedEngine):
    """Says of itself what it is told to, and how much of a prompt it found again."""

    def __init__(
        self,
        *,
        cached: int | None = 592,
        slow: float = 0.0,
        error: EngineReplyError | None = None,
        **says: Any,
    ) -> None:
        super().__init__(free=lambda text: " yes", vocabulary="v", context=40_000)
        self.seen: list[SegmentRequest] = []
        self.asked = 0
        self._says = says
        self._cached, self._slow, self._error = cached, slow, error

    async def info(self) -> EngineInfo:
        return replace(await super().info(), **self._says)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        self.asked += 1
        return await super().tokenize(text, special=special)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        first = not self.seen
        self.seen.append(request)
        if self._error is not None:
            raise self._error
        if first:
            await asyncio.sleep(self._slow)
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield replace(
                    delta, cached=None if self._cached is None else self._cached * (not first)
                )


class Absent(ScriptedEngine):
    async def info(self) -> EngineInfo:
        raise EngineUnreachableError("http://gpu:1 cannot be reached", role="large")


def check(large: Engine, small: Engine, **options: Any) -> list[Finding]:
    return asyncio.run(check_pair({"large": large, "small": small}, **options))


def lines(findings: list[Finding], level: str = "") -> list[str]:
    return [str(finding) for finding in findings if level in ("", finding.level)]


def test_a_pair_as_it_should_be() -> None:
    large, small = Served(model="big", kind="vllm"), Served(kind="vllm")
    assert lines(check(large, small)) == [
        "large engine: big (vllm), context 40000",
        "small engine: scripted (vllm), context 40000",
        "pair: equal vocabularies: token ids cross a hand-off",
        "large engine: prefix cache on: 592 tokens found again",
        "small engine: prefix cache on: 592 tokens found again",
    ]
    first, second = large.seen
    assert first.ids == second.ids
    assert first.max_tokens == 1
    assert len(first.ids) > 500
    assert large.released == [first.session]


def test_every_start_asks_with_a_new_prompt() -> None:
    large = Served()
    check(large, Served())
    check(large, Served())
    assert large.seen[0].ids[:8] != large.seen[2].ids[:8]


def test_an_engine_that_is_down() -> None:
    findings = check(Absent(), Served())
    assert lines(findings, "error") == [
        "error: large engine: http://gpu:1 cannot be reached; requests fail until it answers"
    ]
    findings = check(Served(), Absent())
    assert lines(findings, "warning")[0].endswith("the large model goes on alone until it answers")
    assert not lines(findings, "error")


def test_an_engine_that_answers_wrongly_needs_its_operator() -> None:
    class Refusing(ScriptedEngine):
        async def info(self) -> EngineInfo:
            raise EngineReplyError("http://gpu:1 does not serve it", role="large")

    (line,) = lines(check(Refusing(), Served(), prefix=False), "error")
    assert line.endswith("does not serve it; requests fail until that is put right")


def test_an_engine_that_does_not_answer() -> None:
    class Silent(ScriptedEngine):
        async def info(self) -> EngineInfo:
            await asyncio.sleep(60)
            raise AssertionError

    findings = check(Served(), Silent(), patience=0.05)
    assert "no answer within 0.05 s" in lines(findings, "warning")[0]


@pytest.mark.parametrize(
    ("says", "text"),
    [
        ({"vocabulary": "w"}, "different vocabularies: text"),
        ({"vocabulary": ""}, "vocabularies that cannot be compared: text"),
        ({"vocabulary": "", "text_only": True}, "an engine hides its token ids: text"),
    ],
)
def test_vocabularies(says: dict[str, Any], text: str) -> None:
    (found,) = [f for f in check(Served(), Served(**says), prefix=False) if f.role == ""]
    assert text in found.text


def test_a_shorter_context_of_the_small_model_is_told_with_the_flag() -> None:
    findings = check(Served(), Served(context=8192, kind="vllm"), prefix=False)
    (line,) = lines(findings, "warning")
    assert "(8192) is shorter" in line
    assert "--max-model-len 40000" in line
    assert not lines(check(Served(context=8192), Served(), prefix=False), "warning")


def test_templates_that_differ() -> None:
    small = Served()
    small._template = "<u>{content}<a>"
    (line,) = lines(check(Served(), small, prefix=False), "warning")
    assert "templates differ" in line


@pytest.mark.parametrize(
    ("kind", "flag"),
    [("vllm", "--enable-prefix-caching"), ("llama-server", "--no-cache-prompt")],
)
def test_a_cache_that_finds_nothing_is_named_with_the_flag(kind: str, flag: str) -> None:
    (line,) = lines(check(Served(cached=0, kind=kind), Served()), "warning")
    assert line.startswith("warning: large engine: prefix cache off")
    assert flag in line


def test_hidden_counts_are_timed_and_the_flag_is_named() -> None:
    findings = check(Served(cached=None, slow=0.3, kind="vllm"), Served())
    (line,) = lines(findings, "note")
    assert "--enable-prompt-tokens-details" in line
    assert not lines(findings, "warning")
    assert any("prefix cache on: " in line and " ms, then " in line for line in lines(findings))


def test_hidden_counts_and_a_fast_engine_prove_nothing() -> None:
    told, _ = prefix_cache("large", "vllm", 0.012, 0.011, None, tokens=600)
    assert told.level == "note"
    assert told.text == "prefix cache not proven: 12 ms, then 11 ms, too fast to tell"


def test_hidden_counts_without_a_difference_are_a_warning() -> None:
    (told,) = prefix_cache("large", "scripted", 0.5, 0.4, None, tokens=600)
    assert told.level == "warning"
    assert told.text == "prefix cache not proven: 500 ms, then 400 ms"


def test_a_cache_that_keeps_the_beginning_only() -> None:
    (told,) = prefix_cache("large", "vllm", 0.5, 0.4, 16, tokens=600)
    assert (told.level, told.text) == ("warning", "prefix cache finds only 16 of 600 tokens again")
    (told,) = prefix_cache("large", "vllm", 0.5, 0.4, 300, tokens=600)
    assert told.level == "ok"


def test_an_engine_that_takes_chats_only_is_no_failure() -> None:
    error = EngineReplyError("chats only", role="small", refused=True)
    findings = check(Served(), Served(error=error))
    assert not lines(findings, "warning")
    assert lines(findings, "note") == [
        "note: small engine: refuses raw texts: prefix cache not examined (chats only)"
    ]


class Own(ScriptedEngine):
    """Somebody's own engine, which raises what is none of our errors."""

    def __init__(self, where: str, error: Exception) -> None:
        super().__init__(free=lambda text: " yes")
        self._where, self._raised = where, error

    def _maybe(self, where: str) -> None:
        if where == self._where:
            raise self._raised

    async def info(self) -> EngineInfo:
        self._maybe("info")
        return await super().info()

    async def render(self, conversation: Conversation) -> Prompt:
        self._maybe("render")
        return await super().render(conversation)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        self._maybe("tokenize")
        return await super().tokenize(text, special=special)


@pytest.mark.parametrize("where", ["info", "tokenize"])
def test_an_exception_of_an_engines_own_is_named(where: str) -> None:
    findings = check(ScriptedEngine(free=lambda text: " yes"), Own(where, KeyError("weights")))
    (line,) = (line for line in lines(findings, "warning") if "small" in line)
    assert "KeyError: 'weights'" in line
    assert any(each.role == "large" and each.check == "prefix-cache" for each in findings)


def test_a_timeout_of_an_engines_own_is_not_taken_for_ours() -> None:
    (line,) = lines(check(Served(), Own("info", TimeoutError()), prefix=False), "warning")
    assert "its info raised TimeoutError (test_checks.py" in line
    assert "no answer within" not in line


def test_templates_that_cannot_be_compared_are_no_finding() -> None:
    findings = check(ScriptedEngine(), Own("render", RuntimeError("gone")), prefix=False)
    assert not [each for each in findings if each.check == "templates"]


@pytest.mark.parametrize("says", [{"context": None}, {"context": 0}])
def test_an_engine_that_says_nonsense_of_itself(says: dict[str, Any]) -> None:
    (line,) = lines(check(Served(), Served(**says), prefix=False), "warning")
    assert f"a context of {says['context']}" in line


def test_an_engine_that_says_nothing_of_itself() -> None:
    class Mute(ScriptedEngine):
        async def info(self) -> Any:
            return None

    (line,) = lines(check(Mute(), Served(), prefix=False), "error")
    assert "its info gave a NoneType, not EngineInfo" in line


def test_a_generation_that_fails() -> None:
    error = EngineReplyError("answered 500: CUDA", role="small")
    (line,) = lines(check(Served(), Served(error=error)), "warning")
    assert line == "warning: small engine: a short generation failed: answered 500: CUDA"


def test_a_text_only_engine_is_sent_text() -> None:
    small = ScriptedEngine(free=lambda text: " yes", text_only=True)
    check(Served(), small)
    assert [bool(request.text) and not request.ids for request in small.requests] == [True, True]


def test_a_chat_template_that_is_missing_shows_at_the_start() -> None:
    class Bare(ScriptedEngine):
        async def render(self, conversation: Any) -> Any:
            raise UsageError("it has no chat template", hint="give one")

    engines: dict[Role, Engine] = {"large": ScriptedEngine(""), "small": Bare("", text_only=True)}
    found = asyncio.run(check_pair(engines, prefix=False))
    assert [each.level for each in found if each.role == "small"] == ["warning"]
    assert "no chat template; the large model goes on alone" in str(found[-1])
    assert found[-1].hint == "give one"
