"""A llama.cpp server on a given port, from the wheel that the extra [llama] installs.

    python scripts/llama-server.py MODEL.gguf --port 8081

For trying `relaygen serve` and for measurements where no llama-server is installed. MODEL is a
file, or a name that ``relaygen models`` knows.
"""

from __future__ import annotations

import argparse
import signal

import xllamacpp

from relaygen.models import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ctx", type=int, default=4096, help="tokens of each slot")
    parser.add_argument("--parallel", type=int, default=2, help="slots")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = str(resolve(given.model, fetch=False))
    params.n_ctx = given.ctx * given.parallel
    params.n_parallel = given.parallel
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = given.threads
        cpu.poll = 0  # two servers on the same cores must not spin
    params.n_batch = params.n_ubatch = 64  # an abort waits for a batch
    params.fit_params = False
    params.ui = False
    params.hostnames = ["127.0.0.1"]
    params.port = given.port
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
