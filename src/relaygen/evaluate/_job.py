"""One evaluation: every arm is to answer every question. `ask` of `_asking` lets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .._errors import UsageError
from .._profile import Profile
from .._task import Limits, Task
from .._types import Conversation, Role, Sampling
from ._arms import Arm
from ._folder import Folder, Settings
from ._grade import Near
from ._reporting import Findings
from ._schedule import Decoding

if TYPE_CHECKING:
    from .._api import Relay
    from ._questions import Item


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

    def roles(self, decoding: Decoding) -> list[Role]:
        """The engines that the arms of one decoding use."""
        used: set[Role] = set()
        for arm in self.arms:
            if (arm.large, arm.small) == decoding:
                used |= arm.setup(self.profile, self.settings.level).policy.roles
        return sorted(used)

    async def introduce(self, relay: Relay, roles: Iterable[Role]) -> None:
        """Note which models answer; the names of servers say little.

        Raises:
            UsageError: an engine serves another model than before.
        """
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
            self.update(engines=known)

    def update(self, **changes: Mapping[str, object]) -> None:
        """Change settings, in the folder too."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        self.folder.update(self.settings)
