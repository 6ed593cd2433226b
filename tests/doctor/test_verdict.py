from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen._checks import Finding
from relaygen._types import EngineInfo
from relaygen.costs import Costs
from relaygen.doctor import Report, report_dict, status, verdict
from relaygen.doctor._report import FORM, Answered, Rollback, Sample, Speed
from relaygen.forecast import Setup, forecast

GOOD = Finding("ok", "", "1.40x", check="gain")
SLOWER = Finding("against", "", "not faster", "take another", "gain")
CLOSED = Finding("error", "large", "no thinking", "another template", "thinking")
SHORT = Finding("warning", "small", "its context is short", "make it longer", "context")
HIDDEN = Finding("note", "large", "hides its counts", "show them", "prefix-cache")
UNCACHED = Finding("warning", "small", "no cache", "cache", "prefix-cache")
LOST = Finding("error", "large", "cannot be reached", "requests fail", "reachable")
ALONE = Finding("warning", "small", "no answer", "the large goes on", "reachable")


def report(*findings: Finding, complete: bool = True, **given: Any) -> Report:
    return Report("p", "relay", findings=list(findings), complete=complete, **given)


@pytest.mark.parametrize(
    ("findings", "answer", "code"),
    [
        ([GOOD], "use it", 0),
        ([GOOD, HIDDEN], "use it", 0),
        ([GOOD, SHORT], "use it after changing", 0),
        ([GOOD, SHORT, CLOSED], "use it after changing", 1),
        ([SLOWER, SHORT, CLOSED], "don't", 1),
        ([LOST], "cannot tell", 5),
        ([ALONE, SLOWER], "cannot tell", 5),
        ([HIDDEN], "cannot tell", 1),  # whether it gains anything is not known
        ([SHORT, CLOSED], "use it after changing", 1),
    ],
)
def test_verdicts_and_exit_statuses(findings: list[Finding], answer: str, code: int) -> None:
    assert verdict(report(*findings)).answer == answer
    assert status(report(*findings)) == code


def test_a_verdict_says_why_and_what_to_change() -> None:
    told = verdict(report(SHORT, CLOSED, HIDDEN))
    assert told.why == ("large: no thinking",)  # the gravest
    assert told.change == ("large: another template", "small: make it longer")
    assert verdict(report(SLOWER, SHORT)).change == ("take another",)
    assert verdict(report(SLOWER, UNCACHED)).change == ("take another", "small: cache")
    assert verdict(report(GOOD)).why == ("1.40x",)


def test_who_does_not_answer_has_its_own_remedy() -> None:
    keyless = Finding("error", "large", "answered 401", "give the key", "reachable")
    dead = Finding("warning", "small", "cannot be reached", "", "reachable")
    assert verdict(report(keyless, dead)).change == (
        "large: give the key",
        "small: start the engine, or name another address",
    )


def test_the_same_thing_is_said_once() -> None:
    assert verdict(report(SHORT, SHORT)).change == ("small: make it longer",)


def test_what_was_broken_off_has_no_verdict_unless_it_is_bad() -> None:
    assert verdict(report(GOOD, SHORT, complete=False)).answer == "cannot tell"
    assert verdict(report(CLOSED, complete=False)).answer == "use it after changing"
    assert verdict(report(SLOWER, complete=False)).answer == "don't"


FINDINGS = st.lists(st.sampled_from([GOOD, SLOWER, CLOSED, SHORT, HIDDEN, LOST, ALONE]))


@given(FINDINGS, st.booleans())
def test_the_status_follows_the_verdict(findings: list[Finding], complete: bool) -> None:
    made = report(*findings, complete=complete)
    answer, code = verdict(made).answer, status(made)
    assert (code == 5) == (LOST in findings or ALONE in findings)
    if answer == "use it":
        assert code == 0
    if answer == "don't":
        assert code == 1


def keys(value: Any) -> Any:
    """The shape of a document."""
    if isinstance(value, dict):
        return {name: keys(each) for name, each in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value else None


def whole() -> Report:
    costs = Costs(40.0, 6.0, 0.3, 0.05)
    made = report(GOOD, SHORT, level="fast")
    for role in ("large", "small"):
        made.infos[role] = EngineInfo("m", 4096, "v", kind="vllm", version="0.32.0")
        made.speeds[role] = Speed(40.0, 0.3, 5.0, 700)
        made.rollbacks[role] = Rollback("free", 1, 1, 700)
    made.costs, made.handoff_ms = costs, 5.0
    made.sample = Sample([Answered(60, 900, "stop", 6, 3, 4, (3,), {"So": 2}, True)], ("So", "Now"))
    made.forecast = forecast(Setup(costs, 0.7, 40.0, 5.0))
    return made


def test_the_document() -> None:
    told = json.loads(json.dumps(report_dict(whole())))
    assert told["form"] == FORM == "relaygen doctor 1"
    assert told["verdict"] == {
        "answer": "use it after changing",
        "why": ["small: its context is short"],
        "change": ["small: make it longer"],
    }
    assert told["engines"]["small"]["version"] == "0.32.0"
    assert told["engines"]["large"]["speed"]["decode_ms"] == 40.0
    assert told["findings"][1] == {
        "check": "context",
        "level": "warning",
        "role": "small",
        "text": "its context is short",
        "hint": "make it longer",
    }
    assert told["sample"]["cues"] == {"So": 2, "Now": 0}
    assert told["gain"]["ceiling"] > told["gain"]["speedup"] > 1.0


def test_what_is_not_known_is_null_under_the_same_key() -> None:
    full, empty = report_dict(whole()), report_dict(report(LOST, complete=False))
    assert list(full) == list(empty)
    assert list(full["gain"]) == list(empty["gain"])
    assert empty["engines"] == {"large": None, "small": None}
    assert empty["sample"] is empty["level"] is empty["gain"]["speedup"] is None
    assert empty["findings"][0]["hint"] == "requests fail"


def test_its_shape_is_a_promise() -> None:
    assert keys(report_dict(whole())) == {
        "form": None,
        "verdict": {"answer": None, "why": None, "change": None},
        "status": None,
        "complete": None,
        "quick": None,
        "profile": None,
        "policy": None,
        "level": None,
        "engines": {
            role: {
                **dict.fromkeys(("model", "kind", "version", "context", "slots")),
                "rollback": dict.fromkeys(("cost", "extended", "dropped", "text_tokens")),
                "speed": dict.fromkeys(
                    ("decode_ms", "read_ms", "request_ms", "text_tokens", "rereads")
                ),
            }
            for role in ("large", "small")
        },
        "findings": [dict.fromkeys(("check", "level", "role", "text", "hint"))],
        "gain": dict.fromkeys(
            ("devices", "handoff_ms", "speedup", "ceiling", "break_even_segment_tokens")
        ),
        "sample": {
            "utilization": None,
            "handoffs_per_1000": None,
            "cues": {"So": None, "Now": None},
            "answers": [
                {
                    **dict.fromkeys(("prompt_tokens", "tokens", "finish", "large", "small")),
                    **dict.fromkeys(("handoffs", "segments", "same")),
                    "cues": {"So": None},
                }
            ],
        },
    }
