"""Real vLLM servers, each started once for the tests that want it, and an engine for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from relaygen.engines.vllm import VllmEngine

from .servers import KEY, Server, serving
from .vocabulary import Vocabulary


@pytest.fixture(scope="module")  # its memory is wanted for the pair
def tiny_server() -> Iterator[Server]:
    with serving("tiny") as server:
        yield server


@pytest.fixture(scope="session")
def large_server() -> Iterator[Server]:
    with serving("large", dtype="bfloat16") as server:
        yield server


@pytest.fixture(scope="session")
def small_server() -> Iterator[Server]:
    with serving("small") as server:
        yield server


@asynccontextmanager
async def _engine(server: Server) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine(server.url, api_key=KEY)
    yield engine
    await engine.aclose()


@pytest.fixture
async def tiny(tiny_server: Server) -> AsyncIterator[VllmEngine]:
    async with _engine(tiny_server) as engine:
        yield engine


@pytest.fixture
async def large(large_server: Server) -> AsyncIterator[VllmEngine]:
    async with _engine(large_server) as engine:
        yield engine


@pytest.fixture
async def small(small_server: Server) -> AsyncIterator[VllmEngine]:
    async with _engine(small_server) as engine:
        yield engine


@pytest.fixture
async def twin(small_server: Server) -> AsyncIterator[VllmEngine]:
    """The small model once more, to play the other role."""
    async with _engine(small_server) as engine:
        yield engine


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """That of all three models."""
    return Vocabulary.of("tiny")
