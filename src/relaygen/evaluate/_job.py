"""One evaluation: every arm answers every question, one result at a time is kept.

A run that is stopped at any moment and started again goes on where it was. Arms take turns question
by question, so that whatever changes on the machine meanwhile changes for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from .._errors import UsageError
from .._files import made, write
from .._jsonable import usage_from
from .._mathematics import Mathematics
from .._profile import Profile
from .._progress import Progress, silent
from .._task import Limits, Task
from .._types import Conversation, Role, Sampling
from .._version import __version__
from ..costs import pooled
from ..profiles._policy import LEVELED
from ._arms import ANSWER_STAGE, Arm, source
from ._asking import Asking, Decoding, schedule
from ._folder import Folder, Settings
from ._grade import Near
from ._plots import plots
from ._report import Subject, render
from ._results import Result, read, settled
from ._summary import Summary, summarize, summary_dict
from ._tables import markdown, results_csv

if TYPE_CHECKING:
    from .._api import Relay
    from ._drawing import Plot
    from ._questions import Item


class Evaluation:
    """An evaluation and where its files are.

    Args:
        folder: its own.
        settings: what is asked; see `Folder.claim`.
        profile: of the pair.
        items: the questions asked.
        arms: the ways of answering.
        at_once: answers generated at the same time. Above 1 no times are reported.
        near: see `summarize`.

    Raises:
        UsageError: an arm is not applicable, there are no questions, or several runs at
            temperature 0 are asked for.
    """

    def __init__(
        self,
        folder: Folder,
        settings: Settings,
        profile: Profile,
        items: Sequence[Item],
        arms: Sequence[Arm],
        *,
        at_once: int = 1,
        near: Near | None = None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.profile = profile
        self.items = tuple(items)
        self.arms = tuple(arms)
        self.at_once = at_once
        self.near = near
        self.sampling = Sampling(**settings.sampling)
        if not self.items:
            raise UsageError(f"there are no questions in {settings.data}")
        if settings.runs > 1 and not self.sampling.temperature:
            raise UsageError(
                "at temperature 0 every run writes the same", hint="use one run and more questions"
            )
        for arm in self.arms:
            setup = arm.setup(profile, settings.level)
            # Refuses what does not fit the profile now, and not after a download.
            Task(Conversation(()), setup.policy, thinking=profile.marks, limits=self.limits)

    @property
    def limits(self) -> Limits:
        """Of one answer."""
        return Limits(max_tokens=self.settings.max_tokens)

    def claim(self) -> None:
        """Take the folder, with what earlier runs found out.

        Raises:
            UsageError: the folder holds another evaluation, or cannot be written.
        """
        self.settings = self.folder.claim(self.settings, self.items)

    @property
    def decodings(self) -> tuple[Decoding, ...]:
        """How the pairs of engines decode that the arms need."""
        return tuple(dict.fromkeys((arm.large, arm.small) for arm in self.arms))

    async def run(self, relays: Mapping[Decoding, Relay], progress: Progress = silent) -> None:
        """Ask for every answer that is not there.

        Args:
            relays: for each of `decodings`.
            progress: told after each answer.

        Raises:
            UsageError: an engine serves another model than before.
            EngineError: an engine is gone, or an arm fails again and again; results stay.
        """
        for decoding, relay in relays.items():
            await self._introduce(relay, self.roles(decoding))
        with _mathematics(item.kind == "math" for item in self.items) as mathematics:
            await self._ask(Asking(self, relays, progress, mathematics))

    async def _ask(self, asking: Asking) -> None:
        await asking.warm_up()
        later = [arm for arm in self.arms if source(arm, self.arms)]
        await asking.ask([arm for arm in self.arms if arm not in later])
        await asking.ask([arm for arm in later if self._ready(arm, asking)])

    def roles(self, decoding: Decoding) -> list[Role]:
        """The engines that the arms of one decoding use."""
        used: set[Role] = set()
        for arm in self.arms:
            if (arm.large, arm.small) == decoding:
                used |= arm.setup(self.profile, self.settings.level).policy.roles
        return sorted(used)

    async def _introduce(self, relay: Relay, roles: Iterable[Role]) -> None:
        """Note which models answer; the names of servers say little."""
        known = dict(self.settings.engines)
        for role in roles:
            info = await relay.engines[role].info()
            own = {"model": info.model, "kind": info.kind, "vocabulary": info.vocabulary}
            before = known.setdefault(role, own)
            if before["model"] != own["model"] or before["vocabulary"] != own["vocabulary"]:
                raise UsageError(
                    f"{self.folder.path} holds an evaluation with another {role} model, "
                    f"{before['model']}",
                    hint="serve that one, or name another folder with --out",
                )
        if known != self.settings.engines:
            self._update(engines=known)

    def _update(self, **changes: Mapping[str, object]) -> None:
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        self.folder.update(self.settings)

    def _ready(self, arm: Arm, asking: Asking) -> bool:
        """Whether the arm that `arm` waits for has all its results; if so a share is pinned."""
        first = source(arm, self.arms)
        if first is None:
            return True
        keys = [unit.key for unit in schedule(self.items, self.settings.runs, [first])]
        missing = sum(not asking.is_there(key) and key not in asking.too_long for key in keys)
        if missing:
            what = "answer of {} is" if missing == 1 else "answers of {} are"
            asking.note(f"{arm.name} waits: {missing} {what.format(first.name)} missing")
            return False
        if arm.base == "random" and arm.name not in self.settings.shares:
            usage = pooled(
                usage_from(found.usage)
                for found in map(asking.found.__getitem__, keys)
                if found.usage is not None
            )
            share = 1.0 - (1.0 if usage.utilization is None else usage.utilization)
            self._update(shares={**self.settings.shares, arm.name: round(share, 4)})
            asking.note(f"{arm.name} delegates {share:.1%}, as {first.name} did")
        return True

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
        with _mathematics(unsure) as mathematics:
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
            ("data", f"{settings.data}, {len(self.items)} questions"),
            ("large", model("large", settings.large)),
            ("small", model("small", settings.small)),
            ("profile", f"{settings.profile}, sha256 {settings.profile_sha256[:16]}"),
            ("level", (settings.level or "the profile's own cues") if leveled else ""),
            ("sampling", f"{drawn}, at most {settings.max_tokens} tokens, seed {settings.seed}"),
            *((f"share of {name}", f"{share:.1%}") for name, share in settings.shares.items()),
            ("version", f"relaygen {__version__}"),
        ]
        return [(label, value) for label, value in facts if value]


@contextmanager
def _mathematics(needed: Iterable[bool]) -> Iterator[Mathematics | None]:
    """One process that compares, for many answers; None where no answer needs it."""
    if not any(needed):
        yield None
        return
    with Mathematics() as mathematics:
        yield mathematics
