"""Real vLLM servers on this machine's CPU.

They run in ``.venv-vllm`` and serve the folders that ``scripts/vllm/models.py`` made; both is
``make test-vllm``'s work.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from relaygen.models import home

KEY = "test-key"
"""The servers' API key."""
PYTHON = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
BLOCK = 32
"""Tokens of one block of the prefix cache; the CPU's own default is 128."""
CONTEXT = 2048
"""Tokens of one conversation."""
_START_S, _STOP_S = 600.0, 30.0


@dataclass(frozen=True)
class Server:
    """One running server."""

    url: str
    model: str
    pid: int


@contextmanager
def serving(model: str, context: int = CONTEXT, dtype: str = "float32") -> Iterator[Server]:
    """A server of the folder ``model`` with that many tokens of context, until the block ends.

    Eager mode: without compiling, a server of the random model starts in half a minute. The tests
    ask for little, so the KV cache is a quarter of a gigabyte.
    """
    folder = home() / "vllm" / model
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--api-key", KEY, "--dtype", dtype, "--max-model-len", str(context)]
    command += ["--enforce-eager", "--block-size", str(BLOCK), "--enable-prompt-tokens-details"]
    command += ["--kv-cache-memory-bytes", str(1 << 28), "--max-num-seqs", "8"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("VLLM_")},
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait(process, port, log.fileno())
            yield Server(f"http://127.0.0.1:{port}", model, process.pid)
        finally:
            _stop(process)


def _wait(process: subprocess.Popen[bytes], port: int, log: int) -> None:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    size = os.fstat(log).st_size
    raise RuntimeError(
        f"vLLM does not start:\n{os.pread(log, 6000, max(0, size - 6000)).decode(errors='replace')}"
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and all that it has started."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_core(server: Server) -> None:
    """Kill the process that computes; the one that talks HTTP finds out by itself."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:  # gone meanwhile
            continue
        if name.startswith("VLLM::Engin") and int(rest.split()[1]) == server.pid:
            os.kill(int(path.parent.name), signal.SIGKILL)
