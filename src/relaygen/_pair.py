"""From what a user names to an engine: a URL, a GGUF file, a hub id, or an engine as it is."""

from __future__ import annotations

from pathlib import Path

from ._types import Role
from .engines.base import Engine

EngineSpec = Engine | str | Path | None
"""An engine; the URL of a server; a GGUF path, catalogue name or hub id; None: the embedded
default of that role."""


def make_engine(
    spec: EngineSpec,
    role: Role,
    *,
    ctx: int = 4096,
    threads: int | None = None,
    ngl: int = 0,
) -> Engine:
    """An engine for a role. Nothing is started yet; files are looked for, and never fetched here
    unless the spec is a hub id or a catalogue name.

    Raises:
        ModelError: the model file cannot be had.
        MissingExtraError: an optional dependency is not installed.
    """
    if spec is not None and not isinstance(spec, str | Path):
        return spec
    if isinstance(spec, str) and spec.startswith(("http://", "https://")):
        from .engines.detect import DetectedEngine

        return DetectedEngine(spec, role=role)
    from .engines.embedded import EmbeddedEngine
    from .models import EMBEDDED_LARGE, EMBEDDED_SMALL, resolve

    if spec is None:
        spec = (EMBEDDED_LARGE if role == "large" else EMBEDDED_SMALL).name
    return EmbeddedEngine(resolve(str(spec)), role=role, ctx=ctx, threads=threads, ngl=ngl)
