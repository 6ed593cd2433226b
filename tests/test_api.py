"""The Python API over scripted engines."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import replace

import pytest

from relaygen import (
    Conversation,
    Done,
    EngineError,
    EngineUnreachableError,
    Limits,
    MarginPolicy,
    Message,
    OneShotPolicy,
    Relay,
    Sampling,
    Text,
    UsageError,
    benchmark,
)
from relaygen._types import EngineInfo, Piece, Prompt
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.profiles import load

from .support import PLAIN, THINKING, check_promises


def relay(script: str = PLAIN, **options: object) -> Relay:
    large = ScriptedEngine(script, token_ms=2)
    small = ScriptedEngine(script)
    return Relay(large, small, **options)  # type: ignore[arg-type]


def test_generate_and_stream_and_their_twins_agree() -> None:
    with relay() as pair:
        one = pair.generate("?")
        events = list(pair.stream("?"))
        assert isinstance(events[-1], Done)
        two = events[-1].generation
        three = asyncio.run(relay().agenerate("?"))
    for generation in (one, two, three):
        check_promises(generation)
        assert generation.answer == PLAIN
        assert generation.usage.handoffs == one.usage.handoffs > 0
    assert "".join(e.text for e in events if isinstance(e, Text)) == PLAIN


def test_options_reach_the_task() -> None:
    pair = relay(profile="qwen3-32b+1.7b")
    task = pair.task(
        [Message("user", "a"), Message("assistant", "b"), Message("user", "c")],
        system="s",
        policy="small",
        limits=Limits(max_tokens=3, max_reasoning_tokens=2),
        stop=["x"],
        seed=3,
        template_kwargs={"enable_thinking": False},
    )
    assert [m.role for m in task.conversation.messages] == ["system", "user", "assistant", "user"]
    assert task.conversation.template_kwargs == {"enable_thinking": False}
    assert task.policy.name == "small"
    assert (task.seed, task.stop, task.limits.max_tokens) == (3, ("x",), 3)
    assert task.sampling == Sampling(0.6, 0.95, 20, 0.0)
    assert task.thinking is not None
    assert pair.task("?", sampling=Sampling(0.0)).sampling.temperature == 0.0


def test_a_profile_with_thinking() -> None:
    with relay(THINKING, profile=replace(load("qwen3-32b+1.7b"), cues=("Thus",))) as pair:
        generation = pair.generate("?")
    assert generation.answer == "The answer is 4. Done now."
    assert generation.segments[1].text == " the sum is 3.14 or 4."


def test_leaving_a_stream_aborts_it() -> None:
    with relay() as pair:
        for event in pair.stream("?"):
            if isinstance(event, Text) and event.role == "large":
                break
        large = pair.engines["large"]
        assert isinstance(large, ScriptedEngine)
        assert large.aborted == 1
        assert len(large.released) == 1


def test_an_engine_that_drafts_has_no_margins_whatever_its_first_token_says() -> None:
    class Drafting(ScriptedEngine):
        async def info(self) -> EngineInfo:
            return replace(await super().info(), drafts=True)

    for large, small, role in (
        (ScriptedEngine(PLAIN), Drafting(PLAIN), "small"),
        (Drafting(PLAIN), ScriptedEngine(PLAIN), None),
    ):
        with Relay(large, small, policy=MarginPolicy.of(["So"], stay=0.8, leave=0.3)) as pair:
            if role is None:  # nobody reads the large model's
                assert pair.generate("?").answer == PLAIN
                continue
            with pytest.raises(EngineError, match="no log-probabilities") as caught:
                pair.generate("?")
            assert caught.value.role == role
            assert "switch speculative decoding off" in caught.value.hint
            assert isinstance(small, ScriptedEngine)
            assert small.requests == []


def test_margins_are_checked_before_they_are_used() -> None:
    class Scaling(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Piece:
            piece = super()._piece(id, top)
            scale = self.requests[-1].sampling.temperature or 1.0
            return replace(piece, top=tuple((i, p / scale) for i, p in piece.top))

    class Hiding(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Piece:
            return replace(super()._piece(id, top), top=())

    gate = OneShotPolicy.classic()
    for engine, hint in ((Scaling(PLAIN), "--logprobs-mode"), (Hiding(PLAIN), "speculative")):
        with Relay(ScriptedEngine(PLAIN), engine, policy=gate) as pair:
            with pytest.raises(EngineError) as caught:
                pair.generate("?")
            assert hint in caught.value.hint
            assert caught.value.role == "small"
            assert pair.generate("?", policy="relay").answer == PLAIN
    with relay(policy=gate) as pair:
        assert pair.generate("?").answer == PLAIN


def test_a_small_model_that_cannot_be_reached_fails_no_gated_request() -> None:
    class Dead(ScriptedEngine):
        async def render(self, conversation: Conversation) -> Prompt:
            raise EngineUnreachableError("refused")

    with Relay(ScriptedEngine(PLAIN), Dead(), policy=OneShotPolicy.classic()) as pair:
        generation = pair.generate("?")
    assert generation.answer == PLAIN
    assert any("refused" in note for note in generation.notes)


def test_benchmark_compares_pair_by_pair() -> None:
    with relay("We add. " + "Thus it is so and so on and on it goes. " * 3) as pair:
        measured = benchmark(pair, ["a", "b"], num_runs=3)
    assert len(measured.relay) == len(measured.large) == measured.speedup.count == 6
    assert measured.agreement == 1.0
    pairs = list(zip(measured.relay, measured.large, strict=True))
    ratios = [large.usage.seconds / ours.usage.seconds for ours, large in pairs]
    assert measured.speedup.median == statistics.median(ratios)
    assert (measured.speedup.lowest, measured.speedup.highest) == (min(ratios), max(ratios))
    per_token = [
        ratio * o.usage.completion_tokens / g.usage.completion_tokens
        for ratio, (o, g) in zip(ratios, pairs, strict=True)
    ]
    assert measured.ms_ratio.median == pytest.approx(statistics.median(per_token))
    assert 0.1 < measured.utilization.median < 0.5
    assert measured.handoffs.median == 6
    assert all(g.usage.small_tokens == 0 for g in measured.large)


def test_benchmark_needs_work() -> None:
    with relay() as pair:
        with pytest.raises(UsageError, match="at least one"):
            benchmark(pair, [])
        with pytest.raises(UsageError, match="at least one"):
            benchmark(pair, ["a"], num_runs=0)
        with pytest.raises(UsageError, match="no generation wrote"):
            Relay(ScriptedEngine(""), ScriptedEngine("")).run(_nothing())


async def _nothing() -> None:
    from relaygen._benchmark import abenchmark

    await abenchmark(Relay(ScriptedEngine(""), ScriptedEngine("")), ["a"], num_runs=1)


def test_bad_names_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match="no policy"):
        relay(policy="nope")
    with pytest.raises(UsageError, match="no profile"):
        relay(profile="nope")


def test_one_stop_string_is_no_list_of_letters() -> None:
    with relay() as pair:
        assert pair.task("?", stop="END").stop == ("END",)


def test_messages_are_looked_at_before_an_engine_sees_them() -> None:
    with relay() as pair:
        with pytest.raises(UsageError, match="no message"):
            pair.generate([])
        with pytest.raises(UsageError, match="Unicode"):
            pair.generate("?", system="\ud800")


def test_a_check_that_fails_holds_no_cache_slot() -> None:
    small = ScriptedEngine(PLAIN, failures=[Failure(EngineError("broken"))])
    pair = Relay(ScriptedEngine(PLAIN), small, policy=OneShotPolicy.classic())
    with pair, pytest.raises(EngineError, match="broken"):
        pair.generate("?")
    assert len(small.released) == 1
