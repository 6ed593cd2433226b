"""Talking to a mock engine over a real socket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from relaygen.mock import MockConfig, load_trace, serving

HEAD = "<|im_start|>user\nHow much?<|im_end|>\n<|im_start|>assistant\n"
TRACE = load_trace("short")


@dataclass
class Reply:
    """A streamed reply: the events' JSON, and how it ended."""

    chunks: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False
    error: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None

    @property
    def ids(self) -> list[int]:
        return [id for chunk in self.chunks for id in chunk["choices"][0]["token_ids"] or ()]

    @property
    def text(self) -> str:
        return "".join(chunk["choices"][0]["text"] for chunk in self.chunks)

    @property
    def emitted(self) -> list[float]:
        return [stamp for chunk in self.chunks for stamp in chunk["emitted"]]

    @property
    def finish(self) -> Any:
        return self.chunks[-1]["choices"][0]["finish_reason"]

    @property
    def stop(self) -> Any:
        return self.chunks[-1]["choices"][0]["stop_reason"]


@dataclass
class Client:
    """One mock engine's client."""

    http: httpx.Client

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def post(self, path: str, body: Any) -> Any:
        return self.http.post(path, json=body).raise_for_status().json()

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self.post("/tokenize", {"prompt": text, "add_special_tokens": False})[
            "tokens"
        ]
        return ids

    def complete(self, prompt: Any, **options: Any) -> Any:
        return self.post("/v1/completions", body(prompt, **options))

    def stream(self, prompt: Any, *, session: str = "", **options: Any) -> Reply:
        sent = body(prompt, stream=True, stream_options={"include_usage": True}, **options)
        return self.events("/v1/completions", sent, session)

    def events(self, path: str, sent: Any, session: str = "") -> Reply:
        reply = Reply()
        headers = {"x-session-id": session} if session else {}
        with self.http.stream("POST", path, json=sent, headers=headers) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                if line == "data: [DONE]":
                    reply.done = True
                elif line.startswith("data: "):
                    event = json.loads(line[len("data: ") :])
                    if "error" in event:
                        reply.error = event["error"]
                    elif event["choices"]:
                        reply.chunks.append(event)
                    else:
                        reply.usage = event["usage"]
        return reply

    def log(self, session: str | None = None) -> list[dict[str, Any]]:
        query = "" if session is None else f"?session={session}"
        entries: list[dict[str, Any]] = self.get(f"/mock/log{query}")
        return entries

    def ended(self) -> dict[str, Any]:
        """The latest request, when it is over."""
        entries: list[dict[str, Any]] = until(
            lambda: [entry for entry in self.log()[-1:] if entry["ended"] is not None]
        )
        return entries[0]

    def fail(self, kind: str, **when: Any) -> None:
        self.post("/mock/failures", {"kind": kind, **when})


def body(prompt: Any, **options: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 1000, "return_token_ids": True, **options}


def until(found: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Ask again until there is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("it never came")


@contextmanager
def engine(**config: Any) -> Iterator[Client]:
    """A mock engine that takes no time, unless told otherwise."""
    given = {"token_ms": 0.0, "prefill_ms": 0.0, **config}
    with (
        serving(MockConfig(**given)) as url,
        httpx.Client(base_url=url, timeout=20.0, trust_env=False) as http,
    ):
        yield Client(http)
