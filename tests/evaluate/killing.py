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
from relaygen.evaluate import _asking, _reporting

from ..killing import Points, in_a_child, killed
from . import answering

ARMS = "large,relay,random"
_TIMES = ("seconds", "ms_per_token", "first_token_seconds", "first_answer_seconds")


def run(folder: Path, last: int | None) -> int:
    """An evaluation in a child, killed at a point or not; its exit status."""
    points = Points(last, _asking.append, lambda value: value)  # type: ignore[attr-defined]

    def work() -> None:
        _asking.append = points.append  # type: ignore[attr-defined, assignment]
        _reporting.plots = lambda *args, **options: ()  # type: ignore[attr-defined]  # takes long
        os.fsync = lambda fd: None  # a killed process loses nothing that it wrote
        one = answering.evaluation(folder, ARMS, n=3)
        one.claim()
        asyncio.run(_asking.ask(one, answering.pair(tick=points.tick)))
        one.report()

    return in_a_child(folder, points, work)


def main(folder: Path, kills: int) -> None:
    """Print the exit statuses and whether a run that was killed ends in other files."""
    told = killed(folder, kills, run, contents)
    print(json.dumps({**told, "whole": None, "results": len(told["whole"]["results.jsonl"])}))


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
