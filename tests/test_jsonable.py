"""Events and results as plain data."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from relaygen import (
    Done,
    FellBack,
    Generation,
    HandedOff,
    Inserted,
    ModelUsage,
    Probed,
    Relay,
    Segment,
    StageChanged,
    Text,
    Usage,
    UsageError,
)
from relaygen._events import Event
from relaygen._jsonable import (
    estimate_dict,
    event_dict,
    generation_dict,
    json_line,
    usage_dict,
    usage_from,
)
from relaygen.costs import Costs, ceiling
from relaygen.engines.scripted import ScriptedEngine

USAGE = Usage(
    large=ModelUsage(tokens=6, requests=2, seconds=2.0, decode_seconds=0.5, decoded=5),
    small=ModelUsage(tokens=3, discarded=1, requests=1, decode_seconds=0.1, decoded=2),
    prompt_tokens=7,
    inserted_tokens=1,
    reasoning_tokens=4,
    handoffs=2,
    seconds=4.0,
    first_token_seconds=0.25,
    first_answer_seconds=1.0,
)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Text("é", "large", "answer"), {"text": "é", "role": "large", "stage": "answer"}),
        (
            HandedOff("large", "small", "delegate", "cue", "So", 12, 1, 0.5),
            {
                "source": "large",
                "target": "small",
                "kind": "delegate",
                "why": "cue",
                "cue": "So",
                "token": 12,
                "discarded": 1,
                "seconds": 0.5,
            },
        ),
        (Probed("small", None, 0.1), {"role": "small", "margin": None, "seconds": 0.1}),
        (
            Inserted("end_of_thinking", "</think>", 3, "budget"),
            {"marker": "end_of_thinking", "text": "</think>", "tokens": 3, "why": "budget"},
        ),
        (StageChanged("answer", 9), {"stage": "answer", "token": 9}),
        (FellBack("small", "gone", 9), {"role": "small", "error": "gone", "token": 9}),
    ],
)
def test_an_event_has_its_type_first_and_all_its_fields(
    event: Event, expected: dict[str, object]
) -> None:
    made = event_dict(event)
    assert next(iter(made)) == "type"
    assert made == {"type": event.type, **expected}


def test_done_holds_the_generation() -> None:
    generation = Generation("ab", "", "ab", (), USAGE, "stop", ("a note",))
    made = event_dict(Done(generation))
    assert made == {"type": "done", "generation": generation_dict(generation)}
    assert made["generation"]["notes"] == ["a note"]


def test_a_generation_with_all_its_parts() -> None:
    segment = Segment("small", "answer", "ab", (1, None), "So", "cue", 0.5)
    made = generation_dict(Generation("ab", "r", "ab", (segment,), USAGE, "length"))
    assert made["segments"] == [
        {
            "role": "small",
            "stage": "answer",
            "text": "ab",
            "tokens": 2,
            "ids": [1, None],
            "cue": "So",
            "why": "cue",
            "seconds": 0.5,
        }
    ]
    assert (made["text"], made["reasoning"], made["answer"]) == ("ab", "r", "ab")
    assert made["finish"] == "length"


def test_usage_has_counts_shares_and_both_models() -> None:
    made = usage_dict(USAGE)
    assert made["completion_tokens"] == 10
    assert made["discarded_tokens"] == 1
    assert made["utilization"] == pytest.approx(6 / 9)
    assert made["ms_per_token"] == pytest.approx(400)
    assert made["large"]["decode_ms"] == pytest.approx(100)
    assert made["small"]["catch_up_ms"] is None
    for field in fields(Usage):
        assert field.name in made
    for field in fields(ModelUsage):
        assert field.name in made["large"]


def test_estimates_are_the_cost_models() -> None:
    made = estimate_dict(USAGE)
    assert made["large_alone_seconds"] == pytest.approx(0.25 + 9 * 0.1)
    assert made["speedup"] == pytest.approx(1.15 / 4)
    for devices, name in ((1, "ceiling_one_device"), (2, "ceiling_two_devices")):
        best = ceiling(Costs(100.0, 50.0), 6 / 9, devices=devices)
        assert made[name] == pytest.approx(best)
    assert estimate_dict(Usage()) == dict.fromkeys(made)


def test_one_line_in_any_alphabet() -> None:
    script = "Erst „zwei“.\nSo, 三 plus 四 = 七。\nThus: done."
    with Relay(ScriptedEngine(script), ScriptedEngine(script)) as relay:
        lines = [json_line(event_dict(event)) for event in relay.stream("?")]
    assert all("\n" not in line for line in lines)
    done = json.loads(lines[-1])
    assert done["generation"]["text"] == script
    assert "三 plus" in lines[-1]
    shown = [json.loads(line) for line in lines[:-1]]
    assert "".join(event["text"] for event in shown if event["type"] == "text") == script


def test_usage_comes_back_from_its_file() -> None:
    assert usage_from(json.loads(json_line(usage_dict(USAGE)))) == USAGE
    assert usage_from(usage_dict(Usage())) == Usage()


def test_files_older_than_a_count_are_read() -> None:
    made = usage_dict(USAGE)
    for role in ("large", "small"):
        del made[role]["drafted"], made[role]["accepted"], made[role]["acceptance"]
        del made[role]["prewarms"]
    assert usage_from(made) == USAGE
    drafting = Usage(ModelUsage(drafted=4, accepted=3))
    assert usage_dict(drafting)["large"]["acceptance"] == 0.75
    assert usage_from(usage_dict(drafting)) == drafting


@pytest.mark.parametrize(
    "change",
    [
        {"large": None},
        {"small": {"tokens": 3}},
        {"seconds": "4"},
        {"handoffs": True},
        {"paused": 0},
    ],
)
def test_another_usage_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        usage_from(usage_dict(USAGE) | change)
