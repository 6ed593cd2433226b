"""One evaluation: every arm answers every question, one result at a time is kept.

A run that is stopped at any moment and started again goes on where it was. Arms take turns question
by question, so that whatever changes on the machine meanwhile changes for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .._errors import UsageError
from .._jsonable import usage_from
from .._profile import Profile
from .._progress import Progress, silent
from .._task import Limits, Task
from .._types import Conversation, Role, Sampling
from ..costs import pooled
from ._arms import Arm, source
from ._asking import Asking, Decoding, schedule
from ._folder import Folder, Settings
from ._grade import Near
from ._reporting import Findings, comparing

if TYPE_CHECKING:
    from .._api import Relay
    from ._questions import Item

_DRIFT = 0.001
"""Shares that differ by less are told as the same."""


class Evaluation(Findings):
    """An evaluation that can be begun and gone on with.

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
        super().__init__(folder, settings, items, arms, near=near)
        self.profile = profile
        self.at_once = at_once
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
        with comparing(item.kind == "math" for item in self.items) as mathematics:
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
        if arm.base == "random":
            usage = pooled(
                usage_from(found.usage)
                for found in map(asking.found.__getitem__, keys)
                if found.usage is not None
            )
            kept = 1.0 if usage.utilization is None else usage.utilization
            self._pin(arm, first, 1.0 - kept, asking)
        return True

    def _pin(self, arm: Arm, first: Arm, share: float, asking: Asking) -> None:
        """Keep the share at which `arm` runs: that of `first` when `arm` began, and no later one.

        Answers at two shares would be two arms. So an arm that has answers keeps its share, also
        where `first` has answered more questions since.
        """
        before = self.settings.shares.get(arm.name)
        if before is not None and asking.has_begun(arm.name):
            if abs(before - share) >= _DRIFT:
                asking.note(
                    f"{arm.name} keeps its share of {before:.1%}, at which it began; "
                    f"{first.name} delegates {share:.1%} by now"
                )
            return
        self._update(shares={**self.settings.shares, arm.name: round(share, 4)})
        asking.note(f"{arm.name} delegates {share:.1%}, as {first.name} did")
