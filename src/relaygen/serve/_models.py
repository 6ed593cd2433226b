"""Model names: the pair under its served name, ``name@policy[:option]`` and ``name@level``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from .._errors import UsageError
from .._profile import Profile
from ..policies.base import Policy
from ..profiles import LEVELED, POLICIES, make_policy, notes, policy_at
from ._errors import ApiError, invalid

LISTED = ("relay", "margin", "one-shot", "one-shot:classic", "large", "small")
"""What ``/v1/models`` lists beside the plain name, where it fits the profile."""

_KEPT = 256


class Choice(NamedTuple):
    """What a request chose.

    Attributes:
        name: to answer with.
        spec: the policy as written.
        policy: the policy.
        level: the profile's level in force; "" where none is.
        notes: what a result at this level says.
    """

    name: str
    spec: str
    policy: Policy
    level: str = ""
    notes: tuple[str, ...] = ()


def _leveled(spec: str) -> bool:
    """Whether the policy of this name has levels."""
    return spec.partition(":")[0] in LEVELED


def _refuse_policy(error: str) -> ApiError:
    return invalid(error, "relay.policy")


def _refuse_level(error: str) -> ApiError:
    return invalid(error, "relay.level")


class Models:
    """The names that requests may give.

    Args:
        name: the served name.
        profile: of the pair.
        default: the policy where the request names none.
        spec: how the default is written, for the reply.
        created: seconds since the epoch.
    """

    def __init__(
        self, name: str, profile: Profile, default: Policy, *, spec: str = "", created: int = 0
    ) -> None:
        self.name = name
        self._profile = profile
        self._default = default
        self._spec = spec or default.name
        self._created = created
        self._made: dict[tuple[str | None, str], tuple[Profile, Policy]] = {}

    def pick(self, model: str | None, wanted: str | None, level: str | None = None) -> Choice:
        """What a request gets; its own policy and level go before those of the model's name.

        Raises:
            ApiError: 404 for an unknown model, 400 for an unknown policy or level.
        """
        shown = self.name if model is None else model
        name, at, suffix = shown.partition("@")
        if name != self.name:
            raise self.unknown(shown)
        named = suffix if at and suffix in self._profile.levels else None
        if level is not None and level not in self._profile.levels:
            self._make("relay", level, _refuse_level)
        spec = self._spec
        refuse: Callable[[str], ApiError] = partial(self.unknown, shown)
        if at and named is None:
            spec = suffix
            if spec.partition(":")[0] not in POLICIES:
                raise self.unknown(shown, self._neither(spec))
            self._make(spec, level if _leveled(spec) else None, refuse)
        elif level is None and named is None and wanted is None:
            return self._choice(shown, spec, self._profile, self._default)
        elif not _leveled(self._default.name):
            spec = "relay"
        if wanted is not None:
            spec, refuse = wanted, _refuse_policy
            named = named if _leveled(wanted) else None
        if level is not None and not _leveled(spec) and spec.partition(":")[0] in POLICIES:
            refuse = _refuse_level
        made = self._make(spec, named if level is None else level, refuse)
        return self._choice(shown, spec, *made)

    @staticmethod
    def _choice(shown: str, spec: str, profile: Profile, policy: Policy) -> Choice:
        return Choice(shown, spec, policy, profile.level, notes(profile, policy))

    def _make(
        self, spec: str, level: str | None, refuse: Callable[[str], ApiError]
    ) -> tuple[Profile, Policy]:
        key = (level, spec)
        if key not in self._made:
            try:
                made = policy_at(level, spec, self._profile)
            except UsageError as error:
                raise refuse(f"{error} ({error.hint})" if error.hint else str(error)) from None
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[key] = made
        return self._made[key]

    def _neither(self, name: str) -> str:
        """Why a suffix is unknown that may have been meant for a policy or a level."""
        levels, profile = self._profile.levels, self._profile.name
        there = f"levels: {', '.join(levels)}"
        if not levels:
            there = f"profile {profile!r} has no levels (serve one that has, with --profile)"
        policies = ", ".join(POLICIES)
        return f"there is no policy or level {name[:100]!r}; policies: {policies}; {there}"

    def unknown(self, model: str, why: str = "") -> ApiError:
        """No such model."""
        message = f"the model {model[:200]!r} does not exist; this server has {self.name!r}"
        message = f"{message}: {why}" if why else message
        return ApiError(404, message, param="model", code="model_not_found")

    def names(self) -> list[str]:
        """Everything that is listed, the plain name first."""
        found = [self.name]
        for spec in LISTED:
            try:
                make_policy(spec, self._profile)
            except UsageError:
                continue
            found.append(f"{self.name}@{spec}")
        for level in self._profile.levels:
            try:
                found.append(self.pick(f"{self.name}@{level}", None).name)
            except ApiError:
                continue
        return found

    def card(self, model: str) -> dict[str, Any]:
        """One model as OpenAI describes it, and its policy.

        Raises:
            ApiError: 404.
        """
        choice = self.pick(model, None)
        return {
            "id": choice.name,
            "object": "model",
            "created": self._created,
            "owned_by": "relaygen",
            "root": self.name,
            "relay": {
                "policy": choice.spec,
                "profile": self._profile.name,
                "level": choice.level or None,
            },
        }
