from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relaygen import Limits, Relay
from relaygen._errors import EngineError, UsageError
from relaygen._progress import Step
from relaygen._types import Sampling
from relaygen.calibrate import Trace
from relaygen.calibrate._records import read
from relaygen.calibrate._traces import (
    Question,
    fold_of,
    import_traces,
    load_questions,
    trace_seed,
    write_traces,
)
from relaygen.engines.scripted import Failure, ScriptedEngine, ScriptedTokenizer

pytestmark = pytest.mark.anyio
SCRIPT = "First we add é. Thus it is 4."
THINKING = "<think>\nWe add. So it is 4.\n</think>\n\nIt is 4."
QUESTIONS = [Question(f"q{n}", f"What is {n}?") for n in range(6)]


class Spelled(ScriptedEngine):
    """It can tell the bytes of ids."""

    async def data(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        return tuple(map(ScriptedTokenizer().data, ids))


def relay(script: str = SCRIPT, profile: str = "embedded", **options: Any) -> Relay:
    large = Spelled(script, **options)
    return Relay(large=large, small=ScriptedEngine(""), profile=profile)


def large(of: Relay) -> ScriptedEngine:
    engine = of.engines["large"]
    assert isinstance(engine, ScriptedEngine)
    return engine


async def test_traces_are_what_the_large_model_writes(tmp_path: Path) -> None:
    steps: list[Step] = []
    made = relay()
    path = tmp_path / "t.jsonl"
    found = await write_traces(made, QUESTIONS, path, seed=3, progress=steps.append)
    assert read(path, Trace) == found
    assert [each.id for each in found] == [each.id for each in QUESTIONS]
    for question, trace in zip(QUESTIONS, found, strict=True):
        assert trace.text == SCRIPT
        assert trace.ids == ScriptedTokenizer().encode(SCRIPT)
        assert trace.pieces == tuple(map(ScriptedTokenizer().data, trace.ids))
        prompt = b"".join(map(ScriptedTokenizer().data, trace.prompt_ids)).decode()
        assert prompt == (
            f"<user>{question.question}\n\nPlease reason step by step, and put your final answer "
            "within \\boxed{}.<assistant>"
        )
        assert (trace.finish, trace.model, trace.question) == (
            "stop",
            "scripted",
            question.question,
        )
        assert trace.seed == trace_seed(3, question.id, 0)
        assert trace.fold == fold_of(3, question.id)
    requests = large(made).requests
    assert [each.seed for each in requests] == [each.seed for each in found]
    assert all(each.fresh for each in requests)
    assert [step.done for step in steps] == list(range(7))
    assert {step.total for step in steps} == {6}
    assert steps[0].left is None
    assert steps[-1].left == 0


async def test_what_is_there_is_not_asked_again(tmp_path: Path) -> None:
    whole, path = tmp_path / "w.jsonl", tmp_path / "t.jsonl"
    await write_traces(relay(), QUESTIONS, whole, seed=3)
    data = whole.read_bytes()
    for cut in (0, 1, len(data) // 2, data.index(b"\n") + 1, len(data) - 1, len(data)):
        path.write_bytes(data[:cut])
        again = relay()
        await write_traces(again, QUESTIONS, path, seed=3)
        assert path.read_bytes() == data
        assert len(large(again).requests) == 6 - data[:cut].count(b"\n")


async def test_a_failure_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    failing = relay(failures=[Failure(EngineError("gone"), request=2, token=3)])
    with pytest.raises(EngineError, match="gone"):
        await write_traces(failing, QUESTIONS, path, seed=3)
    assert [each.id for each in read(path, Trace)] == ["q0", "q1"]


async def test_several_at_once_come_in_order(tmp_path: Path) -> None:
    one, many = tmp_path / "1.jsonl", tmp_path / "n.jsonl"
    await write_traces(relay(), QUESTIONS, one, seed=3)
    await write_traces(relay(token_ms=0.1), QUESTIONS, many, seed=3, parallel=4)
    assert one.read_bytes() == many.read_bytes()


async def test_runs_have_seeds_of_their_own_and_one_fold(tmp_path: Path) -> None:
    made = relay()
    made.profile = replace(made.profile, sampling=Sampling(temperature=0.6))
    found = await write_traces(made, QUESTIONS, tmp_path / "t.jsonl", seed=3, runs=3)
    assert len({each.id for each in found}) == len({each.seed for each in found}) == 18
    folds = {(each.question, each.fold) for each in found}
    assert len(folds) == 6
    assert {fold_of(seed, "q") for seed in range(20)} == {0, 1}


async def test_ids_that_runs_would_share_are_refused(tmp_path: Path) -> None:
    made = relay()
    made.profile = replace(made.profile, sampling=Sampling(temperature=0.6))
    asked = [Question("a", "One ?"), Question("a#1", "Two ?")]
    path = tmp_path / "t.jsonl"
    with pytest.raises(UsageError, match="number of a run"):
        await write_traces(made, asked, path, seed=3, runs=2)
    assert not path.exists()
    assert len(await write_traces(made, asked, path, seed=3)) == 2


async def test_budgets_and_inserted_ends(tmp_path: Path) -> None:
    cut = await write_traces(
        relay(), QUESTIONS[:1], tmp_path / "c.jsonl", seed=1, limits=Limits(max_tokens=3)
    )
    assert (cut[0].text, cut[0].finish) == ("First we add", "length")
    # The thinking is closed by the loop, and the model goes on behind it.
    made = relay(profile="qwen3-32b+1.7b", script="")
    made.engines = {"large": Spelled(free=_thinks)}
    limits = Limits(max_tokens=40, max_reasoning_tokens=5)
    (trace,) = await write_traces(made, QUESTIONS[:1], tmp_path / "i.jsonl", seed=1, limits=limits)
    assert trace.text == "<think> on on on on\n</think>\n\n done"
    assert trace.pieces == tuple(map(ScriptedTokenizer().data, trace.ids))
    assert b"</think>" in trace.pieces
    made.engines = {"large": ScriptedEngine(free=_thinks)}  # it cannot tell the bytes of ids
    (other,) = await write_traces(made, QUESTIONS[:1], tmp_path / "o.jsonl", seed=1, limits=limits)
    assert (other.text, other.ids) == (trace.text, trace.ids)


def _thinks(text: str) -> str:
    if "</think>" in text:
        return "" if "done" in text else " done"
    return " on" if text else "<think>"


async def test_thinking_is_part_of_the_trace(tmp_path: Path) -> None:
    made = relay(THINKING, profile="qwen3-32b+1.7b")
    (trace,) = await write_traces(made, QUESTIONS[:1], tmp_path / "t.jsonl", seed=1)
    assert trace.text == THINKING


async def test_a_file_of_another_call_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    await write_traces(relay(), QUESTIONS[:2], path, seed=3)
    with pytest.raises(UsageError, match="another seed"):
        await write_traces(relay(), QUESTIONS, path, seed=4)
    path.write_text(path.read_text().replace('"scripted"', '"other"'))
    with pytest.raises(UsageError, match="holds traces of other"):
        await write_traces(relay(), QUESTIONS, path, seed=3)


async def test_senseless_calls_are_refused(tmp_path: Path) -> None:
    for wrong in ({"runs": 0}, {"runs": 2}, {"parallel": 0}, {"prompt_template": "no"}):
        with pytest.raises(UsageError):
            await write_traces(relay(), QUESTIONS, tmp_path / "t.jsonl", seed=1, **wrong)
    with pytest.raises(UsageError, match="hides"):
        await write_traces(relay(text_only=True), QUESTIONS, tmp_path / "t.jsonl", seed=1)


def test_the_shipped_questions() -> None:
    shipped = load_questions()
    assert len(shipped) == len({each.question for each in shipped}) == 24


def test_questions_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "A?"}\n{"id": 7, "question": "B?"}')
    assert load_questions(path) == [Question("1", "A?"), Question("7", "B?")]
    for wrong in (
        "",
        '{"question": ""}',
        '{"a": 1}',
        '{"id":1,"question":"a"}\n{"id":1,"question":"b"}',
    ):
        path.write_text(wrong)
        with pytest.raises(UsageError):
            load_questions(path)


async def test_traces_of_other_tools(tmp_path: Path) -> None:
    source, path = tmp_path / "o.jsonl", tmp_path / "t.jsonl"
    rows = [
        {"question": "One?", "text": "So é.", "finish": "length"},
        {"prompt": "Two!", "response": THINKING, "id": "mine"},
        {"question": "One?", "completion": "Thus 1."},
    ]
    source.write_text("\n".join(map(json.dumps, rows)))
    found = await import_traces(relay(), source, path, seed=3, prompt_template="<{question}>")
    assert read(path, Trace) == found
    assert [each.text for each in found] == ["So é.", THINKING, "Thus 1."]
    assert [each.finish for each in found] == ["length", "stop", "stop"]
    said = [b"".join(map(ScriptedTokenizer().data, each.prompt_ids)).decode() for each in found]
    assert said == [f"<user>{what}<assistant>" for what in ("<One?>", "Two!", "<One?>")]
    assert found[0].fold == found[2].fold
    assert found[1].id == "mine"
    before = path.read_bytes()
    assert (
        await import_traces(relay(), source, path, seed=3, prompt_template="<{question}>") == found
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"question": "a"}, "'text'"),
        ({"text": "a"}, "'prompt'"),
        ({"prompt": 3, "text": "a"}, "'prompt'"),
    ],
)
async def test_unusable_lines_of_other_tools(
    tmp_path: Path, row: dict[str, Any], says: str
) -> None:
    source = tmp_path / "o.jsonl"
    source.write_text(json.dumps(row))
    with pytest.raises(UsageError, match=f"line 1.*{says}"):
        await import_traces(relay(), source, tmp_path / "t.jsonl", seed=3)


async def test_ids_of_other_tools(tmp_path: Path) -> None:
    source, path = tmp_path / "o.jsonl", tmp_path / "t.jsonl"
    rows = [{"question": "a", "text": f"So {n}.", "id": None} for n in range(2)]
    source.write_text("\n".join(map(json.dumps, rows)))
    found = await import_traces(relay(), source, path, seed=3)
    assert [each.text for each in found] == ["So 0.", "So 1."]
    # The second of two with one id would be lost without a word.
    rows = [{"question": "a", "text": f"So {n}.", "id": "a"} for n in range(2)]
    source.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UsageError, match="line 2: the id 'a' is there twice"):
        await import_traces(relay(), source, tmp_path / "other.jsonl", seed=3)
