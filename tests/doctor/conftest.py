from __future__ import annotations

import pytest

from relaygen.doctor import _subject

from .support import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_subject, "time", made)
    return made
