"""The long trace is what speed is measured on: its shape, as the real detectors read it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from types import ModuleType

import pytest

from relaygen.bench import Figures, played
from relaygen.mock import load_trace

from ..scripts import loaded


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with loaded("benchmarks/trace.py") as module:
        yield module


def test_the_long_trace_is_relayed_as_speed_figures_need() -> None:
    figures = Figures.of(played(load_trace("long")))
    assert figures.tokens >= 2000
    assert 0.68 <= figures.utilization <= 0.72
    assert len(figures.delegated) >= 30
    assert mean(figures.delegated) <= 20


def test_the_short_trace_is_handed_over_too() -> None:
    assert len(Figures.of(played(load_trace("short"))).delegated) >= 4


def test_the_shipped_traces_are_the_scripts(script: ModuleType) -> None:
    assert load_trace("long") == script.generate(5, 2100)
    assert load_trace("short").tokens == tuple(script.tokens_of(script.SHORT))
