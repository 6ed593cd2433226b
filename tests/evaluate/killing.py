"""Kills an evaluation at many points, each time in a process of its own, and starts it again.

Run as a program: ``python -m tests.evaluate.killing FOLDER KILLS``: so many times while a file is
written (a line is torn then) and as often anywhere. Prints a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from relaygen._files import lines
from relaygen.evaluate import _asking, _job

from . import answering

ARMS = "large,relay,random"
_KILLED = 9
_TIMES = ("seconds", "ms_per_token", "first_token_seconds", "first_answer_seconds")


class Points:
    """Counts points; at one of them the process is gone, without any clean-up."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self.writes: list[int] = []
        self._last = last
        self._append, self._replace = _asking.append, os.replace  # type: ignore[attr-defined]

    def tick(self) -> None:
        """One point."""
        self.count += 1
        if self.count == self._last:
            os._exit(_KILLED)

    def append(self, path: Any, value: Any, **options: Any) -> None:
        """A line that may be torn in the middle."""
        self.writes.append(self.count + 1)
        if self.count + 1 == self._last:
            line = json.dumps(value, ensure_ascii=False).encode()
            with open(path, "ab") as file:
                file.write(line[: len(line) // 2])
        self.tick()
        self._append(path, value, **options)
        self.tick()

    def replace(self, source: Any, target: Any) -> None:
        """A file that may not be put in place any more, or just was."""
        self.writes.append(self.count + 1)
        self.tick()
        self._replace(source, target)
        self.tick()


def run(folder: Path, last: int | None) -> int:
    """An evaluation in a child; its exit status, and the points it counted in ``points``."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    points = Points(last)
    _asking.append = points.append  # type: ignore[attr-defined]
    os.replace = points.replace  # type: ignore[assignment]
    _job.plots = lambda *args, **options: ()  # type: ignore[attr-defined]  # takes long
    os.fsync = lambda fd: None  # a killed process loses nothing that it wrote
    status = 1
    try:
        one = answering.evaluation(folder, ARMS, n=3)
        one.claim()
        asyncio.run(one.run(answering.pair(tick=points.tick)))
        one.report()
        (folder / "points").write_text(json.dumps([points.count, points.writes]))
        status = 0
    finally:
        os._exit(status)


def main(folder: Path, kills: int) -> None:
    """Print the exit statuses and whether a run that was killed ends in other files."""
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
    print(json.dumps({"points": count, "results": len(whole["results.jsonl"]), "kills": told}))


def contents(folder: Path) -> dict[str, Any]:
    """Everything that an evaluation writes and that is no measured time."""
    out = folder / "out"
    summary = json.loads((out / "summary.json").read_text())
    return {
        "results.jsonl": [_untimed(value) for _, value in lines(out / "results.jsonl")],
        "settings.json": json.loads((out / "settings.json").read_text()),
        "items.jsonl": (out / "items.jsonl").read_bytes(),
        "summary.json": [summary["paired"], summary["complete"]],
    }


def _untimed(result: Any) -> dict[str, Any]:
    usage = {key: value for key, value in result["usage"].items() if key not in _TIMES}
    for role in ("large", "small"):
        usage[role] = {"tokens": usage[role]["tokens"], "discarded": usage[role]["discarded"]}
    return {**result, "usage": usage, "segments": [part[:-1] for part in result["segments"]]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
