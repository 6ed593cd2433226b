"""The command line of ``relaygen calibrate`` over talking engines, also as a program.

``python -m tests.calibrate.commanding MILLISECONDS ARGUMENTS…`` runs relaygen with engines that
take so long per token.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection

import pytest

from relaygen import Relay
from relaygen._profile import Profile
from relaygen._types import ROLES, Role
from relaygen.cli import _options, main
from relaygen.cli._absent import Absent
from relaygen.cli._options import PairOptions
from relaygen.policies import Policy

from .talking import Talker


class Stage:
    """What stands in for `open_relay`, and the engines that it opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ms: float = 0.0) -> None:
        self.asked: list[PairOptions] = []
        self.roles: list[set[Role]] = []
        self.engines: list[Talker] = []
        self._ms = ms
        monkeypatch.setattr(_options, "open_relay", self.open_relay)

    def open_relay(
        self, pair: PairOptions, profile: Profile, policy: Policy, roles: Collection[Role] = ROLES
    ) -> Relay:
        self.asked.append(pair)
        self.roles.append(set(roles))
        own = {role: Talker(self._wait) for role in ROLES}
        self.engines += own.values()
        used = [own[role] if role in roles else Absent(role) for role in ROLES]
        return Relay(*used, profile=profile, policy=policy)

    def _wait(self) -> None:
        time.sleep(self._ms / 1000)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patches:
        Stage(patches, float(sys.argv[1]))
        main(sys.argv[2:], prog_name="relaygen")
