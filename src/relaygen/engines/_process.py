"""A child process that serves a model: start, watch, end, and say why it died.

No asyncio subprocess, whose objects belong to one event loop: an engine may outlive that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

_POLL_S = 0.02
_GRACE_S = 2.0
_STAMP, _ERROR = re.compile(r"^[\d.]+ [A-Z] "), re.compile(r"^[\d.]+ E ")


class ChildProcess:
    """Runs `command` with one line on its stdin, which stays open for as long as it shall live.

    Args:
        command: program and arguments.
        first_line: what it is told.
        log: where its stderr goes; None for a temporary file, removed when it ends well.

    Raises:
        OSError: it cannot be started, or the log cannot be written.
    """

    def __init__(self, command: Sequence[str], first_line: bytes, log: Path | None) -> None:
        if log is None:
            descriptor, name = tempfile.mkstemp(prefix="relaygen-", suffix=".log")
            self.log, self._temporary = Path(name), True
        else:
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self.log, self._temporary = log, False
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=descriptor,
                start_new_session=True,  # a terminal's Ctrl-C is the parent's business
            )
        finally:
            os.close(descriptor)
        # Also when the engine is dropped unclosed, and at the interpreter's exit.
        self._finalizer = weakref.finalize(
            self, _end, self._process, os.getpid(), self.log if self._temporary else None
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: `answer` will tell
            self._process.stdin.write(first_line)
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def dead(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    async def answer(self, timeout: float) -> dict[str, object] | None:
        """Its first line on stdout, which is a JSON object; None where it ended without.

        Raises:
            TimeoutError: it took more than `timeout` seconds.
            ValueError: it wrote something else.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        os.set_blocking(pipe, False)
        deadline = time.monotonic() + timeout
        line = b""
        while not line.endswith(b"\n"):
            with contextlib.suppress(BlockingIOError):
                data = os.read(pipe, 4096)
                if not data:
                    await self.ended(_GRACE_S)
                    return None
                line += data
                continue
            if time.monotonic() > deadline:
                raise TimeoutError
            await asyncio.sleep(_POLL_S)
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("not an object")
        return answer

    async def ended(self, timeout: float) -> bool:
        """Wait for its end, at most `timeout` seconds; whether it has ended."""
        deadline = time.monotonic() + timeout
        while True:
            if self.dead or time.monotonic() >= deadline:
                return self.dead
            await asyncio.sleep(_POLL_S)

    def last_words(self) -> str:
        """How it ended and the errors in its log, or else the log's last lines, in one line."""
        code = self._process.poll()
        if code is None:
            how = "still running"
        elif code < 0:
            how = f"killed by signal {-code}"
            with contextlib.suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
        else:
            how = f"exit status {code}"
        lines = [line.strip() for line in self._tail().splitlines() if line.strip()]
        errors = [line for line in lines if _STAMP.match(line) is None or _ERROR.match(line)]
        shown = [_STAMP.sub("", line) for line in errors[-4:] or lines[-3:]]
        text = " | ".join([how, *(" ".join(line.split()) for line in shown)])
        return text if len(text) <= 600 else text[:599] + "…"

    def _tail(self) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            return file.read().decode(errors="replace")
        return ""

    def keep_log(self) -> None:
        """Leave the log where it is when the process is closed."""
        if self._finalizer.detach():
            self._finalizer = weakref.finalize(self, _end, self._process, os.getpid(), None)

    async def aclose(self) -> None:
        """End it: politely by the end of its stdin, then by force. Safe to call twice."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            await self.ended(_GRACE_S)
        finally:
            self._finalizer()


def _end(process: subprocess.Popen[bytes], owner: int, log: Path | None) -> None:
    """Last resort, without an event loop."""
    if os.getpid() != owner:  # a fork of the owner is not its owner
        return
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    if log is not None:
        log.unlink(missing_ok=True)
