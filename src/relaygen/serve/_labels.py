"""The values that labels of metrics may have: what clients and policies wrote is none of them."""

from __future__ import annotations

from dataclasses import dataclass

from .._events import HandedOff
from .._profile import Profile
from ..policies.base import Policy
from ..policies.one_shot import CUE_GROUPS
from ..profiles import POLICIES
from ..text.cues import CueSet
from ._tasks import Order

OTHER = "other"

REASONS = (
    "affirmation", "answer", "certain", "context", "cue", "entropy", "failure", "limit", "loop",
    "margin", "marker", "random", "recap", "reflection", "sentence", "stage", "turn", "written",
)  # fmt: skip
"""Why there is a hand-off: the words of the loop and of our policies."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The values of one application. Everything else becomes ``other``.

    Attributes:
        cues: of the profile, of its levels and of the one-shot policy.
        policies: those of this package and the server's own.
        levels: of the profile.
    """

    cues: frozenset[str]
    policies: frozenset[str]
    levels: frozenset[str]

    @classmethod
    def of(cls, profile: Profile, policy: Policy) -> Allowed:
        """Those of a served pair."""
        lists = [
            profile.cues,
            *(level.cues for level in profile.levels.values()),
            *CUE_GROUPS.values(),
            *profile.one_shot_groups.values(),
        ]
        return cls(
            cues=frozenset(name for cues in lists for name in CueSet(cues).names),
            policies=frozenset((*POLICIES, policy.name)),
            levels=frozenset(profile.levels),
        )

    def order(self, order: Order) -> tuple[str, str]:
        """Policy and level; the level is "" where none is in force."""
        policy, level = order.task.policy.name, order.level
        return (
            policy if policy in self.policies else OTHER,
            level if not level or level in self.levels else OTHER,
        )

    def handoff(self, event: HandedOff) -> tuple[str, str, str]:
        """Direction, reason and cue; the cue is "" where none brought it about."""
        return (
            f"{event.source}_to_{event.target}",
            event.why if event.why in REASONS else OTHER,
            event.cue if not event.cue or event.cue in self.cues else OTHER,
        )
