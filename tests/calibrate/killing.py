"""Kills a calibration at many points, each time in a process of its own, and starts it again.

Run as a program: ``python -m tests.calibrate.killing FOLDER KILLS``: so many times while a file is
written (a line is torn then) and as often anywhere. Prints a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from relaygen.calibrate import _records, _score, _select, _traces

from . import talking

FILES = ("traces.jsonl", "scores.jsonl", "calibration.json", "profile.toml", "report.html")
_KILLED = 9


class Points:
    """Counts points; at one of them the process is gone, without any clean-up."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self.writes: list[int] = []
        self._last = last
        self._append, self._replace = _records.append, os.replace

    def tick(self) -> None:
        """One point."""
        self.count += 1
        if self.count == self._last:
            os._exit(_KILLED)

    def append(self, path: Any, record: Any) -> None:
        """A line that may be torn in the middle."""
        self.writes.append(self.count + 1)
        if self.count + 1 == self._last:
            line = json.dumps(record.to_json(), ensure_ascii=False).encode()
            with open(path, "ab") as file:
                file.write(line[: len(line) // 2])
        self.tick()
        self._append(path, record)
        self.tick()

    def replace(self, source: Any, target: Any) -> None:
        """A file that may not be put in place any more, or just was."""
        self.writes.append(self.count + 1)
        self.tick()
        self._replace(source, target)
        self.tick()


def run(folder: Path, last: int | None) -> int:
    """A calibration in a child; its exit status, and the points it counted in ``points``."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    points = Points(last)
    _traces.append = _score.append = points.append  # type: ignore[attr-defined]
    os.replace = points.replace  # type: ignore[assignment]
    status = 1
    try:
        one = talking.job(folder, n=6)
        asyncio.run(talking.everything(one, talking.relay(points.tick)))
        (folder / "points").write_text(json.dumps([points.count, points.writes]))
        status = 0
    finally:
        os._exit(status)


def main(folder: Path, kills: int) -> None:
    """Print the exit statuses and which files differ from a run that nobody killed."""
    assert _select  # numpy and scipy are loaded once, before the forks
    folder.mkdir()
    assert run(folder, None) == 0
    count, writes = json.loads((folder / "points").read_text())
    whole = contents(folder)
    told = []
    at_writes = [writes[number * (len(writes) - 1) // (kills - 1)] for number in range(kills)]
    anywhere = [1 + number * (count - 1) // (kills - 1) for number in range(kills)]
    for number, last in enumerate((*at_writes, *anywhere)):
        again = folder.with_name(f"killed-{number}")
        again.mkdir()
        statuses = [run(again, last), run(again, None)]
        after = contents(again)
        differ = [name for name in whole if whole[name] != after.get(name)]
        told.append({"at": last, "statuses": statuses, "differ": differ})
    print(json.dumps({"points": count, "files": sorted(whole), "writes": writes, "kills": told}))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a calibration; the profile's path differs between folders."""
    found = {name: (folder / "work" / name).read_bytes() for name in FILES}
    found["mine.toml"] = (folder / "mine.toml").read_bytes()
    return {name: data.replace(bytes(folder), b"FOLDER") for name, data in found.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
