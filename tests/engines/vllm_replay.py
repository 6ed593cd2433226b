"""The recorded vLLM, for tests: its start-up answers, and what it says to `/detokenize`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from .replay import RECORDINGS, Replay, Reply, Route, answer, load, playing, sse

RECORDED: dict[str, Any] = json.loads((RECORDINGS / "vllm" / "requests.json").read_text())
CHAT: list[int] = load("vllm/tokenize-chat")["tokens"]
A = 64

PARTS = {
    99: "a6",
    102: "a9",
    106: "ae",
    115: "b7",
    122: "be",
    127: "c3",
    165: "e9",
    172: "f0",
    222: "80",
    226: "84",
    241: "93",
    246: "98",
    253: "9f",
    254: "a0",
    124373: "f093",
    146162: "f09fa6",
    150151: "f0a0ae",
}
BYTES = {id: bytes.fromhex(data) for id, data in PARTS.items()} | {
    A: b"a",
    10: b"+",
    198: b"\n",
    271: b"\n\n",
    77091: b"assistant",
    659: b" .",
    38590: b"wheel",
    68428: b".D",
    123658: b"esc",
}
"""Tokens that are parts of characters, and some that the recordings never show alone."""


def choices(name: str) -> list[dict[str, Any]]:
    """The choices of a recorded stream's chunks."""
    text = (RECORDINGS / "vllm" / f"{name}.sse").read_text()
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return [choice for event in events for choice in event.get("choices", [])]


def written() -> dict[int, bytes]:
    """What each token of the recorded streams writes, where a chunk holds it alone."""
    found = dict(BYTES)
    for path in sorted((RECORDINGS / "vllm").glob("*.sse")):
        for choice in choices(path.stem):
            ids, text = choice.get("token_ids") or [], choice["text"]
            if len(ids) == 1 and text and "\ufffd" not in text and "assistant" not in text:
                found.setdefault(ids[0], text.encode())
    return found


WRITTEN = written()


def detokenize(body: Any) -> Reply:
    data = b"".join(WRITTEN[id] for id in body["tokens"])
    return answer({"prompt": data.decode(errors="replace")})


def asked_before(path: str) -> dict[str, Any]:
    """The recorded answers of a route by what was asked."""
    return {
        json.dumps(each["body"], sort_keys=True): load(f"vllm/{name}")
        for name, each in RECORDED.items()
        if each["path"] == path and each["status"] == 200 and name != "wish"
    }


def tokenize(body: Any) -> Reply:
    """As recorded; one id for every other text."""
    body = {name: value for name, value in body.items() if name != "model" and value != {}}
    if body.get("prompt") == "a .":
        return answer({"tokens": [A, 659]})
    known = asked_before("/tokenize").get(json.dumps(body, sort_keys=True))
    return answer(known or {"tokens": [A]})


def chunk(ids: list[int], text: str, why: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": why, "token_ids": ids}
    return {"choices": [choice | fields]}


def chunks(*events: Any, **fields: Any) -> Reply:
    return sse(*events, b"data: [DONE]\n\n", **fields)


@asynccontextmanager
async def vllm_playing(**changes: Route) -> AsyncIterator[Replay]:
    """A server with the recorded start-up answers; ``completions=…`` and the like replace routes."""
    if "completions" in changes:
        changes["/v1/completions"] = changes.pop("completions")
    async with playing() as server:
        server.routes = {
            "/health": Reply([b""]),
            "/version": answer(load("vllm/version")),
            "/v1/models": answer(load("vllm/models")),
            "/tokenize": tokenize,
            "/detokenize": detokenize,
            **{name if name[0] == "/" else f"/{name}": route for name, route in changes.items()},
        }
        yield server
