"""The command line of ``relaygen calibrate`` over talking engines, also as a program.

``python -m tests.calibrate.commanding MILLISECONDS ARGUMENTS…`` runs relaygen with engines that
take so long per token.
"""

from __future__ import annotations

import sys
import time

import pytest

from relaygen import Relay
from relaygen._profile import Profile
from relaygen.cli import _options, main
from relaygen.cli._options import PairOptions
from relaygen.policies import Policy

from .talking import Talker


class Stage:
    """What stands in for `open_relay`, and the engines that it opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ms: float = 0.0) -> None:
        self.asked: list[PairOptions] = []
        self.engines: list[Talker] = []
        self._ms = ms
        monkeypatch.setattr(_options, "open_relay", self.open_relay)

    def open_relay(self, pair: PairOptions, profile: Profile, policy: Policy) -> Relay:
        self.asked.append(pair)
        self.engines += [Talker(self._wait), Talker(self._wait)]
        return Relay(*self.engines[-2:], profile=profile, policy=policy)

    def _wait(self) -> None:
        time.sleep(self._ms / 1000)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patches:
        Stage(patches, float(sys.argv[1]))
        main(sys.argv[2:], prog_name="relaygen")
