"""The progress of long work on stderr: a bar on a terminal, else a plain line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from relaygen.cli._progress import Pace, on_stderr

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task, TaskID

    from relaygen._progress import Progress, Step

EVERY_S = 15.0  # between plain lines
_DOING = {
    "traces": "writing traces",
    "score": "scoring",
    "check": "checking",
    "answers": "answering",
    "bench": "measuring",
    "doctor": "examining",
}


def show_steps() -> AbstractContextManager[Progress]:
    """Give a progress callback for the steps of long work that writes to stderr."""
    return on_stderr(_bars, PlainSteps)


class PlainSteps:
    """One line at each step's start and end, for each note, and else at most one in ``EVERY_S``.

    Args:
        write: takes a line without its end.
        clock: seconds that only grow.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._pace = Pace(EVERY_S, clock)

    def __call__(self, step: Step, /) -> None:
        """Write what is worth a line."""
        if step.note:
            self._write(step.note)
            return
        if not self._pace.due(step.name, at_once=step.done >= step.total):
            return
        left = f", {left_text(step.left)}" if step.left and step.done < step.total else ""
        self._write(f"{_DOING[step.name]}: {step.done} of {step.total}{left}")


def left_text(seconds: float | None) -> str:
    """Time left, for people: rounded up, since it always takes longer."""
    if seconds is None:
        return ""
    if seconds < 60:
        return "under a minute left"
    minutes = int(-(-seconds // 60))
    if minutes < 90:
        return f"about {minutes} min left"
    return f"about {minutes // 60} h {minutes % 60:02d} min left"


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Left(ProgressColumn):
        """Counts down between two traces, which may take minutes each."""

        def render(self, task: Task) -> Text:
            until = task.fields.get("until")
            left = None if until is None else max(0.0, until - time.monotonic())
            return Text(left_text(left), "dim")

    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False)]
    if console.width >= 70:
        columns.append(BarColumn(bar_width=24))
    columns += [MofNCompleteColumn(), Left()]
    with Bars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(step: Step, /) -> None:
            if step.note:
                bars.console.print(Text(step.note))
            if step.name not in tasks:
                for task in tasks.values():
                    bars.update(task, visible=False)
                tasks[step.name] = bars.add_task(_DOING[step.name], total=step.total, until=None)
            until = None if step.left is None else time.monotonic() + step.left
            bars.update(tasks[step.name], completed=step.done, total=step.total, until=until)

        yield show
