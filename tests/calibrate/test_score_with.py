"""A scorer in this process in place of an engine: ``--score-with``."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from relaygen._errors import EngineError, UsageError
from relaygen._types import EngineInfo
from relaygen.calibrate import Scores
from relaygen.calibrate._folder import Settings
from relaygen.calibrate._records import read
from relaygen.calibrate._score import check_vocabulary
from relaygen.cli import main
from relaygen.engines import transformers_local
from relaygen.engines.scripted import ScriptedEngine
from relaygen.profiles import load

from .commanding import Stage
from .talking import Talker, everything, job, relay
from .traces import trace

pytestmark = pytest.mark.anyio
ASK = ("calibrate", "--data", "q.jsonl", "--out", "pair.toml", "--score-with", "model")


class Local(Talker):
    """Scores in this process."""

    async def info(self) -> EngineInfo:
        return replace(await super().info(), model="weights", kind="transformers", vocabulary="")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"id": f"g{n}", "question": f"Number {n} ?"}) for n in range(12)]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    (tmp_path / "model").mkdir()
    return Stage(monkeypatch)


def test_it_scores_and_no_engine_does(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Local] = []

    def scorer(path: Path) -> Local:
        assert path == Path("model")
        made.append(Local())
        return made[-1]

    monkeypatch.setattr(transformers_local, "TransformersScorer", scorer)
    result = CliRunner().invoke(main, ASK)
    assert result.exit_code == 0, result.output
    assert "scoring: 12 of 12" in result.stderr
    assert [engine.scored for engine in (*made, *stage.engines)] == [12, 0, 0]
    kept = json.loads(Path("calibration-pair/engines.json").read_text())
    assert {role: each["kind"] for role, each in kept.items()} == {
        "large": "scripted",
        "scorer": "transformers",
    }
    profile = load("pair.toml")
    assert profile.provenance.scorer.endswith("(transformers)")
    assert stage.roles == [{"large"}]
    # The step alone opens no engine, not even to ask who it is.
    opened = len(stage.engines)
    Path("calibration-pair/scores.jsonl").unlink()
    assert CliRunner().invoke(main, (*ASK, "--step", "score")).exit_code == 0
    assert len(stage.engines) == opened
    assert len(read("calibration-pair/scores.jsonl", Scores)) == 12


def test_another_scorer_is_another_calibration(stage: Stage) -> None:
    assert CliRunner().invoke(main, (*ASK, "--step", "traces")).exit_code == 0
    result = CliRunner().invoke(main, ASK[:-2])
    assert result.exit_code == 2
    assert "another score-with" in result.stderr


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is there")
def test_missing_packages_are_said_before_the_traces(stage: Stage) -> None:
    result = CliRunner().invoke(main, ASK)
    assert result.exit_code == 3
    assert "torch is not installed" in result.stderr
    assert "relaygen[transformers]" in result.stderr
    assert stage.engines == []
    assert not Path("calibration-pair").exists()
    assert CliRunner().invoke(main, (*ASK[:-1], "none")).exit_code == 2


def test_the_same_margins_select_the_same_cues(tmp_path: Path) -> None:
    found = []
    for name in ("engine", "local"):
        (tmp_path / name).mkdir()
        one = job(tmp_path / name, score_with="model" if name == "local" else "")
        talking = relay()
        if name == "engine":
            asyncio.run(everything(one, talking))
        else:
            one.begin()
            asyncio.run(one.traces(talking))
            asyncio.run(one.score(Local()))
            one.select()
        found.append(one.folder.calibration.read_bytes())
    assert found[0] == found[1]


def test_a_folder_of_an_older_version_is_opened(tmp_path: Path) -> None:
    job(tmp_path).begin()
    path = tmp_path / "work" / "settings.json"
    old = json.loads(path.read_text())
    del old["score_with"]
    path.write_text(json.dumps(old))
    with pytest.raises(UsageError, match="score-with"):
        job(tmp_path, score_with="model").begin()
    job(tmp_path).begin()
    assert json.loads(path.read_text())["score_with"] == ""
    del old["seed"]  # it has a default too, but another one was asked for
    path.write_text(json.dumps(old))
    with pytest.raises(UsageError, match="seed"):
        job(tmp_path, seed=Settings("", "", "", "", "", "").seed + 1).begin()


class Spells(ScriptedEngine):
    """Its ids are the bytes' numbers plus `off`; no text of these bytes for the last ids."""

    def __init__(self, off: int = 0, open_end: bool = False) -> None:
        super().__init__("")
        self._off, self._open_end = off, open_end

    def score(self, ids: Any, start: int, session: str) -> Any:
        raise AssertionError("not asked")

    async def data(self, ids: Any) -> tuple[bytes, ...]:
        found = tuple(bytes([id - self._off]) for id in ids)
        return (*found[:-1], b"") if self._open_end else found


class Silent(ScriptedEngine):
    """Scores and does not spell."""

    def score(self, ids: Any, start: int, session: str) -> Any:
        raise AssertionError("not asked")


def spelled(text: bytes) -> Any:
    pieces = tuple(bytes([byte]) for byte in text)
    return replace(trace("x"), ids=tuple(text), pieces=pieces)


@pytest.mark.parametrize(
    ("engine", "own", "wrote", "same"),
    [
        # Of one kind: nothing else is asked.
        (Spells(1), "gguf:1", "gguf:1", True),
        (Spells(), "gguf:1", "gguf:2", False),
        (Spells(), "probe:1", "probe:2", False),
        (Spells(), "same", "other", False),
        # Of two kinds, or not known.
        (Spells(), "probe:1", "gguf:1", True),
        (Spells(1), "probe:1", "gguf:1", False),
        (Spells(), "", "gguf:1", True),
        (Spells(1), "", "gguf:1", False),
        (Spells(1), "probe:1", "", False),
        (Spells(1), "", "", False),
        # Who does not spell is believed where nothing is known.
        (Silent(""), "", "gguf:1", True),
        (Silent(""), "probe:1", "gguf:1", False),
    ],
)
async def test_the_vocabulary_is_compared(engine: Any, own: str, wrote: str, same: bool) -> None:
    traces = [spelled(b"bcd"), spelled("so é".encode())]
    if same:
        await check_vocabulary(engine, own, wrote, traces)
        return
    with pytest.raises(UsageError, match="different vocabularies"):
        await check_vocabulary(engine, own, wrote, traces)


async def test_every_trace_is_spelled_and_an_open_character_does_not_count() -> None:
    cut = spelled("so é".encode()[:-1])
    await check_vocabulary(Spells(open_end=True), "", "", [cut])
    with pytest.raises(UsageError):
        await check_vocabulary(Spells(open_end=True), "", "", [spelled(b"so e")])
    other = replace(spelled(b"abc"), pieces=(b"a", b"b", b"d"))
    with pytest.raises(UsageError):
        await check_vocabulary(Spells(), "", "", [spelled(b"abc"), other])


async def test_a_scorer_that_fails_to_spell_says_why() -> None:
    class Failing(Spells):
        async def data(self, ids: Any) -> tuple[bytes, ...]:
            raise EngineError("gone")

    with pytest.raises(EngineError, match="gone"):
        await check_vocabulary(Failing(), "", "", [spelled(b"a")])
