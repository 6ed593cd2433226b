"""A fetch's progress on stderr: a bar on a terminal, else a plain line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from relaygen.models import FetchProgress, FetchStep, ProgressEvent, size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

T = TypeVar("T")

EVERY_S = 5.0  # between plain lines

_DOING: dict[FetchStep, str] = {
    "wait": "waiting",
    "hub": "fetching",
    "mirror": "fetching packages",
    "join": "joining",
    "verify": "checking",
}


@contextmanager
def on_stderr(
    bars: Callable[[Console], AbstractContextManager[T]],
    plain: Callable[[Callable[[str], None]], T],
) -> Iterator[T]:
    """What shows progress on stderr: `bars` on a terminal, else `plain` with its lines there."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        with bars(console) as progress:
            yield progress
    else:
        yield plain(lambda line: click.echo(line, err=True))


class Pace:
    """When a plain line is due: at once for another topic, else at most once in a while.

    Args:
        every: seconds between lines of one topic.
        clock: seconds that only grow.
    """

    def __init__(self, every: float, clock: Callable[[], float]) -> None:
        self._every = every
        self._clock = clock
        self._topic: Hashable = None
        self._next = 0.0

    def due(self, topic: Hashable, *, at_once: bool = False) -> bool:
        """Whether to write now; if so, the next line of this topic waits."""
        if topic == self._topic and self._clock() < self._next and not at_once:
            return False
        self._topic = topic
        self._next = self._clock() + self._every
        return True


def show_progress() -> AbstractContextManager[FetchProgress]:
    """Give a progress callback for :func:`relaygen.models.pull` that writes to stderr."""
    return on_stderr(_bars, PlainProgress)


class PlainProgress:
    """One line for each note and each step, and within a step at most one in ``EVERY_S``.

    Args:
        write: takes a line without its end.
        clock: seconds that only grow.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._pace = Pace(EVERY_S, clock)

    def __call__(self, event: ProgressEvent, /) -> None:
        """Write what is worth a line."""
        if event.note:
            self._write(f"{event.model}: {event.note}")
            return
        if not self._pace.due((event.model, event.step)):
            return
        share = f" ({100 * event.done // event.total} %)" if event.total else ""
        of = f" of {size_text(event.total)}" if event.total else ""
        doing = _DOING[event.step]
        self._write(f"{event.model}: {doing}: {size_text(event.done)}{of}{share}")


@contextmanager
def _bars(console: Console) -> Iterator[FetchProgress]:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID
    from rich.text import Text

    tasks: dict[tuple[str, FetchStep], TaskID] = {}
    with Bars(*_columns(console.width), console=console, transient=True) as bars:

        def show(event: ProgressEvent, /) -> None:
            if event.note:
                bars.console.print(Text(f"{event.model}: {event.note}"))
                return
            key = (event.model, event.step)
            if key not in tasks:
                for task in tasks.values():  # one bar at a time: what is being done now
                    bars.update(task, visible=False)
                label = f"{event.model}: {_DOING[event.step]}"
                # Bytes of an earlier, interrupted call must not count as this one's speed.
                tasks[key] = bars.add_task(label, completed=event.done, total=event.total or None)
            bars.update(tasks[key], completed=event.done, total=event.total or None)

        yield show


def _columns(width: int) -> list[ProgressColumn]:
    """What fits: the bar and speed go first on a narrow terminal, the percentage never."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.table import Column

    label = TextColumn(
        "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
    )
    columns: list[ProgressColumn] = [label]
    if width >= 100:
        columns.append(BarColumn(bar_width=20))
    columns.append(TaskProgressColumn())
    if width >= 70:
        columns += [DownloadColumn(), TransferSpeedColumn()]
    if width >= 50:
        columns.append(TimeRemainingColumn())
    return columns
