"""The closed forms against numbers worked by hand and figures of the paper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen import ModelUsage, Usage, UsageError
from relaygen.costs import (
    Costs,
    ceiling,
    handoff_ms,
    large_alone_seconds,
    measured_costs,
    money_saved,
    pays,
    pooled,
    speedup,
)

CPU = Costs(126.0, 55.0, 29.0, 15.0)
"""Our measurement of the embedded pair on two cores, middle of each range."""


def test_two_devices() -> None:
    assert ceiling(Costs(40.0, 6.5), 0.70) == pytest.approx(40 / (0.7 * 40 + 0.3 * 6.5))


def test_the_papers_ceiling() -> None:
    """At 69.8 % utilization even a free small model gives 1.43."""
    assert ceiling(Costs(1.0, 0.0), 0.698) == pytest.approx(1.43, abs=0.005)


@pytest.mark.parametrize(("utilization", "expected"), [(0.70, 1.02), (0.50, 1.12)])
def test_one_compute_bound_device(utilization: float, expected: float) -> None:
    assert ceiling(CPU, utilization, devices=1) == pytest.approx(expected, abs=0.005)


@given(st.floats(0, 1), st.floats(1, 100), st.floats(0.1, 1))
def test_a_faster_small_model_never_slows_the_ceiling_on_two_devices(
    utilization: float, large: float, share: float
) -> None:
    assert ceiling(Costs(large, large * share), utilization) >= 1 - 1e-9


def test_whether_it_can_pay_at_all() -> None:
    assert pays(CPU, devices=1)
    assert not pays(Costs(126.0, 100.0, 29.0, 15.0), devices=1)


@pytest.mark.parametrize(("utilization", "devices"), [(-0.1, 1), (1.1, 2), (0.5, 3)])
def test_nonsense(utilization: float, devices: int) -> None:
    with pytest.raises(UsageError):
        ceiling(CPU, utilization, devices=devices)


def usage() -> Usage:
    large = ModelUsage(
        tokens=70, discarded=2, requests=4, seconds=10, first_seconds=2.4, decode_seconds=6.6
    )
    large.decoded, large.evaluated = 66, 40
    small = ModelUsage(
        tokens=30, discarded=5, requests=3, seconds=3, first_seconds=0.6, decode_seconds=1.6
    )
    small.decoded, small.evaluated = 32, 90
    return Usage(large, small, seconds=13.0, first_token_seconds=1.1)


def test_measured_costs() -> None:
    costs = measured_costs(usage())
    assert costs is not None
    assert costs.large_decode == pytest.approx(100.0)
    assert costs.small_decode == pytest.approx(50.0)
    assert costs.large_catch_up == pytest.approx((2400 - 4 * 100) / 40)
    assert costs.small_catch_up == pytest.approx((600 - 3 * 50) / 90)


def test_the_estimate_is_never_clipped() -> None:
    measured = usage()
    assert large_alone_seconds(measured) == pytest.approx(1.1 + 99 * 0.1)
    assert speedup(measured) == pytest.approx(11.0 / 13.0)


def test_too_short_to_tell() -> None:
    empty = Usage()
    assert measured_costs(empty) is None
    assert large_alone_seconds(empty) is None
    assert speedup(empty) is None


def test_the_large_model_alone_is_no_faster_than_itself() -> None:
    alone = usage()
    alone.small = ModelUsage()
    assert large_alone_seconds(alone) is None
    assert speedup(alone) is None


def test_money_charges_what_was_thrown_away() -> None:
    saved, share = money_saved(usage(), large_price=10.0, small_price=1.0)
    alone = 100 * 10 / 1e6
    paid = (72 * 10 + 35 * 1) / 1e6
    assert saved == pytest.approx(alone - paid)
    assert share == pytest.approx((alone - paid) / alone)
    assert money_saved(Usage(), large_price=1, small_price=1) == (0.0, 0.0)


# Several generations.


def test_pooled_usage_adds_up() -> None:
    one, two = usage(), usage()
    two.large.tokens, two.large.evaluated, two.handoffs = 30, None, 5
    two.small.cached = 4
    total = pooled([one, two])
    assert total.large.tokens == 100
    assert total.large.decode_seconds == pytest.approx(13.2)
    assert total.large.evaluated == 40  # what one engine hides is not made up
    assert total.small.cached == 4
    assert total.handoffs == one.handoffs + 5
    assert total.first_token_seconds is None
    assert pooled([]) == Usage()
    assert pooled([Usage()]).large.evaluated is None


def test_pooled_costs_are_those_of_one_generation_twice() -> None:
    assert measured_costs(pooled([usage(), usage()])) == measured_costs(usage())


def test_what_a_hand_off_loses() -> None:
    large = ModelUsage(discarded=3, requests=2, decode_seconds=4.0, decoded=100, evaluated=9)
    small = ModelUsage(discarded=5, requests=2, decode_seconds=1.0, decoded=100, evaluated=9)
    large.first_seconds = small.first_seconds = 1.0  # catch-up, and counted as that
    spent = Usage(large, small, handoffs=4)
    assert handoff_ms(spent) == pytest.approx((3 * 40 + 5 * 10) / 4)
    small.evaluated = None  # waits of the small model's requests, beyond one decode step each
    assert handoff_ms(spent) == pytest.approx((3 * 40 + 5 * 10 + 1000 - 2 * 10) / 4)
    small.evaluated = 9
    large.seconds = 1.0 + 4.0 + 0.2  # the aborted step ran on
    assert handoff_ms(spent) == pytest.approx((3 * 40 + 5 * 10 + 200) / 4)
    spent.handoffs = 0
    assert handoff_ms(spent) == 0.0
