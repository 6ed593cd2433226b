from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from relaygen import EngineReplyError
from relaygen._types import Delta, Piece, SegmentRequest
from relaygen.engines._margins import margins_are_raw
from relaygen.engines.scripted import ScriptedEngine

pytestmark = pytest.mark.anyio


class Answering(ScriptedEngine):
    """Gives these candidates, one list per request, whatever it is asked."""

    def __init__(self, *tops: list[tuple[int, float]]) -> None:
        super().__init__()
        self._tops = list(tops)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        top = tuple(self._tops.pop(0) if len(self._tops) > 1 else self._tops[0])
        yield Delta((Piece(1, b"a", top),))
        yield Delta((), "length")


RAW = [(1, -0.1), (2, -2.5)]
COOLER = [(1, -0.01), (2, -4.8)]


async def test_raw() -> None:
    engine = Answering(RAW)
    assert await margins_are_raw(engine, [1, 2], "s") is True
    assert [each.sampling.temperature for each in engine.requests] == [1.0, 0.5, 1.0]
    assert [each.max_tokens for each in engine.requests] == [8, 1, 1]
    for request in engine.requests:
        assert (request.ids, request.top) == ((1, 2), 2)
        assert (request.session, request.seed) == ("s", 1)
        # A cut would make the candidates look alike at every temperature.
        assert (request.sampling.top_k, request.sampling.top_p, request.sampling.min_p) == (0, 1, 0)


async def test_after_temperature() -> None:
    assert await margins_are_raw(Answering(RAW, COOLER, RAW), [1], "s") is False


async def test_other_candidates() -> None:
    assert await margins_are_raw(Answering(RAW, [(1, -0.1), (3, -2.5)], RAW), [1], "s") is False


async def test_the_first_answer_only_warms_up() -> None:
    cold = [(1, -0.11), (2, -2.45)]
    assert await margins_are_raw(Answering(cold, RAW, RAW), [1], "s") is True


@pytest.mark.parametrize("top", [[], [(1, -0.1)]])
async def test_too_few_candidates(top: list[tuple[int, float]]) -> None:
    assert await margins_are_raw(Answering(top), [1], "s") is None


@pytest.mark.parametrize(
    "top",
    [
        [(1, 0.9), (2, 0.1)],  # probabilities
        [(2, -2.5), (1, -0.1)],  # the best one last
        [(1, 0.1)],
        [(1, -0.1), (2, None)],
        [(1, math.nan), (2, -0.1)],
        [(1, -0.1), (2, math.nan)],
        [1, 2],
        ["one", "two"],
        3,
    ],
)
async def test_what_are_no_candidates(top: Any) -> None:
    with pytest.raises(EngineReplyError, match=r"^its candidates are not log-probabilities, best"):
        await margins_are_raw(Whatever(top), [1], "s")


@pytest.mark.parametrize(
    "top",
    [
        [(1, -0.7), (2, -0.7)],
        [(1, -0.7), (2, -0.7 + 5e-7)],  # rounded
        [(1, 5e-7), (2, -14.0)],
        [(1, 0.0), (2, -math.inf)],
        [(1, 0), (2, -9999)],
    ],
)
async def test_what_are_some(top: Any) -> None:
    assert await margins_are_raw(Whatever(top), [1], "s") is not None


async def test_none_are_none() -> None:
    assert await margins_are_raw(Whatever(None), [1], "s") is None


class Whatever(ScriptedEngine):
    """Gives this with every token."""

    def __init__(self, top: Any) -> None:
        super().__init__()
        self._top = top

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        yield Delta((Piece(1, b"a", self._top),), "length")


class Drafting(Answering):
    """Its later tokens were drafted, and come without candidates."""

    def __init__(self, *later: bytes) -> None:
        super().__init__(RAW)
        self._later = later

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        yield Delta((Piece(1, b"a", tuple(RAW)), *(Piece(2, data) for data in self._later)))
        yield Delta((), "length")


async def test_tokens_without_candidates_behind_the_first() -> None:
    assert await margins_are_raw(Drafting(b"b"), [1], "s") is None
    assert await margins_are_raw(Drafting(), [1], "s") is True


async def test_tokens_inside_a_character_need_none() -> None:
    assert await margins_are_raw(Drafting("é".encode()[:1], "é".encode()[1:]), [1], "s") is True


async def test_scripted() -> None:
    engine = ScriptedEngine("So it is.", margin=0.3)
    assert await margins_are_raw(engine, [], "s") is True
