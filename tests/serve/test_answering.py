from __future__ import annotations

import asyncio

from relaygen import EngineUnreachableError
from relaygen._types import EngineInfo
from relaygen.engines.scripted import ScriptedEngine
from relaygen.serve._answering import Answering


class Served(ScriptedEngine):
    asked = 0

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        self.asked += 1
        return await super().tokenize(text, special=special)


class Absent(ScriptedEngine):
    async def info(self) -> EngineInfo:
        raise EngineUnreachableError("http://gpu:1 cannot be reached", role="large")


def test_many_questions_are_one() -> None:
    async def scenario() -> tuple[list[str], int]:
        engine = Served()
        answering = Answering(engine)
        answers = await asyncio.gather(*(answering.ask() for _ in range(50)))
        answers.append(await answering.ask())
        return answers, engine.asked

    answers, asked = asyncio.run(scenario())
    assert set(answers) == {""}
    assert asked == 1


def test_why_it_does_not_answer_without_its_address() -> None:
    answer = asyncio.run(Answering(Absent()).ask())
    assert answer == "its server cannot be reached"


def test_an_engine_of_ones_own_that_raises_does_not_answer_and_its_words_stay_inside() -> None:
    class Own(ScriptedEngine):
        async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
            raise KeyError("a secret")

    assert asyncio.run(Answering(Own()).ask()) == "its own code raised KeyError"


def test_a_text_only_engine_generates_a_token() -> None:
    engine = ScriptedEngine(free=lambda text: " yes", text_only=True)
    assert asyncio.run(Answering(engine).ask()) == ""
    assert [request.max_tokens for request in engine.requests] == [1]


def test_an_answer_that_takes_long_is_waited_for_by_the_next_who_asks() -> None:
    class Starting(ScriptedEngine):
        starts = 0

        async def info(self) -> EngineInfo:
            self.starts += 1
            await asyncio.sleep(0.3)
            return await super().info()

    async def scenario() -> None:
        engine = Starting()
        answering = Answering(engine, patience=0.05)
        assert await answering.ask() == "no answer within 0.05 s"
        while (answer := await answering.ask()) != "":
            assert answer == "no answer within 0.05 s"
        assert engine.starts == 1

    asyncio.run(scenario())
