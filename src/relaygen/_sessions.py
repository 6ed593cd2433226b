"""Policies as the loop meets them: whoever wrote one, its mistakes are said in one line.

What a session answers to each token is looked at where it is more than to stay; see `Desk`.
"""

from __future__ import annotations

from collections.abc import Set
from typing import cast, get_args

from ._errors import PolicyError, RelayGenError
from ._own import DEBUG_HINT, lacking, shown, told
from ._types import ROLES, Kind
from .policies.base import (
    HandOff,
    Insert,
    Policy,
    Probe,
    Session,
    Start,
    Stay,
    Suppressing,
    streamed_candidates,
)

_KINDS = get_args(Kind)


def check_policy(policy: object) -> None:
    """Refuse what is no policy.

    Raises:
        PolicyError: it lacks something, or something of it makes no sense; the message says what.
    """
    if isinstance(policy, type):
        raise PolicyError(
            f"the policy is the class {policy.__name__}",
            hint=f"make one of it: {policy.__name__}()",
        )
    missing = lacking(policy, Policy)
    if missing:
        raise PolicyError(
            f"the policy is of type {type(policy).__name__}, which lacks {', '.join(missing)}",
            hint="it must be one of relaygen.Policy, or the name of one",
        )
    described = cast(Policy, policy)
    try:
        _check_values(described)
    except RelayGenError:
        raise
    except Exception as error:
        raise broken(described, "attributes", error) from error


def _check_values(policy: Policy) -> None:
    if not isinstance(policy.name, str) or not policy.name:
        raise PolicyError(f"the name of a policy must be a text, not {shown(policy.name)}")
    for name, roles in (("roles", policy.roles), ("margins", policy.margins)):
        if not isinstance(roles, Set) or not roles <= set(ROLES):
            raise _refused(policy, f"its {name} must be a set of 'large' and 'small'", roles)
    if policy.first not in policy.roles:
        raise _refused(policy, "its first must be one of its roles", policy.first)
    if not policy.margins <= policy.roles:
        raise _refused(policy, "its margins must be among its roles", set(policy.margins))
    for role in policy.roles:
        for kind in _KINDS:
            count: object = streamed_candidates(policy, role, kind)
            if not isinstance(count, int) or count < 0:
                raise _refused(policy, "its candidates must be a number of 0 or more", count)
    texts: object = policy.suppressed if isinstance(policy, Suppressing) else frozenset()
    if not isinstance(texts, Set) or not all(isinstance(text, str) for text in texts):
        raise _refused(policy, "its suppressed must be a set of texts", texts)


def started(policy: Policy, start: Start) -> Session:
    """A fresh session.

    Raises:
        PolicyError: the policy makes none.
    """
    try:
        session = policy.start(start)
    except RelayGenError:
        raise
    except Exception as error:
        raise broken(policy, "start", error) from error
    missing = lacking(session, Session)
    if missing:
        raise PolicyError(
            f"policy {policy.name!r}: its start returned a {type(session).__name__}, "
            f"which lacks {', '.join(missing)}",
            hint="it must return one of relaygen.policies.Session",
        )
    return session


def check_decision(policy: Policy, method: str, decision: object) -> None:
    """Refuse what is no decision, or one that cannot be obeyed.

    Args:
        policy: whose it is.
        method: of the session that it came from.
        decision: what that returned.

    Raises:
        PolicyError: as said.
    """
    if isinstance(decision, Stay):
        if type(decision.held) is not int or decision.held < 0:
            raise _refused(policy, "Stay holds a number of tokens, 0 or more", decision.held)
    elif isinstance(decision, HandOff):
        if decision.kind not in _KINDS:
            raise _refused(policy, "the kind of a HandOff is 'delegate' or 'lead'", decision.kind)
        if type(decision.k) is not int:
            raise _refused(policy, "the k of a HandOff is a number", decision.k)
        if not isinstance(decision.why, str) or not isinstance(decision.cue, str):
            raise _refused(
                policy, "why and cue of a HandOff are texts", (decision.why, decision.cue)
            )
    elif isinstance(decision, Probe):
        if method == "probed":
            raise _refused(policy, "probed must return Stay or HandOff", decision)
        if decision.role not in policy.roles:
            raise _refused(policy, "the role of a Probe is one of its roles", decision.role)
        if type(decision.candidates) is not int or decision.candidates < 1:
            raise _refused(policy, "the candidates of a Probe are 1 or more", decision.candidates)
    elif not isinstance(decision, Insert):
        wanted = "Stay or HandOff" if method == "probed" else "Stay, HandOff, Probe or Insert"
        raise _refused(policy, f"{method} must return {wanted}", decision)
    elif decision.marker != "end_of_thinking":
        raise _refused(policy, "the marker of an Insert is 'end_of_thinking'", decision.marker)


def check_hints(policy: Policy, hints: object) -> tuple[str, ...]:
    """What a session hints at.

    Raises:
        PolicyError: no texts.
    """
    if not isinstance(hints, tuple | list) or not all(isinstance(text, str) for text in hints):
        raise _refused(policy, "its hints must be a tuple of texts", hints)
    return tuple(hints)


def broken(policy: Policy, method: str, error: Exception) -> PolicyError:
    """What an exception of a policy's own becomes."""
    return PolicyError(
        f"policy {_named(policy)}: its {method} raised {told(error)}", hint=DEBUG_HINT
    )


def _named(policy: Policy) -> str:
    """By its type where its name is what fails."""
    try:
        return repr(policy.name)
    except Exception:
        return f"of type {type(policy).__name__}"


def _refused(policy: Policy, what: str, found: object) -> PolicyError:
    return PolicyError(
        f"policy {policy.name!r}: {what}, not {shown(found)}",
        hint="docs/policies.md lists what a policy has and what it may answer",
    )
