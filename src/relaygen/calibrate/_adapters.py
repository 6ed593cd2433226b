"""What stands behind an address: abilities beyond the engine protocol are the adapter's."""

from __future__ import annotations

from typing import TypeVar

from ..engines.base import Engine

Asked = TypeVar("Asked")


def adapter(engine: Asked) -> Asked | Engine:
    """The adapter of an engine whose kind is found out, once its `info` was asked; else itself."""
    from ..engines.detect import DetectedEngine

    if isinstance(engine, DetectedEngine) and engine.engine is not None:
        return engine.engine
    return engine
