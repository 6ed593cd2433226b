"""Nobody pulls the plug during a test, and a busy disk may take a second for each answer."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _without_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(os, "fsync", lambda descriptor: None)
        yield
