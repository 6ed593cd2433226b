"""Processes of a measurement: started on given cores, waited for, looked at."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """User and system time of all threads so far; the scheduler counts nanoseconds."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def peak_mb(self) -> float:
        """The most memory it has held, MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1000.0


@contextmanager
def server(arguments: Sequence[str], *, port: int, core: int | None, log: Path) -> Iterator[Server]:
    """``relaygen ARGUMENTS`` on one core, stopped at the end.

    Args:
        arguments: without the port.
        port: where it listens.
        core: the CPU it may use; None for any.
        log: takes its output.
    """
    command = [sys.executable, "-m", "relaygen", *arguments, "--port", str(port)]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        url = f"http://127.0.0.1:{port}"
        wait(url, process, log)
        yield Server(url, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the server is healthy; a minute at the most."""
    for _ in range(1200):
        if process.poll() is not None:
            raise SystemExit(f"a server ended at its start:\n{log.read_text()[-2000:]}")
        try:
            if httpx.get(f"{url}/health", timeout=1.0).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"{url} does not answer:\n{log.read_text()[-2000:]}")
