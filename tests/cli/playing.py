"""The command line over scripted engines, in this process and in a child's terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from relaygen import Relay
from relaygen._profile import Profile
from relaygen._types import Role
from relaygen.cli import _options, main
from relaygen.cli._absent import Absent
from relaygen.cli._options import PairOptions
from relaygen.engines.scripted import ScriptedEngine
from relaygen.policies import Policy

PLAIN = (
    "We add [1, 2]. First, we note :smile: the sum. So we are at 3. Thus [bold]x[/bold] is 3. "
    "The end.\n"
)
"""A text whose cues fire under the profile ``embedded``."""

THINKING = (
    "<think>\nLet me see. Now we add one and two. So it is three. Done.\n</think>\n\n"
    "The sum is three. So be it."
)
"""A text for the profile ``qwen3-32b+1.7b``."""

TAGS = ("--profile", "qwen3-32b+1.7b")


@dataclass
class Stage:
    """What stands in for `open_relay`, and what it was asked for."""

    large: ScriptedEngine
    small: ScriptedEngine
    asked: list[PairOptions] = field(default_factory=list)
    roles: list[set[Role]] = field(default_factory=list)

    def open_relay(
        self, pair: PairOptions, profile: Profile, policy: Policy, roles: Collection[Role]
    ) -> Relay:
        self.asked.append(pair)
        self.roles.append(set(roles))
        large = self.large if "large" in roles else Absent("large")
        small = self.small if "small" in roles else Absent("small")
        return Relay(large, small, profile=profile, policy=policy)


def stage(monkeypatch: pytest.MonkeyPatch, script: str, **options: Any) -> Stage:
    """Both engines play `script`; options are those of `ScriptedEngine`, for both or by role."""
    by_role = {role: options.pop(role, {}) for role in ("large", "small")}
    engines = {
        role: ScriptedEngine(**{"script": script, **options, **own})
        for role, own in by_role.items()
    }
    made = Stage(engines["large"], engines["small"])
    monkeypatch.setattr(_options, "open_relay", made.open_relay)
    return made


class Child:
    """A relaygen in a process of its own, and what it wrote; a terminal's is all in `stdout`."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self.stdout, self.stderr = bytearray(), bytearray()
        self._terminal = terminal
        self._readers: list[threading.Thread] = []

    def read(self, descriptor: int, into: bytearray) -> None:
        """Collect what arrives, in a thread."""

        def reading() -> None:
            try:
                while data := os.read(descriptor, 65536):
                    into.extend(data)
            except OSError:  # a terminal whose other side was closed
                pass
            finally:
                os.close(descriptor)

        self._readers.append(threading.Thread(target=reading, daemon=True))
        self._readers[-1].start()

    def type(self, text: str) -> None:
        """Type on the terminal."""
        os.write(self._terminal, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def until(self, text: str, *, seconds: float = 20.0) -> None:
        """Wait until this was written."""
        limit = time.monotonic() + seconds
        while text.encode() not in self.stdout + self.stderr:
            assert time.monotonic() < limit, f"no {text!r} in {self.stdout!r} {self.stderr!r}"
            time.sleep(0.01)

    def end(self, *, seconds: float = 20.0) -> int:
        """Wait for the end and return the exit status."""
        status = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(seconds)
        return status

    @property
    def text(self) -> str:
        """What was written on the terminal or the standard output, with plain line ends."""
        return self.stdout.decode().replace("\r\n", "\n")


def command(*args: str, script: str = PLAIN, **engine: Any) -> list[str]:
    """The command line of a relaygen whose engines both play `script`."""
    play = json.dumps({"script": script, **engine})
    return [sys.executable, "-W", "error", "-m", "tests.cli.playing", play, *args]


def environment(**more: str) -> dict[str, str]:
    """For a child: no colour settings but those given."""
    colours = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "LINES")
    return {
        **{key: value for key, value in os.environ.items() if key not in colours},
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
        "PYTHONUTF8": "1",
        "TERM": "xterm-256color",
        **more,
    }


def child(
    *args: str,
    columns: int | None = None,
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    **engine: Any,
) -> Child:
    """Start relaygen over scripted engines in a child process.

    Args:
        args: of the command line.
        columns: the width of a terminal that is its standard input, output and error; without one
            they are pipes.
        stdin: what is piped in.
        env: more of the environment.
        engine: as for `command`.
    """
    ours, theirs = os.pipe() if columns is None else pty.openpty()
    err_ours, err_theirs = os.pipe() if columns is None else (None, theirs)
    if columns is not None:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        command(*args, **engine),
        stdin=subprocess.PIPE if columns is None else theirs,
        stdout=theirs,
        stderr=err_theirs,
        env=environment(**(env or {})),
    )
    for descriptor in {theirs, err_theirs}:
        os.close(descriptor)
    if process.stdin is not None:
        with process.stdin as pipe:
            pipe.write(stdin)
    made = Child(process, ours)
    made.read(ours, made.stdout)
    if err_ours is not None:
        made.read(err_ours, made.stderr)
    return made


def _play() -> None:
    """The child: the engines' options are the first argument."""
    options = json.loads(sys.argv[1])
    script = options.pop("script")
    with pytest.MonkeyPatch.context() as monkeypatch:
        stage(monkeypatch, script, **options)
        main(sys.argv[2:], prog_name="relaygen")


if __name__ == "__main__":
    _play()
