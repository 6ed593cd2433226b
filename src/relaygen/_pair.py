"""From what a user names to an engine: a URL, a GGUF file, a hub id, or an engine as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from ._errors import UsageError
from ._imported import is_import_path, made
from ._types import Role
from .engines.base import Engine
from .engines.speculation import Speculation

EngineSpec = Engine | str | Path | None
"""An engine; the URL of a server; a GGUF path, catalogue name or hub id; ``module:function``, which
makes an engine; None: the embedded default of that role."""

SpeculationSpec = Speculation | Literal["draft", "ngram", "none"] | None
"""How an embedded model drafts; ``draft`` alone lets the small model draft for the large one."""


def make_engine(
    spec: EngineSpec,
    role: Role,
    *,
    ctx: int = 4096,
    threads: int | None = None,
    ngl: int = 0,
    parallel: int = 1,
    speculation: Speculation | None = None,
) -> Engine:
    """An engine for a role. Nothing is started yet; files are looked for, and never fetched here
    unless the spec is a hub id or a catalogue name.

    Raises:
        UsageError: speculative decoding of an engine that is not started here.
        ModelError: the model file cannot be had.
        MissingExtraError: an optional dependency is not installed.
    """
    if isinstance(spec, str) and is_import_path(spec):
        spec = cast(Engine, made(spec, role, Engine))
    if spec is not None and not isinstance(spec, str | Path):
        if speculation is not None:
            raise UsageError(
                f"the {role} engine is made already, and how it drafts is fixed then",
                hint="give the speculation to the engine: EmbeddedEngine(…, speculation=…)",
            )
        return spec
    if is_url(spec):
        assert isinstance(spec, str)
        from .engines.detect import DetectedEngine

        if speculation is not None:
            raise fixed_at_start(role)
        return DetectedEngine(spec, role=role)
    from .engines.embedded import EmbeddedEngine
    from .models import EMBEDDED_LARGE, EMBEDDED_SMALL, resolve

    if spec is None:
        spec = (EMBEDDED_LARGE if role == "large" else EMBEDDED_SMALL).name
    return EmbeddedEngine(
        resolve(str(spec)),
        role=role,
        ctx=ctx,
        threads=threads,
        ngl=ngl,
        parallel=parallel,
        speculation=speculation,
    )


def fixed_at_start(role: Role) -> UsageError:
    """Why a server cannot be told to draft."""
    return UsageError(
        f"the {role} engine is a server, and whether it drafts is fixed when that starts",
        hint="`relaygen engines --pair NAME --spec KIND` prints the command that starts it so",
    )


def speculation_of(spec: SpeculationSpec, role: Role, small: EngineSpec) -> Speculation | None:
    """From what a user names to a speculation that says which file drafts.

    Args:
        spec: what was named for this role.
        role: whose speculation it is.
        small: the small model, which drafts for the large one.

    Raises:
        UsageError: there is no file that could draft, or no such kind.
        ModelError: the small model's file cannot be had.
    """
    if spec is None or spec == "none":
        return None
    from .engines.embedded import EmbeddedEngine
    from .models import EMBEDDED_SMALL, resolve

    made = Speculation(spec) if isinstance(spec, str) else spec
    if made.kind != "draft" or made.model is not None:
        return made
    if role == "small":
        raise UsageError(
            "there is no smaller model that could draft for the small one",
            hint="use ngram, or name the model: Speculation('draft', model=FILE.gguf)",
        )
    if isinstance(small, EmbeddedEngine):
        return replace(made, model=small.path)
    if small is not None and not is_embedded(small):
        raise UsageError(
            "the small model runs elsewhere, so its file is not at hand to draft",
            hint="use ngram, or name the model: Speculation('draft', model=FILE.gguf)",
        )
    return replace(made, model=resolve(str(small or EMBEDDED_SMALL.name)))


def is_embedded(spec: EngineSpec) -> bool:
    """Whether an engine is named by its model, which then runs in a child process here."""
    if spec is None or isinstance(spec, Path):
        return True
    return isinstance(spec, str) and not is_url(spec) and not is_import_path(spec)


def is_url(spec: EngineSpec) -> bool:
    """Whether an engine is named by a server's address."""
    return isinstance(spec, str) and spec.startswith(("http://", "https://"))
