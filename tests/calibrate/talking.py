"""Scripted engines that answer each question with a text of its own and score what they are given."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from relaygen import Relay
from relaygen._types import Delta, SegmentRequest
from relaygen.calibrate._folder import Folder, Settings, style_of
from relaygen.calibrate._job import Job
from relaygen.calibrate._traces import Question
from relaygen.engines.scripted import ScriptedEngine, ScriptedTokenizer
from relaygen.profiles import load

from .synthetic import EASY, trace

Tick = Callable[[], None]


def nothing() -> None:
    """Does not count."""


class Talker(ScriptedEngine):
    """Plays the synthetic trace of the question's number.

    Args:
        tick: called at each delta and each scored position.
        length: sentences of a text.
    """

    def __init__(self, tick: Tick = nothing, *, length: int = 16, vocabulary: str = "same") -> None:
        super().__init__("", vocabulary=vocabulary)
        self._tick, self._length = tick, length
        self.scored = 0

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        tokens = ScriptedTokenizer()
        text = b"".join(map(tokens.data, request.ids)).decode()
        asked, mark, _ = text.partition("<assistant>")
        number = next(int(word) for word in asked.split() if word.isdigit())
        self._prompts[tokens.encode(asked + mark)] = None
        script = trace(number, 7, length=self._length).ids
        behind = request.ids[len(tokens.encode(asked + mark)) :]
        self._script = script if script[: len(behind)] == behind else (*behind, 65)
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                self._tick()
                yield delta

    async def score(
        self, ids: Sequence[int], start: int, session: str
    ) -> AsyncGenerator[tuple[float | None, int | None], None]:
        """Surer behind an easy cue, by the text of the ids before."""
        tokens = ScriptedTokenizer()
        self.scored += 1
        text = ""
        for position in range(start, len(ids)):
            self._tick()
            sentence = text.rpartition(". ")[2].strip()
            bonus = next((more for cue, more in EASY.items() if sentence.startswith(cue)), 0.0)
            hashed = hashlib.sha256(f"{position}{text[-40:]}".encode()).digest()[0] / 256.0
            yield min(1.0, 0.45 + bonus + 0.4 * hashed), ids[position] if hashed < 0.8 else 65
            text += tokens.data(ids[position]).decode(errors="replace")

    async def data(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of each id."""
        return tuple(map(ScriptedTokenizer().data, ids))


QUESTIONS = tuple(Question(f"q{number}", f"Question {number} ?") for number in range(24))

SETTINGS = Settings(
    base="embedded",
    style=style_of(load("embedded")),
    large="large.gguf",
    small="http://127.0.0.1:1",
    questions="q.jsonl",
    questions_sha256="00",
    n=12,
    suffix=" Box it in \\boxed{}.",
)


def job(folder: Path, questions: Sequence[Question] = QUESTIONS, **changes: object) -> Job:
    """A calibration in `folder` whose profile is ``folder/mine.toml``."""
    settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
    work = Folder(folder / "work")
    return Job(work, settings, load("embedded"), questions, folder / "mine.toml")


def relay(tick: Tick = nothing) -> Relay:
    """Both models talk alike."""
    return Relay(Talker(tick), Talker(tick), profile="embedded", policy="large")


async def everything(one: Job, talking: Relay) -> None:
    """All four steps."""
    one.begin()
    await one.traces(talking)
    await one.score(talking)
    one.select()
    one.report()
