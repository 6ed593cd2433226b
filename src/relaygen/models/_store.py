"""Where model files live, and the file operations that keep that folder sound."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relaygen._errors import DiskSpaceError, ModelError
from relaygen.models._catalogue import EmbeddedModel

_CHUNK = 1 << 20  # bytes read at once


def home() -> Path:
    """The folder for everything this package keeps on disk (absolute; it may not exist yet).

    ``RELAYGEN_HOME``, else ``XDG_CACHE_HOME/relaygen``, else ``~/.cache/relaygen``.
    """
    if chosen := os.environ.get("RELAYGEN_HOME"):
        return Path(chosen).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative values ignored.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "relaygen"


@dataclass(frozen=True)
class Store:
    """The folder of models.

    A file under its final name is complete and, where a hash is published, was checked: nothing
    is written there but by :func:`publish`. So no record of the hash is kept beside it; it would
    only repeat the catalogue.

    Attributes:
        root: the folder; created when something is fetched.
    """

    root: Path

    @classmethod
    def default(cls) -> Store:
        """The store under :func:`home`, as the environment says now."""
        return cls(home() / "models")

    def path(self, model: EmbeddedModel) -> Path:
        """Where this model's file is or would be."""
        return self.root / model.file

    def hub_folder(self, repo: str) -> Path:
        """Where files of any other hub repository (``owner/name``) are."""
        return self.root / "hub" / repo

    def has(self, model: EmbeddedModel) -> bool:
        """Whether the model's file is there with the published size."""
        path = self.path(model)
        return path.is_file() and path.stat().st_size == model.size

    def staging(self, key: str) -> Path:
        """The folder in which one file is put together; what is in it lets a retry resume."""
        return self.root / ".partial" / key

    def lock(self, key: str) -> Path:
        """The lock file of one fetch. It stays: removing it would let two processes in."""
        return self.root / ".partial" / f"{key}.lock"


def size_text(size: int) -> str:
    """Bytes for people, decimal units: ``"1.12 GB"``, ``"491 MB"``, ``"12 kB"``."""
    for unit, scale, digits in (("GB", 10**9, 2), ("MB", 10**6, 0), ("kB", 10**3, 0)):
        if size >= scale:
            return f"{size / scale:.{digits}f} {unit}"
    return f"{size} B"


def folder_size(folder: Path) -> int:
    """Bytes of all files below ``folder``; 0 where there is none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # gone between the listing and the look
    return total


def require_space(folder: Path, needed: int, what: str) -> None:
    """Check that ``folder``, which must exist, can take ``needed`` more bytes.

    Raises:
        DiskSpaceError: it cannot; the message has both numbers.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskSpaceError(
            f"not enough free disk for {what}: {size_text(needed)} needed, "
            f"{size_text(free)} free in {folder}",
            hint="free some space, or choose another folder with RELAYGEN_HOME",
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn failures to write below ``folder`` into this package's errors.

    Raises:
        DiskSpaceError: the disk became full.
        ModelError: the folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskSpaceError(
                f"the disk became full while writing to {folder}",
                hint="free some space and run the same command again; it resumes",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise ModelError(
                f"cannot write to {folder}: {error.strerror}",
                hint="choose another folder with RELAYGEN_HOME",
            ) from error
        raise


def sha256_of(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file as hexadecimal digits; ``on_bytes`` hears how many were read."""
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if on_bytes:
                on_bytes(done)
    return digest.hexdigest()


def publish(temporary: Path, final: Path) -> None:
    """Give a complete file its final name, so that a crash leaves either no file or all of it."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary.replace(final)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
