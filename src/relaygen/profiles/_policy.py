"""Policies by name, as the command line and requests give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .._errors import UsageError
from .._profile import Profile
from ..policies import LargeOnly, OneShotPolicy, Policy, RandomPolicy, RelayPolicy, SmallOnly
from ..policies.one_shot import CUE_GROUPS, DEFAULT_GROUPS, group_cues
from ..text.cues import CueSet


def _relay(profile: Profile, option: str) -> Policy:
    cues = CueSet(profile.cues)
    if not cues:
        raise UsageError(
            f"profile {profile.name!r} has no cues",
            hint="choose another policy, or a profile with cues",
        )
    return RelayPolicy(cues, CueSet(profile.answer_markers), profile.max_consecutive_delegations)


def _one_shot(profile: Profile, option: str) -> Policy:
    groups = dict(CUE_GROUPS) | dict(profile.one_shot_groups)
    enabled = tuple(profile.one_shot_groups) or DEFAULT_GROUPS
    cues = group_cues(enabled, groups)
    if option in ("", "default"):
        return OneShotPolicy(cues)
    if option == "classic":
        return OneShotPolicy.classic(cues)
    raise UsageError(f"one-shot has the presets default and classic, not {option!r}")


def _random(profile: Profile, option: str) -> Policy:
    try:
        share = float(option)
    except ValueError:
        raise UsageError(
            "random needs the small model's share of the tokens",
            hint="for example random:0.3",
        ) from None
    return RandomPolicy(share)


def _large(profile: Profile, option: str) -> Policy:
    return LargeOnly()


def _small(profile: Profile, option: str) -> Policy:
    return SmallOnly()


POLICIES: Mapping[str, tuple[Callable[[Profile, str], Policy], str]] = {
    "relay": (_relay, "delegate the rest of a sentence at each switch cue (the default)"),
    "one-shot": (
        _one_shot,
        "hand over for good at the first cue; also one-shot:classic",
    ),
    "random": (_random, "delegate random sentences: random:0.3 gives the small model 30 %"),
    "large": (_large, "the large model alone"),
    "small": (_small, "the small model alone"),
}
"""Name -> how to make it from a profile and an option, and one line of help."""


def make_policy(spec: str, profile: Profile) -> Policy:
    """A policy from ``name`` or ``name:option``.

    Raises:
        UsageError: there is no such policy, or the option makes no sense.
    """
    name, colon, option = spec.partition(":")
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}", hint=f"policies: {', '.join(POLICIES)}")
    if colon and name in ("relay", "large", "small"):
        raise UsageError(f"policy {name} takes no option", hint=f"drop {colon + option!r}")
    return POLICIES[name][0](profile, option)
