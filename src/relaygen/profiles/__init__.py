"""Profiles: shipped ones by name, users' own by path; TOML, validated, versioned."""

from ._load import load, names, parse, problems
from ._policy import POLICIES, make_policy

__all__ = ["POLICIES", "load", "make_policy", "names", "parse", "problems"]
