"""Optional packages of a command."""

from __future__ import annotations

from importlib.util import find_spec

from relaygen._errors import MissingExtraError


def require(*packages: str, extra: str) -> None:
    """Say what is missing before an hour of work and not after it.

    Raises:
        MissingExtraError: a package of the extra is not installed.
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtraError(package.replace("_", "-"), extra=extra)
