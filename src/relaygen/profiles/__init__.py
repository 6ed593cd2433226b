"""Profiles: shipped ones by name, users' own by path; TOML, validated, versioned."""

from ._load import load, names, parse, problems
from ._policy import LEVELED, POLICIES, make_policy, notes, policy_at

__all__ = [
    "LEVELED",
    "POLICIES",
    "load",
    "make_policy",
    "names",
    "notes",
    "parse",
    "policy_at",
    "problems",
]
