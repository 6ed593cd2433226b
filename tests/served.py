"""``relaygen serve`` as its own process over two real servers, asked by the official client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai

QUESTION = (
    "A shop sells pens at 12 cents and books at 150 cents. How much do 7 pens and two books cost? "
    "Reason step by step and put the final answer within \\boxed{}."
)
_START_S = 120.0


@contextmanager
def serving(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of the server; its standard error is in `log`."""
    command = [sys.executable, "-m", "relaygen", "serve", *arguments, "--port", "0"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, env={**os.environ, **(environment or {})}
        )
    try:
        yield _ready(process, log)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        found = re.search(r"http://127\.0\.0\.1:\d+(?=/v1)", log.read_text())
        if found is not None:
            try:
                if httpx.get(f"{found[0]}/ready", timeout=30.0).status_code == 200:
                    return found[0]
            except httpx.HTTPError:
                pass
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-3000:])


@dataclass
class Streamed:
    """One streamed chat."""

    reasoning: str = ""
    content: str = ""
    models: list[str] = field(default_factory=list)
    finish: str | None = None
    chunks: int = 0
    usage: Any = None
    relay: dict[str, Any] = field(default_factory=dict)


def stream(url: str, question: str = QUESTION, model: str = "relaygen", **more: Any) -> Streamed:
    """A greedy chat through the ``openai`` package as it comes."""
    found = Streamed()
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        chunks = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            temperature=0.0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"relay": {"annotate": True}},
            **more,
        )
        for chunk in chunks:
            found.chunks += 1
            told: Any = getattr(chunk, "relay", None) or {}
            if chunk.usage is not None:
                found.usage, found.relay = chunk.usage, told
            for choice in chunk.choices:
                found.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
                found.content += choice.delta.content or ""
                found.finish = choice.finish_reason or found.finish
                if told.get("model") and told["model"] not in found.models[-1:]:
                    found.models.append(told["model"])
    return found


def check(found: Streamed) -> None:
    """A relayed answer that adds up."""
    tokens = found.relay["tokens"]
    assert found.finish == "stop"
    assert tokens["large"] > 0
    assert tokens["small"] > 0
    assert tokens["large"] + tokens["small"] + tokens["inserted"] == found.usage.completion_tokens
    assert found.models[:2] == ["large", "small"]
    assert found.relay["handoffs"] >= 2
    assert found.relay["fallbacks"] == 0
    assert "\\boxed" in found.content
    assert found.chunks > 20
