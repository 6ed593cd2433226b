"""Model names: the pair under its served name, and ``name@policy[:option]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._errors import UsageError
from .._profile import Profile
from ..policies.base import Policy
from ..profiles import make_policy
from ._errors import ApiError, invalid

LISTED = ("relay", "one-shot", "one-shot:classic", "large", "small")
"""What ``/v1/models`` lists beside the plain name, where it fits the profile."""

_KEPT = 256


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
        self._made: dict[str, Policy] = {}

    def pick(self, model: str | None, wanted: str | None) -> tuple[str, str, Policy]:
        """(name to answer with, policy as written, policy); the request's wish goes first.

        Raises:
            ApiError: 404 for an unknown model, 400 for an unknown policy.
        """
        shown = self.name if model is None else model
        name, at, suffix = shown.partition("@")
        if name != self.name:
            raise self.unknown(shown)
        policy = self._default
        if at:
            policy = self._make(suffix, lambda error: self.unknown(shown, error))
        if wanted is None:
            return shown, suffix if at else self._spec, policy
        return shown, wanted, self._make(wanted, lambda error: invalid(error, "relay.policy"))

    def _make(self, spec: str, refuse: Callable[[str], ApiError]) -> Policy:
        if spec not in self._made:
            try:
                made = make_policy(spec, self._profile)
            except UsageError as error:
                raise refuse(f"{error} ({error.hint})" if error.hint else str(error)) from None
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[spec] = made
        return self._made[spec]

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
        return found

    def card(self, model: str) -> dict[str, Any]:
        """One model as OpenAI describes it, and its policy.

        Raises:
            ApiError: 404.
        """
        shown, spec, _ = self.pick(model, None)
        return {
            "id": shown,
            "object": "model",
            "created": self._created,
            "owned_by": "relaygen",
            "root": self.name,
            "relay": {"policy": spec, "profile": self._profile.name},
        }
