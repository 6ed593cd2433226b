"""Records replies of a real llama-server for the tests: ``python -m tests.engines.record MODEL``.

MODEL is the small model of the embedded pair. What is machine-bound (paths, times, ids of
requests) is cut out, so that recording again changes little.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from relaygen.engines._gguf import read_header
from relaygen.engines._vocabulary import CONTROL
from relaygen.engines.embedded import EmbeddedEngine

HERE = Path(__file__).parent / "recordings"
GREEDY = {"temperature": 0, "return_tokens": True, "cache_prompt": True, "id_slot": 0}
EMOJI = "Repeat exactly: 🦄🐉 龘𠮷 ༼ 🏴"
RARE = "龘𠮷🦄༼" * 4
_LOADING = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_ctx, params.n_gpu_layers, params.verbosity = 256, 0, 0
xllamacpp.Server(params)
"""


def _trim(value: Any) -> Any:
    if isinstance(value, dict):
        drop = {"prompt"} if "stop_type" in value else set()
        drop |= {"generation_settings", "build_info", "media_marker", "ui_settings", "created"}
        return {key: _trim(each) for key, each in value.items() if key not in drop}
    if isinstance(value, list):
        return [_trim(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"/\S*/", "", value) if value.endswith(".gguf") else value
    return round(value, 6) if isinstance(value, float) else value


def _save(name: str, value: Any) -> None:
    (HERE / name).write_text(json.dumps(_trim(value), ensure_ascii=False, indent=1) + "\n")


def _save_stream(name: str, raw: bytes) -> None:
    lines = []
    for line in raw.decode().split("\n"):
        data = line.removeprefix("data: ")
        lines.append(
            f"data: {json.dumps(_trim(json.loads(data)), ensure_ascii=False)}"
            if data != line
            else line
        )
    (HERE / name).write_text("\n".join(lines))


class Recorder:
    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    def call(self, path: str, body: Any = None, key: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key or self._key}"}
        with httpx.Client(base_url=self._url, headers=headers, timeout=60) as client:
            return client.get(path) if body is None else client.post(path, json=body)

    def chat(self, text: str) -> list[int]:
        messages = {"messages": [{"role": "user", "content": text}]}
        prompt = self.call("/apply-template", messages).json()["prompt"]
        return self.ids(prompt)

    def ids(self, text: str) -> list[int]:
        body = {"content": text, "add_special": True, "parse_special": True}
        ids: list[int] = self.call("/tokenize", body).json()["tokens"]
        return ids

    def stream(self, name: str, prompt: list[int], **fields: Any) -> None:
        body = {**GREEDY, "prompt": prompt, "stream": True, "timings_per_token": True, **fields}
        _save_stream(f"{name}.sse", self.call("/completion", body).content)

    def whole(self, name: str, prompt: list[int], **fields: Any) -> None:
        reply = self.call("/completion", {**GREEDY, "prompt": prompt, **fields}).json()
        _save(f"{name}.json", {key: reply[key] for key in ("content", "tokens", "stop_type")})


def _loading(model: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = subprocess.Popen([sys.executable, "-c", _LOADING, model, str(port)])
    try:
        while True:
            try:
                reply = httpx.get(f"http://127.0.0.1:{port}/health")
            except httpx.TransportError:
                time.sleep(0.005)
                continue
            if reply.status_code == 503:
                _save("loading.json", reply.json())
                return
            raise SystemExit(f"loaded too fast to record: {reply.text}")
    finally:
        child.kill()
        child.wait()


def _vocabulary(model: str) -> None:
    """Every token that could be part of what was recorded, and the special ones."""
    vocabulary = read_header(model).vocabulary()
    assert vocabulary is not None
    streams = ("turn", "limit", "progress", "emoji", "rare", "full")
    text = "".join((HERE / f"{name}.sse").read_text() for name in streams)
    written = " " + "".join(re.findall(r'"content": "([^"]*)"', text)).replace("\\n", "\n")
    found = {
        str(id): [vocabulary.data(id).hex(), vocabulary.type(id)]
        for id in range(len(vocabulary))
        if (vocabulary.data(id) in written.encode() or vocabulary.type(id) == CONTROL)
        and vocabulary.data(id)
    }
    _save("vocabulary.json", found)


def record(recorder: Recorder, model: str) -> None:
    _save("props.json", recorder.call("/props").json())
    _save("models.json", recorder.call("/v1/models").json())
    messages = [{"role": "user", "content": "Say hi in two words."}]
    for name, opened in (("opened", True), ("closed", False)):
        body = {"messages": messages, "add_generation_prompt": opened}
        _save(f"template-{name}.json", recorder.call("/apply-template", body).json())
    hello, emoji = recorder.chat(messages[0]["content"]), recorder.chat(EMOJI)
    rare = recorder.ids(RARE)
    _save("prompts.json", {"hello": hello, "emoji": emoji, "rare": rare})
    recorder.stream("turn", hello, n_predict=30)
    recorder.stream("probs", hello, n_predict=30, n_probs=2)
    recorder.whole("turn", hello, n_predict=30)
    recorder.stream("limit", recorder.ids("Count: 1, 2, 3,"), n_predict=6)
    recorder.stream("progress", recorder.ids("Now"), n_predict=2, return_progress=True)
    recorder.stream("emoji", emoji, n_predict=40, n_probs=2)
    recorder.whole("emoji", emoji, n_predict=40)
    recorder.stream("rare", rare, n_predict=16)
    recorder.whole("rare", rare, n_predict=16)
    recorder.stream("tail", emoji, n_predict=3)  # the limit is inside a character
    recorder.whole("tail", emoji, n_predict=3)
    bias = [[recorder.ids("\n")[0], 20], [151645, False]]
    recorder.stream("full", [100] * 508, n_predict=40, logit_bias=bias)
    _vocabulary(model)
    _save("overflow.json", recorder.call("/completion", {"prompt": [100] * 600}).json())
    _save("invalid.json", recorder.call("/completion", {"prompt": [10**6]}).json())
    _save("unauthorized.json", recorder.call("/props", key="wrong").json())


async def main(model: str) -> None:
    HERE.mkdir(exist_ok=True)
    _loading(model)
    engine = EmbeddedEngine(model, ctx=512, parallel=2)
    try:
        await engine.info()
        assert engine.server is not None
        key = engine._config.api_key
        await asyncio.to_thread(record, Recorder(engine.server.url, key), model)
    finally:
        await engine.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
