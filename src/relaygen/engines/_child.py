"""The process of one embedded engine: a llama.cpp server on loopback.

``python -m relaygen.engines._child`` reads one line of JSON from stdin (see `Config`), loads the
model, prints one line of JSON with the server's address on stdout and serves until stdin ends.
The parent holds the other end of stdin, so the process ends with its parent, however that ends.
llama.cpp logs to stderr.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Config:
    """What the child is told. It comes on stdin: a command line is for everyone to see.

    Attributes:
        model: path of the GGUF file.
        n_ctx: tokens of context of all slots together.
        n_parallel: slots.
        threads: CPU threads.
        ngl: layers on the GPU.
        batch: prompt tokens computed in one step.
        verbosity: of llama.cpp's log, 1 for errors, 2 with warnings, 3 with all it does.
        api_key: that every request must carry.
        spec: how it drafts: "", "draft" or "ngram".
        draft: path of the GGUF file that drafts, where one does.
        drafted: tokens drafted at once, at most.
        lookup: tokens in a row that an n-gram must repeat.
    """

    model: str
    n_ctx: int
    n_parallel: int
    threads: int
    ngl: int
    batch: int
    verbosity: int
    api_key: str
    spec: str = ""
    draft: str = ""
    drafted: int = 0
    lookup: int = 0

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps(asdict(self)).encode() + b"\n"


_SPINS = 600
"""Rounds that a thread of libgomp spins for the others of its step before it sleeps. Its default,
300,000, takes the core from the other model: two steps at once on two cores took 34 times as long
as one after the other, with 600 rounds 1.2 times, and one model alone was no slower
(benchmarks/two_at_once.py)."""


def main() -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever else writes to stdout is log
    config = Config(**json.loads(_first_line()))
    _end_with_parent(True)
    server = _serve(config)  # lives as long as this variable
    os.write(answer, json.dumps({"address": server.listening_address}).encode() + b"\n")
    os.close(answer)
    _end_with_parent(False)
    while os.read(0, 4096):
        pass
    os._exit(0)


def _first_line() -> bytes:
    """Read without a buffer: what follows is the end of the parent."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)
        line += byte
    return line


def _end_with_parent(signals: bool) -> None:
    """While the model is loaded the interpreter is locked, so no thread could watch stdin.

    The kernel can: it sends SIGIO when the parent's end of the pipe closes, and SIGIO kills.
    """
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC if signals else flags & ~os.O_ASYNC)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if poll.poll(0):  # it ended before
        os._exit(0)


def _serve(config: Config) -> Any:
    """Load the model and listen."""
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = str(_SPINS)  # read when the library is loaded
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = config.model
    params.n_ctx = config.n_ctx
    params.n_parallel = config.n_parallel
    params.cpuparams.n_threads = config.threads
    params.cpuparams_batch.n_threads = config.threads
    # Idle threads of one model must not spin while the other model computes on the same cores.
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.n_gpu_layers = config.ngl
    params.n_batch = params.n_ubatch = config.batch
    params.fit_params = False  # the context is as asked for, or an error
    params.kv_unified = False
    params.cache_ram_mib = 0  # each conversation has its slot; copies elsewhere would only cost
    params.cache_idle_slots = False
    params.warmup = True
    params.ui = False
    params.endpoint_metrics = params.endpoint_props = False
    params.endpoint_slots = True  # tells when an aborted step is over
    params.verbosity = config.verbosity
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [config.api_key]
    if config.spec:
        _speculate(params.speculative, config, xllamacpp.common_speculative_type)
    return xllamacpp.Server(params)


def _speculate(speculative: Any, config: Config, types: Any) -> None:
    """Say who drafts, and how much."""
    if config.spec == "ngram":
        speculative.types = [types.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        speculative.ngram_simple.size_n = config.lookup
        speculative.ngram_simple.size_m = config.drafted
        return
    speculative.types = [types.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    draft = speculative.draft
    draft.mparams.path = config.draft
    draft.n_max = config.drafted
    draft.n_gpu_layers = config.ngl
    for cpu in (draft.cpuparams, draft.cpuparams_batch):
        cpu.n_threads = config.threads
        cpu.poll = 0


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        message = " ".join(str(error).split())
        print(f"{type(error).__name__}: {message}", file=sys.stderr, flush=True)
        os._exit(1)
