"""Policies by name, as the command line and requests give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from .._errors import UsageError
from .._imported import is_import_path, made
from .._profile import Profile
from ..policies import (
    EntropyPolicy,
    LargeOnly,
    MarginPolicy,
    NoWaitPolicy,
    OneShotPolicy,
    Policy,
    RandomPolicy,
    RelayPolicy,
    SmallOnly,
    SpeculativeThinkingPolicy,
)
from ..policies.entropy import STEP_THRESHOLD, UNITS
from ..policies.one_shot import CUE_GROUPS, DEFAULT_GROUPS, group_cues
from ..text.cues import CueSet

PLAIN = ("relay", "speculative-thinking", "large", "no-wait", "small")
"""The policies that take no option."""

LEVELED = ("relay", "margin")
"""The policies for which a profile's level makes a difference."""


def _relay(profile: Profile, option: str) -> Policy:
    level = profile.in_force
    if level is not None and level.policy == "margin":
        return _margin(profile, "")
    return RelayPolicy(
        _cues(profile), CueSet(profile.answer_markers), profile.max_consecutive_delegations
    )


def _margin(profile: Profile, option: str) -> Policy:
    stay, leave = _thresholds(profile, option)
    return MarginPolicy(
        _cues(profile),
        stay,
        leave,
        CueSet(profile.answer_markers),
        profile.max_consecutive_delegations,
    )


def _thresholds(profile: Profile, option: str) -> tuple[float, float]:
    if option:
        try:
            stay, leave = map(float, option.split(":"))
        except ValueError:
            raise UsageError(
                f"margin takes two thresholds, STAY:LEAVE, not {option[:100]!r}",
                hint="for example margin:0.9:0.3",
            ) from None
        return stay, leave
    level = profile.in_force
    if level is None or level.stay is None or level.leave is None:
        able = [name for name, each in profile.levels.items() if each.stay is not None]
        raise UsageError(
            "margin needs the margins at which the small model stays and leaves",
            hint="for example margin:0.9:0.3"
            + (f", or a level of the profile: {', '.join(able)}" if able else ""),
        )
    return level.stay, level.leave


def _cues(profile: Profile) -> CueSet:
    cues = CueSet(profile.cues)
    if not cues:
        raise UsageError(
            f"profile {profile.name!r} has no cues",
            hint="choose another policy, or a profile with cues",
        )
    return cues


def _one_shot(profile: Profile, option: str) -> Policy:
    groups = dict(CUE_GROUPS) | dict(profile.one_shot_groups)
    enabled = tuple(profile.one_shot_groups) or DEFAULT_GROUPS
    cues = group_cues(enabled, groups)
    if option in ("", "default"):
        return OneShotPolicy(cues)
    if option == "classic":
        return OneShotPolicy.classic(cues)
    raise UsageError(
        f"one-shot has the presets default and classic, not {option[:100]!r}",
        hint="for example one-shot:classic",
    )


def _random(profile: Profile, option: str) -> Policy:
    try:
        share = float(option)
    except ValueError:
        raise UsageError(
            "random needs the small model's share of the tokens",
            hint="for example random:0.3",
        ) from None
    return RandomPolicy(share)


def _entropy(profile: Profile, option: str) -> Policy:
    unit, _, written = option.partition(":")
    if unit == "step" and not written:
        return EntropyPolicy(STEP_THRESHOLD, "step")
    known = next((each for each in UNITS if each == unit), None)
    try:
        threshold = float(written)
    except ValueError:
        known = None
    if known is not None:
        return EntropyPolicy(threshold, known)
    raise UsageError(
        f"entropy takes a unit and a threshold in nats, not {option[:100]!r}",
        hint="for example entropy:step:1.0 or entropy:token:0.5",
    )


def _speculative_thinking(profile: Profile, option: str) -> Policy:
    return SpeculativeThinkingPolicy()


def _no_wait(profile: Profile, option: str) -> Policy:
    return NoWaitPolicy()


def _large(profile: Profile, option: str) -> Policy:
    return LargeOnly()


def _small(profile: Profile, option: str) -> Policy:
    return SmallOnly()


POLICIES: Mapping[str, tuple[Callable[[Profile, str], Policy], str]] = {
    "relay": (_relay, "delegate the rest of a sentence at each switch cue (the default)"),
    "margin": (
        _margin,
        "the same while the small model is sure: margin:0.9:0.3 lets it go on after a sentence at "
        "margins from 0.9, and hands back below 0.3",
    ),
    "one-shot": (
        _one_shot,
        "hand over for good at the first cue; also one-shot:classic",
    ),
    "random": (_random, "delegate random sentences: random:0.3 gives the small model 30 %"),
    "speculative-thinking": (
        _speculative_thinking,
        "the small model leads; the large one writes how paragraphs that reflect or affirm begin",
    ),
    "entropy": (
        _entropy,
        "the small model leads where it is certain: entropy:step:1.0 decides by the first token of "
        "each step, entropy:token:0.5 by every token (nats)",
    ),
    "large": (_large, "the large model alone"),
    "no-wait": (_no_wait, 'the large model alone, without words such as "Wait"'),
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
        raise UsageError(
            f"there is no policy {name[:100]!r}", hint=f"policies: {', '.join(POLICIES)}"
        )
    if colon and name in PLAIN:
        raise UsageError(f"policy {name} takes no option", hint=f"drop {(colon + option)[:100]!r}")
    return POLICIES[name][0](profile, option)


def policy_at(level: str | None, spec: str, profile: Profile) -> tuple[Profile, Policy]:
    """The profile with the level in force, and the policy there; None leaves the profile as it is.

    Raises:
        UsageError: there is no such level or policy, or the policy has no levels.
    """
    if level is None:
        return profile, make_policy(spec, profile)
    profile = profile.at(level)
    policy = make_policy(spec, profile)
    if policy.name not in LEVELED:
        raise UsageError(
            f"policy {policy.name} has no levels",
            hint="drop the level, or use the policy relay or margin",
        )
    return profile, policy


def own_policy_at(level: str | None, spec: str, profile: Profile) -> tuple[Profile, Policy]:
    """`policy_at` for whoever starts the program: ``module:function`` is a policy of their own.

    Never for what a request says: it would run code of the sender's choice.

    Raises:
        UsageError: as `policy_at`, or there is no such function, or it makes no policy.
    """
    if not is_import_path(spec) or spec.partition(":")[0] in POLICIES:
        return policy_at(level, spec, profile)
    profile = profile if level is None else profile.at(level)
    return profile, cast(Policy, made(spec, profile, Policy))


def notes(profile: Profile, policy: Policy) -> tuple[str, ...]:
    """What the reader of a result should know of the profile's level in force."""
    level = profile.in_force
    if level is None or not level.unproven or policy.name not in LEVELED:
        return ()
    return (
        f"level {profile.level} of profile {profile.name} is unproven: "
        "its cues were chosen without statistical evidence",
    )
