from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relaygen.models import Store, _hub

from .support import CLOSED, Hub, point_at, running


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or writes the user's models, token, caches or settings, or the network."""
    from huggingface_hub import constants

    for name in ("RELAYGEN_NO_MIRROR", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_ETAG_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RELAYGEN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", CLOSED)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(_hub, "RETRY_WAIT_S", 0.01)
    point_at(monkeypatch, CLOSED)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "models")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    with running(server):
        point_at(monkeypatch, server.url)
        yield server
