from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from relaygen._errors import EngineError, UsageError
from relaygen._progress import Step
from relaygen._types import EngineInfo
from relaygen.calibrate import Scores, Trace
from relaygen.calibrate._records import read
from relaygen.calibrate._score import write_scores
from relaygen.engines._scoring import Expected
from relaygen.engines.scripted import ScriptedEngine

from .traces import trace

pytestmark = pytest.mark.anyio
TEXT = "We see it is so. " * 6
TRACES = [trace(TEXT, id=str(n)) for n in range(4)]


class Forced(ScriptedEngine):
    """Scores: the margin is the position behind the start over a hundred, the id is doubled."""

    def __init__(self, kind: str = "scripted", fail_at: int = -1, short: bool = False) -> None:
        super().__init__(free=lambda text: " x")
        self._kind, self._fail_at, self._short = kind, fail_at, short
        self.asked: list[tuple[int, int, str]] = []

    async def info(self) -> EngineInfo:
        return EngineInfo("small", 4096, kind=self._kind)

    async def score(
        self, ids: Sequence[int], start: int, session: str
    ) -> AsyncGenerator[Expected, None]:
        if len(self.asked) == self._fail_at:
            raise EngineError("gone")
        self.asked.append((len(ids), start, session))
        for position in range(start, len(ids) - self._short):
            yield (position - start) / 100, 2 * ids[position]


class Scaled(Forced):
    """Its candidates change with the temperature, or there is only one."""

    async def stream(self, request: Any) -> AsyncGenerator[Any, None]:
        self._margin = request.sampling.temperature / 2
        async for delta in super().stream(request):
            yield delta


class Blind(Forced):
    async def stream(self, request: Any) -> AsyncGenerator[Any, None]:
        from dataclasses import replace

        async for delta in super().stream(replace(request, top=1)):
            yield delta


async def test_each_position_of_each_trace(tmp_path: Path) -> None:
    engine, steps, path = Forced(), list[Step](), tmp_path / "s.jsonl"
    found = await write_scores(engine, TRACES, path, progress=steps.append)
    assert read(path, Scores) == found
    assert [each.id for each in found] == ["0", "1", "2", "3"]
    for each, of in zip(found, TRACES, strict=True):
        assert each.margins == tuple(n / 100 for n in range(len(of.ids)))
        assert each.top == tuple(2 * id for id in of.ids)
        assert (each.start, each.scorer) == (2, "small")
    assert {key for *_, key in engine.asked} <= set(engine.released)
    assert [step.done for step in steps] == [0, 1, 2, 3, 4]
    assert not any(step.note for step in steps)


async def test_the_time_is_said_first_where_each_position_is_a_request(tmp_path: Path) -> None:
    steps: list[Step] = []
    engine = Forced("llama-server")
    await write_scores(engine, TRACES, tmp_path / "s.jsonl", progress=steps.append)
    noted = [step for step in steps if step.note]
    assert len(noted) == 1
    assert noted[0].done == 0
    assert noted[0].left is not None
    assert f"{4 * len(TRACES[0].ids)} tokens" in noted[0].note


async def test_killed_and_started_again(tmp_path: Path) -> None:
    whole, path = tmp_path / "w.jsonl", tmp_path / "s.jsonl"
    await write_scores(Forced(), TRACES, whole)
    with pytest.raises(EngineError, match="gone"):
        await write_scores(Forced(fail_at=2), TRACES, path)
    assert len(read(path, Scores)) == 2
    path.write_bytes(path.read_bytes() + b'{"id": "2", "scorer": ')
    engine = Forced()
    await write_scores(engine, TRACES, path)
    assert path.read_bytes() == whole.read_bytes()
    assert len(engine.asked) == 2
    done = Forced()
    await write_scores(done, TRACES, path)
    assert (done.asked, done.requests) == ([], [])


@pytest.mark.parametrize("kind", [Scaled, Blind])
async def test_margins_are_checked_first(tmp_path: Path, kind: type[Forced]) -> None:
    engine = kind()
    with pytest.raises(EngineError) as caught:
        await write_scores(engine, TRACES, tmp_path / "s.jsonl")
    hints = ("--logprobs-mode raw_logprobs", "SGLANG_RETURN_ORIGINAL_LOGPROB=1")
    assert [hint in caught.value.hint for hint in hints] == [kind is Scaled] * 2
    assert engine.asked == []
    assert len(engine.released) == 1


async def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    plain: Any = ScriptedEngine("a")
    with pytest.raises(UsageError, match="gives no log-probabilities") as caught:
        await write_scores(plain, TRACES, path)
    assert "SGLang" in caught.value.hint
    with pytest.raises(EngineError, match="scored"):
        await write_scores(Forced(short=True), TRACES, path)
    assert read(path, Scores) == []
    await write_scores(Forced(), TRACES[:1], path)
    other: list[Trace] = [trace("So.", id="0")]
    with pytest.raises(UsageError, match="another trace"):
        await write_scores(Forced(), other, path)
    path.write_text(path.read_text().replace('"small"', '"large"'))
    with pytest.raises(UsageError, match="scores of large"):
        await write_scores(Forced(), TRACES, path)
