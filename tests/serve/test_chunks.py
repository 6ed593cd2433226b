from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen import Text
from relaygen._events import FellBack, HandedOff, Inserted, Probed, StageChanged
from relaygen._types import Stage, ToolCall, Writer
from relaygen.serve._chunks import Chunks, error_events
from relaygen.serve._responses import Heading
from relaygen.serve._settings import ReasoningField
from relaygen.serve._tools import Content

from .test_responses import ORDER

WRITERS: tuple[Writer, ...] = get_args(Writer)
STAGES: tuple[Stage, ...] = get_args(Stage)


def chunks(field: ReasoningField = "both", *, annotate: bool = True) -> Chunks:
    return Chunks(ORDER, Heading(ORDER), field, annotate=annotate)


def data(event: bytes) -> Any:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event.removeprefix(b"data: "))


@given(st.text())
def test_any_text_is_one_event_and_comes_out_as_it_went_in(text: str) -> None:
    made = chunks()
    for writer in WRITERS:
        for stage in STAGES:
            chunk = data(made.text(Text(text, writer, stage)))
            delta = chunk["choices"][0]["delta"]
            names = {"content"} if stage == "answer" else {"reasoning_content", "reasoning"}
            assert delta == dict.fromkeys(names, text)
            assert chunk["relay"] == {"model": writer, "stage": stage}


def test_frames_are_made_once_and_not_mixed_up() -> None:
    made = chunks("reasoning")
    first = made.text(Text("a", "large", "answer"))
    made.text(Text("b", "small", "reasoning"))
    assert made.text(Text("a", "large", "answer")) == first


@pytest.mark.parametrize("annotate", [True, False])
def test_a_call(annotate: bool) -> None:
    made = chunks(annotate=annotate)
    where = Text("", "small", "answer")
    call = ToolCall("call_1", "f", '{"a": "\\n"}')
    head, arguments = made.part(call, where).split(b"\n\n")[:2]
    named = data(head + b"\n\n")["choices"][0]["delta"]["tool_calls"]
    assert named == [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    ]
    filled = data(arguments + b"\n\n")
    assert filled["choices"][0]["delta"]["tool_calls"] == [
        {"index": 0, "function": {"arguments": '{"a": "\\n"}'}}
    ]
    assert ("relay" in filled) is annotate
    assert b'"index":1' in made.part(call, where).split(b"\n\n")[0].partition(b"tool_calls")[2]
    assert b'"content":"x"' in made.part(Content("x"), where)


HANDED = HandedOff("large", "small", "delegate", "cue", "So", 12, 1, 0.25)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            HANDED,
            {
                "event": "handoff",
                "source": "large",
                "target": "small",
                "kind": "delegate",
                "why": "cue",
                "cue": "So",
                "token": 12,
                "discarded": 1,
                "seconds": 0.25,
            },
        ),
        (StageChanged("answer", 40), {"event": "stage", "stage": "answer", "token": 40}),
        (
            Inserted("end_of_thinking", "</think>", 2, "budget"),
            {
                "event": "insertion",
                "marker": "end_of_thinking",
                "text": "</think>",
                "tokens": 2,
                "why": "budget",
            },
        ),
    ],
)
def test_what_happens_beside_the_text_is_told_without_text(event: Any, told: Any) -> None:
    chunk = data(chunks().told(event))
    assert chunk["relay"] == told
    assert chunk["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]
    assert chunks(annotate=False).told(event) == b""


def test_what_names_an_engine_or_shows_nothing_is_not_told() -> None:
    assert chunks().told(FellBack("small", "http://10.0.0.5:1 refused", 3)) == b""
    assert chunks().told(Probed("small", 0.5, 0.1)) == b""


def test_an_error_is_an_event_and_an_end() -> None:
    event, end, rest = error_events({"error": {"message": "a\nb"}}).split(b"\n\n")
    assert data(event + b"\n\n") == {"error": {"message": "a\nb"}}
    assert (end, rest) == (b"data: [DONE]", b"")
