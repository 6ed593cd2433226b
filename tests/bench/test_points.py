"""Which points are measured, and the pace of hand-offs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen.bench import Figures, played, points, shortened
from relaygen.bench._paced import PacedPolicy
from relaygen.mock import load_trace

VALUES = {"streams": (1, 64), "contexts": (1000,), "rates": (50.0,), "utilization": 0.7}


def test_one_setting_at_a_time() -> None:
    found = points(("handoffs", "streams", "context"), **VALUES)  # type: ignore[arg-type]
    assert [(p.sweep, p.streams, p.context, p.policy) for p in found] == [
        ("streams", 1, 0, None),
        ("streams", 64, 0, None),
        ("context", 1, 1000, None),
        ("handoffs", 1, 0, PacedPolicy(28, 12)),
    ]
    assert [point.name for point in found] == [
        *("1 stream", "64 streams", "context 1,000", "segments of 28 and 12")
    ]


def test_only_what_is_asked_for() -> None:
    found = points(("context",), **VALUES)  # type: ignore[arg-type]
    assert [point.sweep for point in found] == ["context"]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([10.0, 25.0, 50.0, 100.0, 200.0]), st.floats(0.3, 0.8))
def test_the_pace_is_the_wanted_one(rate: float, utilization: float) -> None:
    trace = shortened(load_trace("long"), 800)
    figures = Figures.of(played(trace, PacedPolicy.at(rate, utilization)))
    assert figures.handoffs == pytest.approx(rate * figures.tokens / 1000, abs=2)
    pair = 2000 / rate  # the last pair may be cut, and a segment is a whole number of tokens
    assert figures.utilization == pytest.approx(utilization, abs=pair / 800 + 1 / pair)


@pytest.mark.parametrize("rate", [0.0, -1.0, 1000.5])
def test_a_pace_that_makes_no_sense_is_refused(rate: float) -> None:
    with pytest.raises(UsageError):
        PacedPolicy.at(rate, 0.5)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_both_models_write_at_any_pace(share: float) -> None:
    policy = PacedPolicy.at(1000.0, share)
    assert (policy.large, policy.small) == (1, 1)


def test_segments_without_tokens_are_refused() -> None:
    with pytest.raises(UsageError):
        PacedPolicy(3, 0)
