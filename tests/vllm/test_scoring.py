"""Three ways to score the same traces: transformers, llama-server and vLLM, over equal weights.

The traces are the large model's own, of shipped questions, cut after 150 tokens. transformers and
vLLM run the small model's quantized weights unpacked to float32; llama.cpp computes with them as
they are.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relaygen.calibrate import Scores, Trace
from relaygen.calibrate._records import read
from relaygen.calibrate._score import write_scores
from relaygen.engines._gguf import read_header
from relaygen.engines.embedded import EmbeddedEngine
from relaygen.engines.vllm import VllmEngine
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL, home, resolve
from tests.comparing import Agreement, compare

from .servers import PYTHON

pytestmark = [pytest.mark.vllm, pytest.mark.anyio]
ROOT = Path(__file__).parents[2]
TRACES = read(Path(__file__).with_name("traces.jsonl"), Trace)
POSITIONS = sum(len(trace.ids) for trace in TRACES)
EVERYTHING = {"same_top", "difference", "correlation"}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}


def small_file() -> Path:
    return resolve(EMBEDDED_SMALL.name, fetch=False)


def fingerprint(model: str) -> str:
    vocabulary = read_header(resolve(model, fetch=False)).vocabulary()
    assert vocabulary is not None
    return vocabulary.fingerprint


def scoring(folder: Path, model: Path) -> subprocess.CompletedProcess[str]:
    """``relaygen calibrate --step score --score-with`` in vLLM's environment."""
    command = [str(PYTHON), "-m", "relaygen", "calibrate", "--step", "score"]
    command += ["--data", "questions.jsonl", "--out", "pair.toml", "--work", "work"]
    command += ["--score-with", str(model)]
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def prepare(folder: Path, model: Path, traces: Sequence[Trace], vocabulary: str) -> Path:
    """A folder as the step before leaves it; the traces come in once it is claimed."""
    lines = [json.dumps({"id": each.id, "question": each.question}) for each in traces]
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    refused = scoring(folder, model)
    assert refused.returncode == 2, refused.stderr
    assert "run the step traces first" in refused.stderr
    work = folder / "work"
    with (work / "traces.jsonl").open("w", encoding="utf-8") as file:
        for each in traces:
            file.write(json.dumps(each.to_json()) + "\n")
    wrote = {"model": "large", "kind": "llama-server", "vocabulary": vocabulary, "slots": 1}
    (work / "engines.json").write_text(json.dumps({"large": wrote}))
    return work


@pytest.fixture(scope="module")
def by_transformers(tmp_path_factory: pytest.TempPathFactory) -> list[Scores]:
    """From the folder; its fingerprint and the large model's are of two kinds, so it spells."""
    folder, model = tmp_path_factory.mktemp("folder"), home() / "vllm" / "small"
    work = prepare(folder, model, TRACES, fingerprint(EMBEDDED_LARGE.name))
    done = scoring(folder, model)
    assert done.returncode == 0, done.stderr
    assert f"scoring: {len(TRACES)} of {len(TRACES)}" in done.stderr
    known = json.loads((work / "engines.json").read_text())
    assert (known["scorer"]["model"], known["scorer"]["kind"]) == ("small", "transformers")
    assert known["scorer"]["vocabulary"].startswith("probe:")
    return read(work / "scores.jsonl", Scores)


def check(ours: Sequence[Scores], theirs: Sequence[Scores], what: str) -> Agreement:
    """They agree, and one position apart they do not in anything."""
    found = compare(ours, theirs)
    print(f"\n{what}: {found}")
    for shift, (one, other) in ((1, (ours, theirs)), (-1, (theirs, ours))):
        shifted = compare(one, other, shift=1)
        print(f"{what}, shifted by {shift}: {shifted}")
        assert shifted.failed == EVERYTHING, shifted
    assert found.failed == set(), found
    assert found.positions == POSITIONS
    return found


def test_there_is_enough_to_compare() -> None:
    assert len(TRACES) >= 8
    assert POSITIONS >= 1000


async def test_transformers_and_llama_server(by_transformers: list[Scores], tmp_path: Path) -> None:
    engine = EmbeddedEngine(small_file(), role="small", ctx=2048)
    try:
        theirs = await write_scores(engine, TRACES, tmp_path / "scores.jsonl")
    finally:
        await engine.aclose()
    check(by_transformers, theirs, "transformers and llama-server")


async def test_transformers_and_vllm(
    by_transformers: list[Scores], small: VllmEngine, tmp_path: Path
) -> None:
    theirs = await write_scores(small, TRACES, tmp_path / "scores.jsonl")
    check(by_transformers, theirs, "transformers and vLLM")


def test_a_gguf_file_is_the_folder(by_transformers: list[Scores], tmp_path: Path) -> None:
    """The same weights; this time the fingerprints are of one kind and equal."""
    work = prepare(tmp_path, small_file(), TRACES[:1], fingerprint(EMBEDDED_LARGE.name))
    done = scoring(tmp_path, small_file())
    assert done.returncode == 0, done.stderr
    known = json.loads((work / "engines.json").read_text())
    assert known["scorer"]["vocabulary"] == known["large"]["vocabulary"]
    (found,) = read(work / "scores.jsonl", Scores)
    assert found.top == by_transformers[0].top
    assert found.margins == pytest.approx(by_transformers[0].margins, abs=1e-4)


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    """By what the ids spell, and by fingerprints where they can be compared."""
    strange = replace(TRACES[0], ids=tuple(id + 1 for id in TRACES[0].ids))
    tiny = home() / "vllm" / "tiny"
    for name, model, trace, vocabulary in (
        ("spelled", tiny, strange, fingerprint(EMBEDDED_LARGE.name)),
        ("unknown", tiny, strange, ""),
        ("compared", tiny, TRACES[0], "probe:another"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        work = prepare(folder, model, [trace], vocabulary)
        done = scoring(folder, model)
        assert done.returncode == 2, done.stderr
        assert "different vocabularies" in done.stderr
        assert not (work / "scores.jsonl").exists()


def forced(model: str, chunk: int, texts: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """See `tests.vllm.forcing`."""
    done = subprocess.run(
        [str(PYTHON), "-m", "tests.vllm.forcing", str(home() / "vllm" / model), str(chunk)],
        cwd=ROOT,
        env=ENVIRONMENT,
        input="".join(json.dumps(list(ids)) + "\n" for ids in texts),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_chunks_change_nothing_but_the_memory() -> None:
    """Logits of 1,800 positions of this vocabulary are 1.1 GB, of 64 positions 39 MB."""
    long = [(7919 * n + n * n) % 150_000 for n in range(1800)]
    whole, parts = [forced("tiny", chunk, [long[:100], long]) for chunk in (1800, 64)]
    grown = [found[1]["peak"] - found[0]["peak"] for found in (whole, parts)]
    assert grown[0] > 1.1e9
    assert grown[1] < 0.4e9
    for one, other in zip(whole, parts, strict=True):
        margins, top = zip(*one["scores"], strict=True)
        others, best = zip(*other["scores"], strict=True)
        assert len(margins) in (99, 1799)
        assert top == best
        assert all(math.isfinite(each) for each in margins)
        assert others == pytest.approx(margins, abs=1e-4)
