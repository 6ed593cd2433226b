"""The files that tell what an evaluation found, written from its results. No engine is asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from .._errors import UsageError
from .._files import made, write
from .._version import __version__
from .._words import plural
from ..profiles._policy import LEVELED
from ._arms import ANSWER_STAGE, Arm, parse_arms
from ._folder import Folder, Settings
from ._grade import Near, comparing
from ._plots import plots
from ._report import Subject, render
from ._results import Result, read, settled
from ._schedule import schedule
from ._summarize import summarize
from ._summary import Summary, summary_dict
from ._tables import markdown, results_csv

if TYPE_CHECKING:
    from ._drawing import Plot
    from ._questions import Item


class Findings:
    """The questions and arms of an evaluation, and what its folder has of them.

    Args:
        folder: its own.
        settings: what was asked.
        items: the questions.
        arms: the ways of answering.
        near: see `summarize`.
    """

    def __init__(
        self,
        folder: Folder,
        settings: Settings,
        items: Sequence[Item],
        arms: Sequence[Arm],
        *,
        near: Near | None = None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.items = tuple(items)
        self.arms = tuple(arms)
        self.near = near

    @classmethod
    def of(
        cls,
        folder: Folder,
        *,
        arms: Sequence[str] = (),
        n: int | None = None,
        runs: int | None = None,
        near: Near | None = None,
    ) -> Findings:
        """What was asked in a folder last, as its files have it.

        Args:
            folder: of an evaluation.
            arms: names of other arms to tell of; none for those that were asked.
            n: only the first so many questions; None for those of the last run.
            runs: only so many runs; None for all of the last run.
            near: see `summarize`.

        Raises:
            UsageError: there is no evaluation, its files cannot be read, an arm is none, or fewer
                questions were asked.
        """
        settings, items = folder.kept(), folder.asked()
        if not items:
            raise UsageError(
                f"there are no questions in {folder.items}",
                hint="run the evaluation again: what is there is not asked again",
            )
        if n is not None and n > len(items):
            raise UsageError(
                f"--n {n}: {folder.path} has only {plural(len(items), 'question')}",
                hint="ask the others first, without --step report",
            )
        items = items[: n or settings.questions or settings.n]
        parsed = parse_arms(arms or settings.arms)
        settings = replace(
            settings,
            n=n or settings.n,
            runs=runs or settings.runs,
            arms=tuple(arm.name for arm in parsed),
        )
        return cls(folder, settings, items, parsed, near=near)

    def results(self) -> list[Result]:
        """Those that are there, of other arms and questions too.

        Raises:
            UsageError: the file cannot be read, or a line is no result.
        """
        return read(self.folder.results)

    def summary(self) -> Summary:
        """Of what was asked, as far as it is there.

        Raises:
            UsageError: as `results`.
            MissingExtraError: a library is not installed.
        """
        settings, found = self.settings, self.results()
        unsure = [result.error is None and result.correct is None for result in found]
        unsure.append(any(arm.policy == ANSWER_STAGE for arm in self.arms))
        with comparing(unsure) as mathematics:
            return summarize(
                self.items,
                found,
                self.arms,
                runs=settings.runs,
                devices=settings.devices,
                mathematics=mathematics,
                near=self.near,
            )

    def report(self) -> Summary:
        """Write the page with its plots, the summary as JSON and Markdown, and the results as CSV.

        Raises:
            UsageError: as `results`, or a file cannot be written.
            MissingExtraError: a library is not installed.
        """
        summary, devices = self.summary(), self.settings.devices
        found = settled(self.results())
        asked = schedule(self.items, self.settings.runs, self.arms)
        told = {"settings": asdict(self.settings), "version": __version__, **summary_dict(summary)}
        write(self.folder.summary, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        write(self.folder.markdown, markdown(summary, self.facts))
        rows = [found[unit.key] for unit in asked if unit.key in found]
        drawn = plots(summary, [row for row in rows if row.error is None], devices=devices)
        self._write_plots(drawn)
        subject = Subject(summary, self.items, rows, drawn, self.facts)
        write(self.folder.page, render(subject))
        write(self.folder.table, results_csv(sorted(rows, key=lambda row: row.order)))
        return summary

    def _write_plots(self, drawn: Iterable[Plot]) -> None:
        """As files; those of an earlier report that can no longer be drawn go."""
        made(self.folder.plots)
        for plot in drawn:
            for ending, content in (("svg", plot.svg), ("png", plot.png)):
                path = self.folder.plots / f"{plot.name}.{ending}"
                write(path, content) if content else path.unlink(missing_ok=True)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """How it was made: label and value."""
        settings = self.settings

        def model(role: str, named: str) -> str:
            own = settings.engines.get(role, {})
            served = f"{own.get('model', '')} ({own.get('kind', '')})" if own else ""
            return served or named

        sampling = settings.sampling
        drawn = (
            "greedy" if not sampling["temperature"] else f"temperature {sampling['temperature']}"
        )
        leveled = any(arm.base in LEVELED and not arm.level for arm in self.arms)
        facts = [
            ("data", f"{settings.data}, {plural(len(self.items), 'question')}"),
            ("large", model("large", settings.large)),
            ("small", model("small", settings.small)),
            ("profile", f"{settings.profile}, sha256 {settings.profile_sha256[:16]}"),
            ("level", (settings.level or "the profile's own cues") if leveled else ""),
            ("sampling", f"{drawn}, at most {settings.max_tokens} tokens, seed {settings.seed}"),
            *((f"share of {name}", f"{share:.1%}") for name, share in settings.shares.items()),
            ("version", f"relaygen {__version__}"),
        ]
        return [(label, value) for label, value in facts if value]
