"""From what a user writes after ``--large`` or ``--small`` to a GGUF file on the disk."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from relaygen._errors import DownloadError, ModelError, ModelNotFoundError, NotGGUFError
from relaygen.models import _hub
from relaygen.models._catalogue import CATALOGUE, EmbeddedModel, find
from relaygen.models._fetch import pull, pull_hub_file
from relaygen.models._progress import FetchProgress
from relaygen.models._store import Store

_HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?::(?P<what>.+))?")
_SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
_PREFERRED = "q4_k_m"
_MAGIC = b"GGUF"


def resolve(
    spec: str | os.PathLike[str],
    *,
    fetch: bool = True,
    mirror: bool = True,
    progress: FetchProgress | None = None,
    store: Store | None = None,
) -> Path:
    """Find the GGUF file that ``spec`` means, fetching it where it is not on the disk.

    Args:
        spec: a path of a GGUF file, a catalogue name, ``owner/repo:file.gguf`` or ``owner/repo``
            of the model hub, the latter with ``:TAG`` for a quantization (``:Q8_0``); without
            a tag, the only GGUF file of the repository or its Q4_K_M.
        fetch: whether to fetch; without, what is not on the disk is an error.
        mirror, progress, store: as for :func:`relaygen.models.pull`.

    Returns:
        The path of a file that begins like a GGUF file.

    Raises:
        ModelNotFoundError: nothing of the kind; the hint lists what is accepted.
        NotGGUFError: the file is something else.
        ModelError: fetching failed, as described at :func:`relaygen.models.pull`.
        MissingExtraError: a package of the extra ``llama`` is missing.
    """
    text = os.fspath(spec).strip()
    path = Path(text).expanduser()
    if text and path.is_file():
        return _checked(path)
    store = store or Store.default()
    model = find(text)
    hub_id = _HUB_ID.fullmatch(text)
    if hub_id and (hub_id["what"] or not text.lower().endswith(".gguf")) and not path.exists():
        repo, what = hub_id["repo"], hub_id["what"] or ""
        model = _published_as(repo, what)
        if model is None:
            return _checked(_from_hub(repo, what, fetch, progress, store))
    if model is None:
        raise _not_found(f"{text} is a folder" if path.is_dir() else f"there is no model {text!r}")
    if not fetch and not store.has(model):
        raise ModelNotFoundError(
            f"{model.name} is not on this computer",
            hint=f"fetch it with: relaygen models pull {model.name}",
        )
    return _checked(pull(model, mirror=mirror, progress=progress, store=store))


def pick_gguf(names: Sequence[str], repo: str, tag: str = "") -> str:
    """The one GGUF file among ``names`` that ``tag`` means.

    Args:
        names: paths inside the repository.
        repo: for messages.
        tag: a quantization such as ``Q4_K_M`` (case does not matter); ``""`` for the only file
            or, among several, the Q4_K_M.

    Raises:
        ModelNotFoundError: there is none, or more than one.
        ModelError: the model is split over several files.
    """
    models = [
        name
        for name in names
        if name.lower().endswith(".gguf")
        and not PurePosixPath(name).name.lower().startswith(("mmproj", "imatrix"))
    ]
    chosen = [name for name in models if _has_tag(name, tag or _PREFERRED)]
    if not tag and not chosen:
        chosen = models
    if chosen and all(_SPLIT.search(name) for name in chosen):
        raise ModelError(
            f"{chosen[0]} in {repo} is one of several files, which is not supported",
            hint="choose a quantization in one file, or join them with llama-gguf-split --merge "
            "and give the path",
        )
    chosen = [name for name in chosen if not _SPLIT.search(name)]
    if len(chosen) == 1:
        return chosen[0]
    what = f"GGUF file {tag}" if tag else "GGUF file"
    some = ", ".join(models[:8]) + (", …" if len(models) > 8 else "")
    raise ModelNotFoundError(
        f"{repo} has {'more than one' if chosen else 'no'} {what}",
        hint=f"write {repo}:FILE with one of: {some}" if models else "choose a GGUF repository",
    )


def _from_hub(
    repo: str, what: str, fetch: bool, progress: FetchProgress | None, store: Store
) -> Path:
    folder = store.hub_folder(repo)
    here = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.gguf"))]
    if what.lower().endswith(".gguf"):
        name = what
    else:
        # What is meant must not depend on what happens to be here, so the hub is asked first;
        # only where a file here is what the hub's list would give anyway is it left alone.
        fitting = [name for name in here if _has_tag(name, what or _PREFERRED)]
        name = fitting[0] if len(fitting) == 1 else _ask_hub(repo, what, here, fetch)
    if name in here:
        return folder / name
    if not fetch:
        raise ModelNotFoundError(
            f"{name} of {repo} is not on this computer", hint="fetching was not allowed"
        )
    return pull_hub_file(repo, name, progress=progress, store=store)


def _ask_hub(repo: str, what: str, here: Sequence[str], fetch: bool) -> str:
    if not fetch:
        return pick_gguf(here, repo, what)
    _hub.require_library()
    try:
        names = _hub.list_files(repo)
    except DownloadError:
        if not here:
            raise
        names = list(here)
    return pick_gguf(names, repo, what)


def _published_as(repo: str, what: str) -> EmbeddedModel | None:
    """The catalogue's entry of this hub file, whose hash is known and which has a mirror."""
    for model in CATALOGUE:
        if model.repo.lower() == repo.lower() and what.lower() in ("", _PREFERRED, model.file):
            return model
    return None


def _has_tag(name: str, tag: str) -> bool:
    # No "_" on the right: Q4_K must not find Q4_K_M.
    pattern = rf"(?:^|[-._/]){re.escape(tag)}(?:[-./]|$)"
    return re.search(pattern, name, re.IGNORECASE) is not None


def _checked(path: Path) -> Path:
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise NotGGUFError(
                f"{path} is not a GGUF file", hint="models must be in llama.cpp's GGUF format"
            )
    return path


def _not_found(message: str) -> ModelNotFoundError:
    names = " or ".join(model.name for model in CATALOGUE)
    return ModelNotFoundError(
        message,
        hint=f"give the path of a GGUF file, {names}, or owner/repo[:FILE.gguf or :Q4_K_M] "
        "of the model hub",
    )
