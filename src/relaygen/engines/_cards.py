"""The cards of ``/v1/models``: which model a server has, and its name for people."""

from __future__ import annotations

from typing import Any

from .._errors import EngineReplyError

_NAMED = 10
"""Models that an error names; a router may have hundreds."""


def card(models: Any, asked: str | None, url: str, role: str) -> dict[str, Any]:
    """The card of the model that was asked for, else the first; empty where none has a name.

    Args:
        models: what the server answered.
        asked: the served name, or None.
        url: for error messages.
        role: for error messages.

    Raises:
        EngineReplyError: it has models, but not this one.
    """
    listed = models.get("data") if isinstance(models, dict) else None
    cards = [each for each in listed or () if isinstance(each, dict) and "id" in each]
    for each in cards:
        if asked in (None, each["id"]):
            return each
    if cards:
        raise EngineReplyError(
            f"{url} does not serve {asked}",
            role=role,
            hint=f"it serves {', '.join(str(each['id']) for each in cards[:_NAMED])}",
        )
    return {}


def short_name(model: str) -> str:
    """A model that is served from a folder or a file has its path for a name: its last part."""
    name = model.replace("\\", "/").rstrip("/")
    path = name.startswith(("/", ".")) or name.endswith(".gguf")
    return name.split("/")[-1] if path else name
