from __future__ import annotations

import os
from pathlib import Path

import pytest

from relaygen.engines._cpus import usable_cpus


@pytest.fixture(autouse=True)
def _eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("text", "count"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1),
     ("1600000 100000", 8), ("nonsense", 8), ("1 0", 8)],
)  # fmt: skip
def test_second_version(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert usable_cpus(tmp_path) == count


@pytest.mark.parametrize(("quota", "count"), [(-1, 8), (300_000, 3)])
def test_first_version(quota: int, count: int, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus(tmp_path) == count


def test_no_control_groups(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path) == 8


def test_no_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus(tmp_path) == 1
