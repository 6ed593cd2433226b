"""The steps of a calibration over scripted engines: resumed, repeated, refused."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relaygen import EngineError, Relay, UsageError
from relaygen._files import write
from relaygen._progress import Step
from relaygen.calibrate import Scores, Trace
from relaygen.calibrate._folder import FREE, Folder, Settings
from relaygen.calibrate._outcome import Calibration, CueResult, Held, Level, Point, Rule, Steered
from relaygen.calibrate._records import read
from relaygen.calibrate._traces import Question
from relaygen.engines.detect import DetectedEngine
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.profiles import load, make_policy

from .killing import FILES, contents
from .talking import QUESTIONS, Talker, everything, job, relay


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole calibration, for tests that only look."""
    folder = tmp_path_factory.mktemp("whole")
    asyncio.run(everything(job(folder), relay()))
    return folder


def test_all_steps_leave_their_files_and_a_profile_that_works(done: Path) -> None:
    assert {one.name for one in (done / "work").iterdir()} == {
        *FILES,
        "questions.jsonl",
        "settings.json",
        "engines.json",
    }
    profile = load(done / "mine.toml")
    assert profile.name == "mine"
    assert set(profile.levels) == {"careful", "balanced", "fast"}
    assert profile.cues
    assert make_policy("relay", profile.at("balanced")).name == "relay"
    told = profile.provenance
    assert set(told.cues) >= set(profile.cues)
    assert "scripted" in told.scorer
    assert "12 of 24, sha256 00" in told.questions
    assert any("12 by scripted (scripted)" in note for note in told.notes)
    assert any("\\boxed{}" in note for note in told.notes)


def test_the_question_reaches_the_model_with_a_real_backslash(tmp_path: Path) -> None:
    talking = relay()
    one = job(tmp_path, n=1)
    one.begin()
    asyncio.run(one.traces(talking))
    large = talking.engines["large"]
    assert isinstance(large, Talker)
    ids = large.requests[0].ids
    text = b"".join(map(large._tokenizer.data, ids)).decode()
    assert text == "<user>Question 0 ? Box it in \\boxed{}.<assistant>"
    assert "\\boxed{}" in Settings("", "", "", "", "", "").suffix


def test_a_second_run_asks_the_engines_nothing(done: Path, tmp_path: Path) -> None:
    before = contents(done)
    times = {one: (done / "work" / one).stat().st_mtime_ns for one in FILES[:2]}
    talking = relay()
    asyncio.run(everything(job(done), talking))
    for engine in talking.engines.values():
        assert isinstance(engine, Talker)
        assert (len(engine.requests), engine.scored) == (0, 0)
    assert contents(done) == before
    assert times == {one: (done / "work" / one).stat().st_mtime_ns for one in FILES[:2]}


def test_killed_anywhere_it_ends_in_the_same_files(tmp_path: Path) -> None:
    output = subprocess.run(
        [sys.executable, "-m", "tests.calibrate.killing", str(tmp_path / "whole"), "6"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    ).stdout
    told = json.loads(output)
    assert len(told["kills"]) == 12
    assert told["files"] == sorted((*FILES, "mine.toml"))
    for kill in told["kills"]:
        assert kill["statuses"] == [9, 0], kill
        assert kill["differ"] == [], kill


def test_an_engine_failure_keeps_what_there_is(tmp_path: Path) -> None:
    whole, broken = tmp_path / "a", tmp_path / "b"
    whole.mkdir()
    broken.mkdir()
    asyncio.run(everything(job(whole, n=4), relay()))

    class Failing(Talker):
        async def info(self) -> Any:
            self._failures = (Failure(EngineError("gone"), request=2, token=5),)
            return await super().info()

    one = job(broken, n=4)
    one.begin()
    with pytest.raises(EngineError, match="gone"):
        asyncio.run(one.traces(Relay(Failing(), Talker(), profile="embedded", policy="large")))
    assert len(read(one.folder.traces, Trace)) == 2
    talking = relay()
    asyncio.run(everything(one, talking))
    assert isinstance(talking.engines["large"], Talker)
    assert len(talking.engines["large"].requests) == 2
    theirs, ours = contents(whole), contents(broken)
    assert ours == theirs


def test_steps_alone_say_what_is_missing(tmp_path: Path) -> None:
    one = job(tmp_path, n=2)
    one.begin()
    talking = relay()
    for step, missing in (("traces", "score"), ("score", "select"), ("select", "report")):
        with pytest.raises(UsageError) as caught:
            asyncio.run(one.score(talking)) if missing == "score" else getattr(one, missing)()
        assert step in caught.value.hint
        asyncio.run(getattr(one, step)(talking)) if step != "select" else one.select()
    assert one.report().read_text("utf-8").startswith("<!doctype html>")


def test_progress_is_told(tmp_path: Path) -> None:
    steps: list[Step] = []
    one = job(tmp_path, n=3)
    one.begin()
    talking = relay()
    asyncio.run(one.traces(talking, steps.append))
    asyncio.run(one.score(talking, steps.append))
    for name in ("traces", "score"):
        own = [step for step in steps if step.name == name]
        assert [step.done for step in own] == [0, 1, 2, 3]
        assert own[-1].left == 0.0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"seed": 5}, "seed"),
        ({"suffix": "x"}, "suffix"),
        ({"max_tokens": 7}, "max-tokens"),
        ({"large": "other"}, "large"),
        ({"scorer": "large"}, "scorer"),
        ({"questions_sha256": "11"}, "questions"),
        ({"base": "b", "style": "s"}, "another base profile$"),
    ],
)
def test_another_calibration_in_the_same_folder_is_refused(
    tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    job(tmp_path).begin()
    with pytest.raises(UsageError, match=word) as caught:
        job(tmp_path, **change).begin()
    assert "--work" in caught.value.hint
    assert "\n" not in str(caught.value)
    job(tmp_path).begin()  # nothing was changed by the refusal


def test_what_does_not_touch_traces_may_change(done: Path) -> None:
    before = contents(done)
    changes: dict[str, Any] = {"rule": "paper", "min_effect": 0.1, "mine": False, "cues": ("box",)}
    assert {*changes, "n", "runs", "policy"} == set(FREE)
    other = job(done, **changes, policy="margin")
    other.begin()
    result = other.select()
    assert result.rule == "paper"
    assert result.cues[-1].name == "box"  # nothing mined behind it
    assert not result.fallback
    same = job(done)
    same.begin()
    same.select()
    same.report()
    assert contents(done) == before


def test_fewer_questions_use_what_is_there(done: Path) -> None:
    few = job(done, n=5)
    assert len(few._scored()) == 5
    assert [trace.id for trace, _ in few._scored()] == [one.id for one in QUESTIONS[:5]]


def test_a_selection_from_a_part_of_the_traces_says_so(done: Path, tmp_path: Path) -> None:
    more = job(shutil.copytree(done, tmp_path / "copy"), n=14)
    more.begin()
    more.select()
    assert load(more.out).provenance.notes[0].startswith("traces: 12 of 14 by scripted")
    asyncio.run(everything(more, relay()))
    assert load(more.out).provenance.notes[0].startswith("traces: 14 by scripted")


def test_a_folder_with_traces_of_unknown_origin_is_refused(tmp_path: Path) -> None:
    one = job(tmp_path)
    one.folder.path.mkdir()
    one.folder.traces.write_text("")
    with pytest.raises(UsageError, match="unknown origin"):
        one.begin()
    one.folder.settings.write_text("{")
    with pytest.raises(UsageError, match="is not what"):
        one.begin()


def test_mined_cues_are_no_answer_markers_and_none_twice(done: Path) -> None:
    result = Folder(done / "work").read_calibration()
    names = [cue.name for cue in result.cues]
    assert len(names) == len(set(names))
    assert not {"\\boxed{", "####", "Final answer"} & set(names)


def test_models_with_other_vocabularies_are_refused(tmp_path: Path) -> None:
    one = job(tmp_path, n=1)
    one.begin()
    talking = Relay(Talker(), Talker(vocabulary="other"), profile="embedded", policy="large")
    asyncio.run(one.traces(talking))
    with pytest.raises(UsageError, match="different vocabularies"):
        asyncio.run(one.score(talking))
    assert not one.folder.scores.exists()


def test_an_engine_that_cannot_score_is_refused(tmp_path: Path) -> None:
    one = job(tmp_path, n=1)
    one.begin()
    mute = Relay(Talker(), ScriptedEngine("x"), profile="embedded", policy="large")
    asyncio.run(one.traces(mute))
    with pytest.raises(UsageError, match="no log-probabilities") as caught:
        asyncio.run(one.score(mute))
    assert "SGLang" in caught.value.hint


def test_engines_behind_addresses_score_and_spell(tmp_path: Path) -> None:
    source = tmp_path / "theirs.jsonl"
    source.write_text('{"question": "What is 2 ?", "text": "Thus it is 2. So we end. Thus 2."}')
    one = replace(job(tmp_path), imported=source)
    behind = [DetectedEngine("http://127.0.0.1:9"), DetectedEngine("http://127.0.0.1:9")]
    for engine in behind:
        engine._engine = Talker()  # as after a server has answered

    async def run() -> None:
        await everything(one, Relay(*behind, profile="embedded", policy="large"))
        for engine in behind:
            await engine.aclose()

    asyncio.run(run())
    assert len(read(one.folder.scores, Scores)) == 1


def test_the_large_model_may_score_itself(tmp_path: Path) -> None:
    one = job(tmp_path, n=2, scorer="large")
    talking = relay()
    one.begin()
    asyncio.run(one.traces(talking))
    asyncio.run(one.score(talking))
    assert isinstance(talking.engines["large"], Talker)
    assert talking.engines["large"].scored == 2
    one.select()
    assert load(one.out).provenance.scorer.startswith("the large model, ")


def test_imported_traces(tmp_path: Path) -> None:
    source = tmp_path / "theirs.jsonl"
    lines = [
        {"question": f"What is {n} ?", "text": f"Thus it is {n}. So we end. Thus {n}."}
        for n in range(3)
    ]
    source.write_text("\n".join(map(json.dumps, lines)))
    one = replace(job(tmp_path, imported="abc"), imported=source)
    talking = relay()
    asyncio.run(everything(one, talking))
    found = read(one.folder.traces, Trace)
    assert [trace.text for trace in found] == [line["text"] for line in lines]
    assert len(read(one.folder.scores, Scores)) == 3
    assert any("imported" in note for note in load(one.out).provenance.notes)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("significant", Rule()),
        ("paper", Rule("paper")),
        ("target-utilization:0.7", Rule("target-utilization", 0.7)),
    ],
)
def test_rules(text: str, made: Rule) -> None:
    assert Rule.of(text) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "best",
        "paper:1",
        "significant:",
        "target-utilization",
        "target-utilization:x",
        "target-utilization:2",
        "target-utilization:nan",
    ],
)
def test_bad_rules(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        Rule.of(text)
    with pytest.raises(UsageError):
        job(tmp_path, rule=text)


def test_a_selection_survives_its_file(tmp_path: Path) -> None:
    nan = math.nan
    known = CueResult("a", 1, 1, 5, 0.1, 0.9, nan, nan, nan, nan, nan, nan, nan, False, True)
    steered = Steered(("a",), 1.01, 0.25, 0.8, 2.0, 0.9, nan, False)
    careful = Level("careful", ("a",), 0.9, 1.0, 0.9, True)
    made = Calibration(
        cues=(known,),
        overall=0.5,
        rule="paper",
        unproven=True,
        more_traces=None,
        levels=(careful, replace(careful, name="fast", target=0.5, own=steered, best=steered)),
        curve=(Point(0.9, nan, ("a",)),),
        held_out=Held((("a",), ()), 4, 0.1, 0.0, 0.2, 0.9, 0.8),
        seed=3,
    )
    folder = Folder(tmp_path)
    folder.write_calibration(made)
    assert "NaN" not in folder.calibration.read_text()
    again = folder.read_calibration()
    assert repr(again) == repr(made)  # nan is not equal to itself
    folder.calibration.write_text('{"cues": 3}')
    with pytest.raises(UsageError, match="cannot be read"):
        folder.read_calibration()


def test_a_file_is_replaced_whole_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    write(path, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(UsageError, match="cannot write"):
        write(path, "new")
    assert [one.name for one in tmp_path.iterdir()] == ["x"]
    assert path.read_text() == "old"


def test_the_questions_are_written_down(tmp_path: Path) -> None:
    one = job(tmp_path, (Question("q0", "Question 5 ?"),), n=None)
    one.begin()
    written = [json.loads(line) for line in one.folder.questions.read_text().splitlines()]
    assert written == [{"id": "q0", "question": "Question 5 ?"}]
