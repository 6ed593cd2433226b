from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relaygen._results import Finish, Generation, ModelUsage, Usage
from relaygen._task import Task
from relaygen._types import Conversation, Message, ToolCall
from relaygen.policies import LargeOnly, RandomPolicy
from relaygen.serve._responses import (
    FINISH_REASONS,
    Heading,
    cached_share,
    completion,
    relay_dict,
    usage_dict,
)
from relaygen.serve._tasks import Order

ORDER = Order(
    Task(Conversation((Message("user", "?"),)), LargeOnly()),
    "relaygen@large",
    "large",
    stream=False,
    include_usage=False,
    annotate=None,
)
CALL = ToolCall("call_1", "add", '{"a":1}')


def usage(**models: Any) -> Usage:
    return Usage(**models, prompt_tokens=10, inserted_tokens=2, reasoning_tokens=4)


def generation(made: Usage, *, finish: Finish = "stop", reasoning: str = "Hm.") -> Generation:
    return Generation(
        "Hm.3", reasoning, "3", (), made, finish, ("http://10.0.0.5:1 did something",)
    )


@pytest.mark.parametrize(
    ("model", "share"),
    [
        (ModelUsage(), None),
        (ModelUsage(cached=5), None),
        (ModelUsage(evaluated=5), None),
        (ModelUsage(cached=0, evaluated=0), None),
        (ModelUsage(cached=0, evaluated=5), 0.0),
        (ModelUsage(cached=15, evaluated=5), 0.75),
    ],
)
def test_a_hidden_cache_has_no_share(model: ModelUsage, share: float | None) -> None:
    assert cached_share(model) == share


def test_what_was_drafted() -> None:
    made = usage(large=ModelUsage(drafted=9, accepted=6), small=ModelUsage())
    assert relay_dict(ORDER, generation(made))["speculation"] == {
        "large": {"drafted": 9, "accepted": 6},
        "small": None,
    }


def test_counts_add_up() -> None:
    made = usage(large=ModelUsage(tokens=5, requests=2, discarded=1), small=ModelUsage(tokens=3))
    assert usage_dict(made) == {
        "prompt_tokens": 10,
        "completion_tokens": 10,
        "total_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    relay = relay_dict(ORDER, generation(made))
    assert relay["tokens"] == {"large": 5, "small": 3, "inserted": 2, "discarded": 1}
    assert relay["utilization"] == 5 / 8
    assert relay["notes"] == ["its server did something"]


RELAYED = replace(ORDER, task=replace(ORDER.task, policy=RandomPolicy(0.5)))


def test_the_estimate_for_the_large_model_alone_is_never_clipped() -> None:
    large = ModelUsage(tokens=11, decoded=10, decode_seconds=1.0)
    made = Usage(large=large, small=ModelUsage(tokens=10), seconds=4.2, first_token_seconds=0.1)
    told = relay_dict(RELAYED, generation(made))["estimate"]
    assert told == pytest.approx({"large_alone": 2.1, "speedup": 0.5})
    assert relay_dict(ORDER, generation(made))["estimate"] == dict.fromkeys(told)


def test_no_estimate_where_the_large_model_wrote_too_little() -> None:
    told = relay_dict(RELAYED, generation(usage()))["estimate"]
    assert told == {"large_alone": None, "speedup": None}


@pytest.mark.parametrize("role", ["large", "small"])
def test_cached_tokens_of_the_one_request(role: str) -> None:
    made = usage(**{role: ModelUsage(tokens=5, requests=1, cached=12)})
    assert usage_dict(made)["prompt_tokens_details"] == {"cached_tokens": 10}
    hidden = usage(**{role: ModelUsage(tokens=5, requests=1)})
    assert "prompt_tokens_details" not in usage_dict(hidden)


def test_why_delegation_was_paused() -> None:
    made = usage()
    assert relay_dict(ORDER, generation(made))["paused"] is None
    made.paused = "it did not pay"
    assert relay_dict(ORDER, generation(made))["paused"] == "it did not pay"


@pytest.mark.parametrize("finish", FINISH_REASONS)
def test_reasons_are_openais(finish: Finish) -> None:
    body = completion(ORDER, generation(usage(), finish=finish), Heading(ORDER), field="reasoning")
    assert body["choices"][0]["finish_reason"] in ("stop", "length")
    # A whole reply was not cancelled: the server ended the models behind what was asked for.
    assert body["relay"]["finish"] == ("stop" if finish == "cancelled" else finish)


def test_a_guarded_loop_is_no_whole_answer() -> None:
    assert FINISH_REASONS["repetition"] == "length"


def test_no_reasoning_no_field() -> None:
    made = completion(
        ORDER, generation(usage(), reasoning=""), Heading(ORDER), field="reasoning_content"
    )
    assert made["choices"][0]["message"] == {"role": "assistant", "content": "3"}


@pytest.mark.parametrize(("content", "shown"), [("I add.", "I add."), ("", None)])
def test_calls(content: str, shown: str | None) -> None:
    made = completion(
        ORDER,
        generation(usage()),
        Heading(ORDER),
        field="reasoning_content",
        content=content,
        calls=[CALL],
    )
    choice = made["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == shown
    assert choice["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    ]
