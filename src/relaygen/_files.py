"""Files: a user's text, JSON lines that are appended, files replaced at once, a run's folder.

A run may be killed at any moment: of what it appended, one line may be torn, which is cut off
before the next one is written; a file that it replaced is the old one or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._errors import MissingExtraError, UsageError

_LOCK = ".lock"


def read(path: str | os.PathLike[str], *, error: type[UsageError] = UsageError) -> str:
    """A text file of the user's, in UTF-8; a byte order mark is left out.

    Args:
        path: of the file.
        error: raised where it cannot be read.

    Raises:
        UsageError: there is no such file, or it cannot be read.
    """
    try:
        return Path(path).read_text("utf-8-sig")
    except FileNotFoundError:
        raise error(f"there is no file {path}") from None
    except UnicodeDecodeError as wrong:
        raise error(f"cannot read {path}: it is not UTF-8 (byte {wrong.start})") from None
    except OSError as wrong:
        raise error(f"cannot read {path}: {wrong.strerror or wrong}") from None


def append(
    path: str | os.PathLike[str], value: Mapping[str, Any], *, durable: bool = False
) -> None:
    """One line more, in one write. A last line that was cut off by a crash is removed first.

    Args:
        path: of the JSON lines.
        value: one object.
        durable: wait until the disk has it, so that the machine may fail too.

    Raises:
        UsageError: the file cannot be written.
    """
    line = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        with open(path, "ab+") as file:
            _drop_unfinished(file)
            file.write(line.encode(errors="replace") + b"\n")
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def lines(
    path: str | os.PathLike[str], *, foreign: bool = False
) -> list[tuple[int, Mapping[str, Any]]]:
    """The objects of a JSON lines file with their line numbers; none where there is no file.

    Empty lines do not count, nor does a last line without its end: it was cut off by a crash.

    Args:
        path: of the file.
        foreign: not written by `append`: it must exist, and its last line may have no end.

    Raises:
        UsageError: the file cannot be read, or a line is no JSON object.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        if not foreign:
            return []
        raise UsageError(f"there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if not foreign:
        data = data[: data.rfind(b"\n") + 1]
    found: list[tuple[int, Mapping[str, Any]]] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: not JSON ({error})") from error
        if not isinstance(value, dict):
            raise UsageError(f"{path}, line {number}: not a JSON object")
        found.append((number, value))
    return found


def _drop_unfinished(file: Any) -> None:
    """Cut the file behind its last whole line."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)


def write(path: Path, content: str | bytes) -> None:
    """Replace a file at once: whoever reads it sees the old one or the new one.

    Raises:
        UsageError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.tmp")  # what a killed run left is written over
    try:
        beside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def made(folder: Path) -> Path:
    """The folder, made where it is not there.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot use the folder {folder}: {error.strerror or error}") from None
    return folder


def pinned(path: Path, *, command: str, option: str) -> dict[str, Any] | None:
    """The settings that an earlier run has left, None where there are none.

    Args:
        path: of the settings.
        command: what writes them, for the message.
        option: names another folder.

    Raises:
        UsageError: the file cannot be read, or is none that `command` writes.
    """
    try:
        before = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        before = ()
    except OSError as error:
        raise UsageError(
            f"cannot use the folder {path.parent}: {error.strerror or error}"
        ) from None
    if not isinstance(before, dict):
        raise UsageError(
            f"{path} is not what {command} writes", hint=f"name another folder with {option}"
        )
    return before


def changed(
    before: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str]
) -> tuple[str, ...]:
    """The settings of a run that are not what they were and may not change: those not `free`."""
    return tuple(key for key in now if key not in free and before.get(key) != now[key])


@contextmanager
def lock(folder: Path, *, extra: str) -> Iterator[None]:
    """Keep other runs out of a folder, which is made where it is not there.

    The lock ends with the process, however that ends.

    Args:
        folder: the work's own.
        extra: of the package, that brings filelock to this work.

    Raises:
        UsageError: another run works in it, or it cannot be written.
        MissingExtraError: filelock is not installed.
    """
    try:
        from filelock import FileLock, Timeout
    except ImportError:
        raise MissingExtraError("filelock", extra=extra) from None
    held = FileLock(made(folder) / _LOCK)
    try:
        held.acquire(timeout=0)
    except Timeout:
        raise UsageError(
            f"another run works in {folder}", hint="wait for its end, or name another folder"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot use the folder {folder}: {error.strerror or error}") from None
    try:
        yield
    finally:
        held.release()
