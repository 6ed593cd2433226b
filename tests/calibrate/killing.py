"""Kills a calibration at many points, each time in a process of its own, and starts it again.

Run as a program: ``python -m tests.calibrate.killing FOLDER KILLS``: so many times while a file is
written (a line is torn then) and as often anywhere. Prints a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from relaygen.calibrate import _records, _score, _select, _traces

from ..killing import Points, in_a_child, killed
from . import talking

FILES = ("traces.jsonl", "scores.jsonl", "calibration.json", "profile.toml", "report.html")


def run(folder: Path, last: int | None) -> int:
    """A calibration in a child, killed at a point or not; its exit status."""
    points = Points(last, _records.append, lambda record: record.to_json())

    def work() -> None:
        _traces.append = _score.append = points.append  # type: ignore[attr-defined]
        one = talking.job(folder, n=6)
        asyncio.run(talking.everything(one, talking.relay(points.tick)))

    return in_a_child(folder, points, work)


def main(folder: Path, kills: int) -> None:
    """Print the exit statuses and which files differ from a run that nobody killed."""
    assert _select  # numpy and scipy are loaded once, before the forks
    told = killed(folder, kills, run, contents)
    print(json.dumps({**told, "whole": None, "files": sorted(told["whole"])}))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a calibration; the profile's path differs between folders."""
    found = {name: (folder / "work" / name).read_bytes() for name in FILES}
    found["mine.toml"] = (folder / "mine.toml").read_bytes()
    return {name: data.replace(bytes(folder), b"FOLDER") for name, data in found.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
