"""The command line of ``relaygen eval`` over answering engines, also as a program.

``python -m tests.evaluate.commanding MILLISECONDS ARGUMENTS…`` runs relaygen with engines that take
so long per token.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

import pytest

from relaygen import Relay
from relaygen._profile import Profile
from relaygen._types import ROLES, Role
from relaygen.cli import _options, main
from relaygen.cli._absent import Absent
from relaygen.cli._options import PairOptions
from relaygen.policies import Policy

from .answering import Answerer, small_is_wrong


class Stage:
    """What stands in for `open_relay`, and the engines that it opened; options are the small's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ms: float = 0.0, **small: Any) -> None:
        self.asked: list[PairOptions] = []
        self.roles: list[set[Role]] = []
        self.engines: list[Answerer] = []
        self.small: dict[str, Any] = small
        self._ms = ms
        monkeypatch.setattr(_options, "open_relay", self.open_relay)

    def open_relay(
        self, pair: PairOptions, profile: Profile, policy: Policy, roles: Collection[Role] = ROLES
    ) -> Relay:
        self.asked.append(pair)
        self.roles.append(set(roles))
        thinks = profile.thinking == "tags"
        self.engines += [
            Answerer("Anna", thinks=thinks, ms=self._ms),
            Answerer("Ben", wrong=small_is_wrong, thinks=thinks, ms=self._ms, **self.small),
        ]
        own = dict(zip(ROLES, self.engines[-2:], strict=True))
        used = [own[role] if role in roles else Absent(role) for role in ROLES]
        return Relay(*used, profile=profile, policy=policy)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patches:
        Stage(patches, float(sys.argv[1]))
        main(sys.argv[2:], prog_name="relaygen")
