"""Arms in turn on engines of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from relaygen import Relay, UsageError
from relaygen._progress import Step
from relaygen.bench._live import LiveResult, live_dict, measure_live
from relaygen.engines.scripted import ScriptedEngine
from tests.support import THINKING

QUESTIONS = ("One?", "Two?")


def run(steps: list[Step], records: list[Mapping[str, Any]], questions: Any) -> LiveResult:
    async def work() -> LiveResult:
        engines = ScriptedEngine(THINKING), ScriptedEngine(THINKING)
        async with Relay(*engines, profile="qwen3-32b+1.7b") as relay:
            return await measure_live(
                relay, questions, runs=2, progress=steps.append, each=records.append
            )

    return asyncio.run(work())


def test_arms_take_turns_and_every_answer_is_told() -> None:
    steps: list[Step] = []
    records: list[Mapping[str, Any]] = []
    result = run(steps, records, QUESTIONS)
    arms = [record["arm"] for record in records]
    pairs = list(zip(arms[::2], arms[1::2], strict=True))
    assert all(set(pair) == {"large", "relay"} for pair in pairs)
    assert len(pairs) == 4
    assert len(set(pairs)) == 2  # neither is always the second
    assert [step.done for step in steps] == list(range(9))
    assert {record["utilization"] for record in records if record["arm"] == "large"} == {1.0}
    assert all(record["handoffs"] > 0 for record in records if record["arm"] == "relay")
    assert [arm.name for arm in result.arms] == ["large", "relay"]
    assert [arm.seconds.count for arm in result.arms] == [4, 4]


def test_figures_are_kept_apart() -> None:
    result = run([], [], QUESTIONS)
    large, relay = result.arms
    told = live_dict(result)
    assert told["kind"] == "live"
    assert large.tokens == relay.tokens  # both engines write one script
    assert told["agreement"] == 1.0
    assert told["utilization"]["highest"] < 1.0
    assert told["ms_ratio"]["count"] == told["speedup"]["count"] == 4
    assert told["arms"][0]["ms_per_token"]["median"] > 0


def test_nothing_to_ask_is_refused() -> None:
    with pytest.raises(UsageError):
        run([], [], ())
