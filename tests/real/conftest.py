"""The embedded pair, each model started once for all tests here.

The files are those of ``relaygen models pull``, or what ``RELAYGEN_LARGE`` and ``RELAYGEN_SMALL``
name.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaygen._types import Role
from relaygen.engines.embedded import EmbeddedEngine
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL, resolve


def model_path(role: Role) -> Path:
    """The GGUF file of one role."""
    catalogue = EMBEDDED_LARGE if role == "large" else EMBEDDED_SMALL
    return resolve(os.environ.get(f"RELAYGEN_{role.upper()}") or catalogue.name, fetch=False)


def _engine(role: Role) -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine(model_path(role), role=role, ctx=2048, parallel=2)
    yield engine
    asyncio.run(engine.aclose())


@pytest.fixture(scope="session")
def large_engine() -> Iterator[EmbeddedEngine]:
    yield from _engine("large")


@pytest.fixture(scope="session")
def small_engine() -> Iterator[EmbeddedEngine]:
    yield from _engine("small")


@pytest.fixture
def small_path() -> Path:
    return model_path("small")
