"""What all policies have in common."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen.policies import (
    LargeOnly,
    MarginPolicy,
    NoWaitPolicy,
    OneShotPolicy,
    Policy,
    RandomPolicy,
    RelayPolicy,
    SmallOnly,
    Stay,
)
from relaygen.policies.base import STAY
from tests.text.support import texts

from .support import begun, feed, plan, play, words

POLICIES: tuple[Policy, ...] = (
    RelayPolicy.of(["Thus", "So", "now"], ["\\boxed{"]),
    OneShotPolicy(),
    OneShotPolicy.classic(),
    RandomPolicy(0.4),
    MarginPolicy.of(["Thus", "So", "now"], stay=0.5, leave=0.3, markers=["\\boxed{"]),
    LargeOnly(),
    SmallOnly(),
)

SCRIPT = words(
    "First we add. Thus 2 + 2 = 4. So it is 3.14, e.g. here. Therefore, done. " * 3
    + "In conclusion the answer: \\boxed{4}. Now, we are done."
)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_policy_describes_itself(policy: Policy) -> None:
    assert policy.first in policy.roles
    assert policy.margins <= policy.roles
    assert policy.roles <= {"large", "small"}


def test_names_are_those_of_the_command_line() -> None:
    assert [policy.name for policy in POLICIES] == [
        *("relay", "one-shot", "one-shot", "random", "margin", "large", "small")
    ]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_sessions_share_nothing(policy: Policy) -> None:
    alone = play(policy, SCRIPT)
    feed(begun(policy), SCRIPT)  # another one in between
    assert play(policy, SCRIPT) == alone


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("thinking", [True, False])
@settings(deadline=None, max_examples=25)
@given(st.data())
def test_deltas_of_any_size_give_the_same_hand_offs(
    policy: Policy, thinking: bool, data: st.DataObject
) -> None:
    script = words(data.draw(texts(40)))
    start = plan(thinking)

    def groups() -> st.SearchStrategy[int]:
        return st.integers(1, 12)

    class Sizes:
        def __iter__(self) -> Sizes:
            return self

        def __next__(self) -> int:
            return data.draw(groups())

    def margin(place: int) -> float:
        return (place % 10) / 10

    one_by_one = play(policy, script, start=start, margin=margin, streamed=True)
    grouped = play(policy, script, start=start, margin=margin, streamed=True, groups=Sizes())
    assert grouped == one_by_one
    assert "".join(segment.text for segment in one_by_one) == "".join(script)


def test_to_stay_is_to_hold_nothing() -> None:
    assert STAY == Stay() == Stay(held=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RelayPolicy.of("Thus"),
        lambda: RelayPolicy.of(["Thus"], "Answer"),
        lambda: MarginPolicy.of("Thus", stay=0.5, leave=0.3),
        lambda: NoWaitPolicy("wait"),  # type: ignore[arg-type]
    ],
)
def test_one_text_is_no_list_of_letters(make: Callable[[], Policy]) -> None:
    with pytest.raises(UsageError, match="must be several texts, not one") as caught:
        make()
    assert caught.value.hint.startswith("write ['")
