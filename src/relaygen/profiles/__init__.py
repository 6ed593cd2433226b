"""Profiles: shipped ones by name, users' own by path; TOML, validated, versioned."""

from ._load import load, names, parse, problems, source
from ._policy import LEVELED, POLICIES, make_policy, notes, own_policy_at, policy_at

__all__ = [
    "LEVELED",
    "POLICIES",
    "load",
    "make_policy",
    "names",
    "notes",
    "own_policy_at",
    "parse",
    "policy_at",
    "problems",
    "source",
]
