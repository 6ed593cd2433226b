"""Stands in for ``xllamacpp`` in the child process: a server without a model.

What it does is the model file's name: ``fails``, ``exits``, ``hangs`` (while holding the
interpreter's lock, as loading does), or anything else to serve. The parameters it was given are
written beside the model.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any


class CommonParams(SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(
            model=SimpleNamespace(),
            cpuparams=SimpleNamespace(),
            cpuparams_batch=SimpleNamespace(),
            speculative=SimpleNamespace(
                ngram_simple=SimpleNamespace(),
                draft=SimpleNamespace(
                    mparams=SimpleNamespace(),
                    cpuparams=SimpleNamespace(),
                    cpuparams_batch=SimpleNamespace(),
                ),
            ),
        )


class common_speculative_type:  # the library's own name
    COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE = "draft-simple"
    COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE = "ngram-simple"


def _plain(value: Any) -> Any:
    if isinstance(value, SimpleNamespace):
        return {key: _plain(each) for key, each in vars(value).items()}
    return value


class Server:
    def __init__(self, params: Any) -> None:
        model = Path(params.model.path)
        plain = {key: each for key, each in vars(params).items() if isinstance(each, int | list)}
        plain["n_threads"] = [params.cpuparams.n_threads, params.cpuparams_batch.n_threads]
        if hasattr(params.speculative, "types"):
            plain["speculative"] = _plain(params.speculative)
        model.with_suffix(".json").write_text(json.dumps(plain))
        print("this is no address")
        sys.stdout.flush()
        if model.stem == "fails":
            os.write(2, b"0.00.001 I starting\n0.00.002 E load: no such tensor\n")
            raise RuntimeError("Failed to init server,\nplease check")
        if model.stem == "exits":
            os.write(2, b"0.00.001 I one\n0.00.002 W two\n")
            os._exit(3)
        if model.stem == "hangs":
            ctypes.PyDLL(None).usleep(30_000_000)
        handler = type("Handler", (_Handler,), {"key": params.api_keys[0], "context": params.n_ctx})
        server = ThreadingHTTPServer((params.hostnames[0], params.port), handler)
        Thread(target=server.serve_forever, daemon=True).start()
        self.listening_address = "http://{}:{}".format(*server.server_address[:2])


class _Handler(BaseHTTPRequestHandler):
    key: str
    context: int

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            return self._answer({"status": "ok"})
        if self.headers.get("Authorization") != f"Bearer {self.key}":
            return self._answer({"error": {"code": 401, "message": "Invalid API Key"}}, 401)
        if self.path == "/props":
            settings = {"n_ctx": self.context // 2}
            return self._answer({"default_generation_settings": settings, "total_slots": 2})
        return self._answer({"data": [{"id": "toy.gguf", "meta": {}}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/apply-template":
            return self._answer({"prompt": "Q: A:" if body["add_generation_prompt"] else "Q:"})
        if self.path == "/tokenize":
            return self._answer({"tokens": [0] * len(body["content"])})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number in range(1, body["n_predict"] + 1):
            self._event({"content": "a", "tokens": [0], "tokens_predicted": number})
            time.sleep(0.005)
        end = {"stop": True, "stop_type": "limit", "tokens_predicted": body["n_predict"]}
        return self._event({"content": "", "tokens": [], **end})

    def _event(self, value: Any) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
