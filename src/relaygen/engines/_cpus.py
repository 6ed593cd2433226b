"""How many CPUs this process may use, which in a container is fewer than the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cpus(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs by affinity and by the control group's quota, at least 1.

    Args:
        cgroups: where the control groups are mounted, version 1 or 2.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota(cgroups)
    return max(1, min(count, math.ceil(quota)) if quota else count)


def _quota(cgroups: Path) -> float | None:
    """CPUs by quota; None where there is no limit."""
    try:
        if (cgroups / "cpu.max").exists():
            allowed, period = (cgroups / "cpu.max").read_text().split()
        else:
            allowed = (cgroups / "cpu/cpu.cfs_quota_us").read_text()
            period = (cgroups / "cpu/cpu.cfs_period_us").read_text()
        share = int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no control groups, or "max"
        return None
    return share if share > 0 else None
