"""The baselines of one model."""

from __future__ import annotations

import pytest

from relaygen._types import Role
from relaygen.policies import LargeOnly, Policy, SmallOnly
from relaygen.policies.base import STAY

from .support import begun, candidates, feed, play, words


@pytest.mark.parametrize(("policy", "role"), [(LargeOnly(), "large"), (SmallOnly(), "small")])
def test_one_model_writes_everything(policy: Policy, role: Role) -> None:
    text = "Thus it is. So we end.\n\nTherefore, the answer: \\boxed{4}."
    (segment,) = play(policy, words(text))
    assert (segment.role, segment.kind, segment.text) == (role, "lead", text)
    assert policy.roles == {role}


@pytest.mark.parametrize(("policy", "role"), [(LargeOnly(), "large"), (SmallOnly(), "small")])
def test_it_answers_as_well(policy: Policy, role: Role) -> None:
    session = begun(policy, role)
    assert session.answer(role) == role
    assert session.probed(candidates(1.0)) == STAY
    assert feed(session, ["Thus", ".", " "], stage="answer") == [STAY] * 3
