from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen._files import append
from relaygen._jsonable import usage_dict
from relaygen._results import Finish, Generation, ModelUsage, Segment, Usage
from relaygen.evaluate._results import Part, Result, parts, read, settled

DONE = Result("q", 0, "relay", 3, 17, 1, "4", "", "stop", True, "4", usage_dict(Usage()))

RESULTS = st.builds(
    Result,
    item=st.text(),
    run=st.integers(0, 9),
    arm=st.sampled_from(["large", "relay@balanced"]),
    order=st.integers(0, 99),
    seed=st.integers(0, 2**31 - 1),
    at_once=st.integers(1, 8),
    answer=st.text(),
    reasoning=st.text(),
    finish=st.none() | st.sampled_from(get_args(Finish)),
    correct=st.none() | st.booleans(),
    extracted=st.none() | st.text(),
    usage=st.none() | st.just(usage_dict(Usage(large=ModelUsage(tokens=3)))),
    segments=st.lists(
        st.builds(
            Part,
            st.sampled_from(["large", "small", "inserted"]),
            st.sampled_from(["reasoning", "answer"]),
            *(st.text() for _ in range(3)),
            st.integers(0, 9),
            st.floats(0, 9),
        ),
        max_size=3,
    ).map(tuple),
    error=st.none() | st.text(),
)


@settings(deadline=None)
@given(RESULTS)
def test_a_result_survives_json(result: Result) -> None:
    line = json.dumps(result.to_json(), allow_nan=False)
    assert Result.from_json(json.loads(line)) == result


def test_results_are_appended_and_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert read(path) == []
    both = [
        DONE,
        replace(DONE, arm="large", segments=(Part("large", "answer", "", "", "4", 1, 0.5),)),
    ]
    for each in both:
        append(path, each.to_json(), durable=True)
    assert read(path) == both
    with path.open("ab") as file:
        file.write(b'{"item": "q", "ru')
    assert read(path) == both


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"run": "x"}, "'run'"),
        ({"finish": "done"}, "'finish'"),
        ({"segments": [["large", "answer"]]}, "'segments"),
        ({"segments": [["huge", "answer", "", "", "", 1, 0.1]]}, "'segments"),
        ({"item": None}, "'item'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = tmp_path / "results.jsonl"
    append(path, DONE.to_json())
    append(path, {**DONE.to_json(), **change})
    with pytest.raises(UsageError, match="line 2") as caught:
        read(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_segments_of_a_generation() -> None:
    segment = Segment("small", "reasoning", " so", (1, 2), "Thus", "cue", 0.25)
    generation = Generation(" so", " so", "", (segment,), Usage(), "stop")
    assert parts(generation) == (Part("small", "reasoning", "cue", "Thus", " so", 2, 0.25),)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=8))
def test_an_answer_counts_before_any_failure(tries: list[tuple[str, bool]]) -> None:
    results = [
        replace(DONE, item=item, order=order, error=None if good else "gone")
        for order, (item, good) in enumerate(tries)
    ]
    found = settled(results)
    for item in "ab":
        mine = [result for result in results if result.item == item]
        good = [result for result in mine if result.error is None]
        expected = good[0] if good else mine[-1] if mine else None
        assert found.get((item, 0, "relay")) == expected
