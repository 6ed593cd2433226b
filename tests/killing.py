"""Kills long work at many points, each time in a process of its own, and starts it again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

KILLED = 9
"""The exit status of a process that a point ended."""


class Points:
    """Counts points; at one of them the process is gone, without any clean-up.

    Args:
        last: that one; None for none.
        append: writes a line to a file: called as ``append(path, record, **options)``.
        plain: a record as the file's line has it.
    """

    def __init__(
        self, last: int | None, append: Callable[..., None], plain: Callable[[Any], Any]
    ) -> None:
        self.count = 0
        self.writes: list[int] = []
        self._last = last
        self._append, self._plain, self._replace = append, plain, os.replace

    def tick(self) -> None:
        """One point."""
        self.count += 1
        if self.count == self._last:
            os._exit(KILLED)

    def append(self, path: Any, record: Any, **options: Any) -> None:
        """A line that may be torn in the middle."""
        self.writes.append(self.count + 1)
        if self.count + 1 == self._last:
            line = json.dumps(self._plain(record), ensure_ascii=False).encode()
            with open(path, "ab") as file:
                file.write(line[: len(line) // 2])
        self.tick()
        self._append(path, record, **options)
        self.tick()

    def replace(self, source: Any, target: Any) -> None:
        """A file that may not be put in place any more, or just was."""
        self.writes.append(self.count + 1)
        self.tick()
        self._replace(source, target)
        self.tick()


def in_a_child(folder: Path, points: Points, work: Callable[[], None]) -> int:
    """Do the work in a fork; its exit status. What it counted is in the folder's ``points``."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.replace = points.replace  # type: ignore[assignment]
    status = 1
    try:
        work()
        (folder / "points").write_text(json.dumps([points.count, points.writes]))
        status = 0
    finally:
        os._exit(status)


def killed(
    folder: Path,
    kills: int,
    run: Callable[[Path, int | None], int],
    contents: Callable[[Path], dict[str, Any]],
) -> dict[str, Any]:
    """So many times while a file is written, and so many times anywhere.

    Args:
        folder: of the run that nobody kills; the others' are beside it.
        kills: at least 2.
        run: does all in a folder, killed at a point or not; its exit status.
        contents: what a folder holds in the end.

    Returns:
        ``points`` and ``writes`` that were counted, the ``whole`` contents, and of each kill the
        point, the exit statuses, and what differs from the whole.
    """
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
    return {"points": count, "writes": writes, "whole": whole, "kills": told}
