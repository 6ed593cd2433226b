"""The cards of ``/v1/models``: which model a server has, and its name for people."""

from __future__ import annotations

from typing import Any

from .._errors import EngineReplyError


def card(models: Any, asked: str | None, url: str, role: str) -> dict[str, Any]:
    """The card of the model that was asked for, else the first; empty where there is none.

    Args:
        models: what the server answered.
        asked: the served name, or None.
        url: for error messages.
        role: for error messages.

    Raises:
        EngineReplyError: it has models, but not this one.
    """
    listed = models.get("data") if isinstance(models, dict) else None
    cards = [each for each in listed or () if isinstance(each, dict)]
    for each in cards:
        if asked is None or each.get("id") == asked:
            return each
    if cards:
        raise EngineReplyError(
            f"{url} does not serve {asked}",
            role=role,
            hint=f"it serves {', '.join(str(each.get('id')) for each in cards)}",
        )
    return {}


def short_name(model: str) -> str:
    """A model that is served from a folder has its path for a name: the last part of it."""
    name = model.replace("\\", "/").rstrip("/")
    return name.split("/")[-1] if name.startswith(("/", ".")) else name
