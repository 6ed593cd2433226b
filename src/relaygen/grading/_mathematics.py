"""Whether two answers have one mathematical result: `math-verify` in a process of its own.

Its own time limits are signals, which work in the main thread only, and a power tower can keep the
interpreter in one C call. A process can be ended from any thread.

``python -m relaygen.grading._mathematics`` reads lines of JSON ``[gold, answer]`` on stdin and
writes, for each, ``[same, found]``; it ends with its stdin.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, NamedTuple

from .._errors import MissingExtraError, UsageError

_LIMIT_S = 10.0
_START_S = 60.0
_MEMORY = 4 << 30
_CPU_S = 60
"""Of one comparison, for a parent that was killed cannot end it; far above its own limit."""


class Compared(NamedTuple):
    """What mathematics says of two texts.

    Attributes:
        same: None where a text has no result that it can read, or time was up.
        found: what it read in the second text; None for nothing.
    """

    same: bool | None
    found: str | None


class Mathematics:
    """Compares results; threads may share it. It starts with the first question put to it.

    Args:
        limit_s: seconds for one comparison; behind them its process is replaced.
    """

    def __init__(self, limit_s: float = _LIMIT_S) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None

    def compare(self, gold: str, answer: str) -> Compared:
        r"""Compare what two texts say; a ``\boxed{}`` counts before everything else in a text.

        Args:
            gold: the reference: an assignment or an interval on this side may be a bare value or
                an inequality on the other.
            answer: what is judged.

        Raises:
            MissingExtraError: `math-verify` is not installed.
            UsageError: it is, and does not run: equal results must not pass for different ones.
        """
        with self._lock:
            for _ in range(2):  # its process may have been ended by somebody else
                try:
                    if self._process is None:
                        self._start()
                    return Compared(*self._asked([gold, answer], self._limit_s))
                except TimeoutError:
                    self._end()
                    break
                except (OSError, ValueError) as error:
                    self._end()
                    if isinstance(error, UsageError):
                        raise
                except BaseException:  # Ctrl-C: the reply would be taken for that of the next
                    self._end()
                    raise
        return Compared(None, None)

    def close(self) -> None:
        """End the process; it would start anew."""
        with self._lock:
            self._end()

    def __enter__(self) -> Mathematics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise MissingExtraError("math-verify", extra="eval")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C is the parent's business
        )
        self._finalizer = weakref.finalize(self, _kill, self._process, os.getpid())
        try:  # libraries load
            found = self._asked([r"\boxed{\sqrt{4}}", r"\boxed{\frac{8}{4}}"], _START_S)
        except (OSError, ValueError):
            found = []
        if found[:1] != [True]:
            raise UsageError(
                "math-verify does not run",
                hint=f'to see why: echo \'["1", "2"]\' | {sys.executable} -m {__name__}',
            )

    def _asked(self, texts: list[str], limit_s: float) -> list[Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(texts).encode() + b"\n")
        process.stdin.flush()
        reply, until = b"", time.monotonic() + limit_s
        while not reply.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise TimeoutError
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                raise BrokenPipeError
            reply += data
        found: list[Any] = json.loads(reply)
        return found

    def _end(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a fork: the process is its parent's
        return
    process.kill()
    with process, contextlib.suppress(BrokenPipeError):  # closes the pipes and waits
        process.communicate()


def main() -> None:
    """Answer until stdin ends."""
    import resource

    with contextlib.suppress(ValueError, OSError):  # some systems do not limit this
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    logging.disable(logging.CRITICAL)
    for line in sys.stdin.buffer:
        gold, answer = json.loads(line)
        with contextlib.suppress(ValueError, OSError):
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + _CPU_S, hard))
        print(json.dumps(_compared(gold, answer)), flush=True)


def _compared(gold: str, answer: str) -> Compared:
    from math_verify import parse, verify

    try:
        first, second = (parse(text, parsing_timeout=None) for text in (gold, answer))
        found = next((str(each) for each in reversed(second) if isinstance(each, str)), None)
        if not first or not second:
            return Compared(None, found)
        same = verify(first, second, allow_set_relation_comp=True, timeout_seconds=None)
        return Compared(bool(same), found)
    except (MemoryError, RecursionError):
        return Compared(None, None)


if __name__ == "__main__":
    main()
