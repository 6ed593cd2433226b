"""Files of the model hub: find, list, and fetch with resumption.

The hub is spoken to through ``huggingface_hub``, so its variables (``HF_ENDPOINT``, ``HF_TOKEN``,
``HF_HUB_OFFLINE``, ``HF_HUB_ETAG_TIMEOUT``, ``HF_HUB_DOWNLOAD_TIMEOUT``) and its HTTP client hold
here too. Two things are done on top of it. Its ``hf_hub_download`` retries an unreachable hub for
half a minute and starts an interrupted file anew; :func:`locate` gives up within seconds and
:func:`download` resumes.
"""

from __future__ import annotations

import importlib
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from relaygen._errors import DownloadError, MissingExtraError, ModelError, ModelNotFoundError
from relaygen.models._progress import Reporter

T = TypeVar("T")

REQUEST_TIMEOUT_S = 5.0  # one look-up; HF_HUB_ETAG_TIMEOUT overrides it
RETRIES = 3  # failures in a row, without a byte between them, that end a download
RETRY_WAIT_S = 1.0
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class HubFile:
    """One file of one commit.

    Attributes:
        repo: ``owner/name``.
        name: the path inside the repository.
        url: where to get it.
        size: bytes.
        etag: what names exactly these bytes.
    """

    repo: str
    name: str
    url: str
    size: int
    etag: str

    @property
    def sha256(self) -> str:
        """The SHA-256 that the hub itself gives (it does for large files), or ``""``."""
        return self.etag if _SHA256.fullmatch(self.etag) else ""


def require_library() -> None:
    """Check that ``huggingface_hub`` is installed.

    Raises:
        MissingExtraError: it is not.
    """
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("huggingface_hub", extra="llama") from error


def locate(repo: str, name: str) -> HubFile:
    """Ask the hub about one file, within seconds.

    Raises:
        ModelNotFoundError: the repository or the file is not there, or not for us.
        DownloadError: the hub cannot be reached, refuses, or is switched off.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    def ask(timeout: float) -> HubFile:
        found = get_hf_file_metadata(hf_hub_url(repo, name), timeout=timeout)
        if not found.size or not found.etag:
            raise DownloadError("the model hub does not say which bytes the file has")
        url = hf_hub_url(repo, name, revision=found.commit_hash)
        return HubFile(repo, name, url, found.size, found.etag)

    return _ask(ask, repo, name)


def list_files(repo: str) -> list[str]:
    """The paths of all files of a repository.

    Raises:
        ModelNotFoundError: the repository is not there, or not for us.
        DownloadError: the hub cannot be reached, refuses, or is switched off.
    """
    from huggingface_hub import HfApi

    def ask(timeout: float) -> list[str]:
        found = HfApi().model_info(repo, timeout=timeout)
        return [sibling.rfilename for sibling in found.siblings or []]

    return _ask(ask, repo, "")


def cached(repo: str, name: str) -> Path | None:
    """The file in the hub library's own cache, where other programs may have put it."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, name)
    return Path(found) if isinstance(found, str) and Path(found).is_file() else None


def download(file: HubFile, target: Path, report: Reporter) -> None:
    """Fetch ``file`` to ``target``; what ``target`` already holds of it is kept.

    Whether these bytes are the right ones is for the caller to check.

    Raises:
        DownloadError: ``RETRIES`` failures in a row; what came is kept.
        OSError: the disk failed.
    """
    failures = 0
    with target.open("ab") as out:
        done = start = out.tell()
        if done > file.size:
            done = start = out.truncate(0)
        while done < file.size:
            try:
                for position, chunk in _read(file, done):
                    if position != done:  # it began anew instead of resuming
                        out.truncate(position)
                    out.write(chunk)
                    done = position + len(chunk)
                    report.bytes("hub", done, file.size)
                if done < file.size:
                    raise DownloadError("the model hub closed the connection early")
            except DownloadError:
                failures = 1 if done > start else failures + 1
                start = done
                if failures >= RETRIES:
                    raise
                time.sleep(RETRY_WAIT_S)


def _read(file: HubFile, start: int) -> Iterator[tuple[int, bytes]]:
    """The bytes of ``file`` from ``start`` on, or from 0 if the hub will not resume, as
    (position, bytes). Only the network can fail in here, so its errors stay apart from the disk's.
    """
    from huggingface_hub import constants, get_session

    utils: Any = importlib.import_module("huggingface_hub.utils")  # its names are not typed exports

    headers = {**utils.build_hf_headers(), "accept-encoding": "identity"}
    if start:
        headers["range"] = f"bytes={start}-"
    try:
        with get_session().stream(
            "GET",
            file.url,
            headers=headers,
            follow_redirects=True,
            timeout=float(constants.HF_HUB_DOWNLOAD_TIMEOUT),
        ) as response:
            utils.hf_raise_for_status(response)
            position = start if response.status_code == 206 else 0
            for chunk in response.iter_bytes():
                yield position, chunk
                position += len(chunk)
    except Exception as error:
        raise _failure(error, file.repo, file.name) from error


def _ask(question: Callable[[float], T], repo: str, name: str) -> T:
    """Run one look-up with a limit on its whole duration.

    The library's limit holds for each address of the hub in turn, and looking its name up has no
    limit at all; so the question is asked in a thread that is left behind when it takes too long.
    """
    from huggingface_hub import constants

    timeout = REQUEST_TIMEOUT_S
    if "HF_HUB_ETAG_TIMEOUT" in os.environ:
        timeout = float(constants.HF_HUB_ETAG_TIMEOUT)
    replies: queue.SimpleQueue[T | _Failed] = queue.SimpleQueue()

    def work() -> None:
        try:
            replies.put(question(timeout))
        except Exception as error:
            replies.put(_Failed(error))

    threading.Thread(target=work, name="relaygen-hub", daemon=True).start()
    try:
        reply = replies.get(timeout=2 * timeout)
    except queue.Empty:
        raise DownloadError("the model hub does not answer") from None
    if isinstance(reply, _Failed):
        raise _failure(reply.error, repo, name) from reply.error
    return reply


@dataclass(frozen=True)
class _Failed:
    error: Exception


def _failure(error: Exception, repo: str, name: str) -> ModelError:
    """Our error for whatever the library or its HTTP client raised.

    The client is another package in different versions of the library, hence no type of it here.
    """
    from huggingface_hub import errors

    if isinstance(error, ModelError):
        return error
    if isinstance(error, errors.GatedRepoError):
        return ModelNotFoundError(
            f"{repo} on the model hub asks you to accept its terms first",
            hint="accept them on its page, then set HF_TOKEN to a token of yours",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFoundError(
            f"there is no repository {repo} on the model hub",
            hint="check the spelling; for a private repository set HF_TOKEN",
        )
    if isinstance(error, errors.EntryNotFoundError):
        return ModelNotFoundError(f"there is no file {name} in {repo} on the model hub")
    if isinstance(error, errors.HFValidationError):
        return ModelNotFoundError(f"{repo} cannot be the name of a repository on the model hub")
    if isinstance(error, errors.OfflineModeIsEnabled):
        return DownloadError(
            "the model hub is switched off by HF_HUB_OFFLINE", hint="unset HF_HUB_OFFLINE"
        )
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        return DownloadError(f"the model hub answered with HTTP status {status}")
    if "timeout" in type(error).__name__.lower():
        return DownloadError("the model hub does not answer")
    reason = re.sub(r"^\[Errno -?\d+\] ", "", " ".join(str(error).split())) or type(error).__name__
    return DownloadError(f"the model hub cannot be reached ({reason})")
