"""Arms: the ways of answering that are compared, as the user names them.

``NAME[:OPTION][@LEVEL][+SPECULATION]``: a policy of the command line or one of the names below,
a level of the profile, and speculative decoding of the large model (``+draft``, ``+ngram``) or of
the small one (``+small-ngram``). ``module:function`` is a policy of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .._errors import UsageError
from .._imported import is_import_path
from .._profile import Profile
from .._task import AnswerRole
from ..policies import Policy, RandomPolicy, RelayPolicy, SmallOnly
from ..profiles import POLICIES, make_policy, own_policy_at
from ..profiles._policy import LEVELED
from ..text.cues import CueSet

Speculation = Literal["none", "draft", "ngram"]
"""How the large model decodes."""

SmallSpeculation = Literal["none", "ngram"]
"""How the small one does: it has no smaller model to draft for it."""

ALL_CUES = "relay:all-cues"
ANSWER_ONLY, ANSWER_STAGE = "answer-only", "answer-stage"
OWN = {
    ALL_CUES: "relay with every candidate cue of a calibration",
    ANSWER_ONLY: "the large model thinks, the small one answers",
    ANSWER_STAGE: "the small model answers behind the thinking that the arm large wrote",
    "random": "random sentences at the small model's share in the arm relay",
}
"""The arms that no policy's name stands for, and what they are."""

DEFAULT = ("large", "small", "relay", "random")
"""What is compared where nothing is said."""

_NAME = re.compile(
    r"(?P<policy>[\w.-]+(?::[^@+,\s]+)?)(?:@(?P<level>[^@+,\s]+))?(?P<more>(?:\+[a-z-]+)*)"
)
_SPECULATIONS: dict[str, tuple[Speculation, SmallSpeculation]] = {
    "draft": ("draft", "none"),
    "ngram": ("ngram", "none"),
    "small-ngram": ("none", "ngram"),
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of answering.

    Attributes:
        name: as the user wrote it; unique among the arms.
        policy: a policy's name, with an option perhaps, or one of `OWN`.
        level: of the profile; "" for the evaluation's own level, or none.
        large, small: how the models decode.
    """

    name: str
    policy: str
    level: str = ""
    large: Speculation = "none"
    small: SmallSpeculation = "none"

    @classmethod
    def of(cls, name: str) -> Arm:
        """From its name.

        Raises:
            UsageError: it is none.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise UsageError(
                f"{name[:100]!r} is no arm", hint="for example relay@balanced, large+draft"
            )
        policy, level = match["policy"], match["level"] or ""
        known_name = policy.partition(":")[0] in POLICIES or policy in OWN
        if not known_name and not is_import_path(policy):
            known = ", ".join(dict.fromkeys((*POLICIES, *OWN)))
            raise UsageError(f"there is no arm {policy!r}", hint=f"arms: {known}")
        if level and policy.partition(":")[0] not in (*LEVELED, "random"):
            raise UsageError(f"arm {policy} has no levels", hint=f"drop @{level}")
        if level and policy == ALL_CUES:
            raise UsageError(f"arm {policy} has no levels", hint=f"drop @{level}")
        large: Speculation = "none"
        small: SmallSpeculation = "none"
        for word in filter(None, match["more"].split("+")):
            if word not in _SPECULATIONS:
                raise UsageError(
                    f"there is no speculation {word!r}", hint=f"one of {', '.join(_SPECULATIONS)}"
                )
            of_large, of_small = _SPECULATIONS[word]
            if (of_large != "none" and large != "none") or (of_small != "none" and small != "none"):
                raise UsageError(f"arm {name!r} has two speculations for one model")
            large = large if of_large == "none" else of_large
            small = small if of_small == "none" else of_small
        return cls(name, policy, level, large, small)

    @property
    def base(self) -> str:
        """The policy's name without its option."""
        return self.policy.partition(":")[0]

    @property
    def waits_for(self) -> str:
        """The policy of the arm whose results come first, or ""."""
        return {"random": "relay", ANSWER_STAGE: "large"}.get(self.policy, "")

    def setup(self, profile: Profile, level: str = "", share: float | None = None) -> Setup:
        """What it needs of a profile.

        Args:
            profile: of the pair.
            level: where the arm has none of its own and its policy has levels.
            share: of the small model's tokens, for ``random``.

        Raises:
            UsageError: the arm is not applicable; the message says why.
        """
        if self.policy in (ANSWER_ONLY, ANSWER_STAGE):
            return self._of_answers(profile)
        if self.policy == ALL_CUES:
            return Setup(_with_all_cues(profile), make_policy("relay", _with_all_cues(profile)))
        if self.policy == "random":
            return Setup(profile, RandomPolicy(0.5 if share is None else share))
        wanted = (self.level or level) if self.base in LEVELED else ""
        return Setup(*own_policy_at(wanted or None, self.policy, profile))

    def _of_answers(self, profile: Profile) -> Setup:
        if profile.marks is None:
            raise UsageError(
                f"arm {self.policy} is not applicable: under profile {profile.name!r} nothing is "
                "thinking, so there is no answer stage",
                hint=f"drop {self.policy} from --arms",
            )
        if self.policy == ANSWER_STAGE:
            return Setup(profile, SmallOnly())
        return Setup(profile, RelayPolicy(CueSet(())), "small")


@dataclass(frozen=True, slots=True)
class Setup:
    """An arm under a profile; `answer_role` None is the profile's."""

    profile: Profile
    policy: Policy
    answer_role: AnswerRole | None = None


def _with_all_cues(profile: Profile) -> Profile:
    from ..calibrate._candidates import default_candidates

    cues = tuple(dict.fromkeys((*profile.cues, *default_candidates())))
    return replace(profile, cues=cues, level="", levels={})


def parse_arms(names: Iterable[str]) -> tuple[Arm, ...]:
    """Arms in the order given.

    Raises:
        UsageError: a name is no arm or there twice, there is none, or one waits for another that
            is not among them.
    """
    arms = tuple(Arm.of(name.strip()) for name in names if name.strip())
    if not arms:
        raise UsageError("there is no arm", hint=f"for example --arms {','.join(DEFAULT)}")
    twice = next((arm.name for arm in arms if [one.name for one in arms].count(arm.name) > 1), None)
    if twice is not None:
        raise UsageError(f"arm {twice} is there twice")
    for arm in arms:
        source(arm, arms)
    return arms


def source(arm: Arm, arms: Sequence[Arm]) -> Arm | None:
    """The arm whose results `arm` waits for; None where it waits for none.

    Raises:
        UsageError: that one is not among the arms.
    """
    wanted = arm.waits_for
    if not wanted:
        return None
    found = [
        one for one in arms if one.policy == wanted and (not arm.level or one.level == arm.level)
    ]
    if found:  # how a model decodes changes its times only, but a draft may turn a near-tie
        return next((one for one in found if (one.large, one.small) == ("none", "none")), found[0])
    name = f"{wanted}@{arm.level}" if arm.level else wanted
    hint = f"name {name} too" + (", or give a share: random:0.3" if wanted == "relay" else "")
    raise UsageError(f"arm {arm.name} needs the results of arm {name}", hint=hint)
