"""A small SGLang that answers in the shapes of ``data/sglang.json`` and plays fixed ids."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .replay import Replay, Reply, Route, answer, playing, sse

_SHAPES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "sglang.json").read_text())[
    "shapes"
]
TURN, THINK = 0, 12
WORDS = {
    TURN: b"<|end|>", 1: b"a", 2: b" So", 3: b" x", 4: b".", 5: b"\n", 6: b" \xf0\x9f",
    7: b"\xa6\x84", 8: b"\xa6\x85", 9: b"<|user|>", 10: b"<|assistant|>", 11: b"Hi",
    THINK: b"<think>",
}  # fmt: skip
EVENTS = ("/v1/completions", "/generate")


def shape(name: str) -> Any:
    """A fresh copy of an answer."""
    return copy.deepcopy(_SHAPES[name]["reply"])


def encode(text: str) -> list[int]:
    """The longest word first; bytes without a word are 1000 and more."""
    data, found = text.encode(), []
    words = sorted(WORDS.items(), key=lambda each: -len(each[1]))
    while data:
        id = next((id for id, word in words if data.startswith(word)), 1000 + data[0])
        found.append(id)
        data = data[len(WORDS.get(id, b"?")) :]
    return found


def written(ids: Sequence[int]) -> str:
    """The text of ids."""
    return b"".join(WORDS.get(id, b"?") for id in ids).decode(errors="replace")


def printable(ids: Sequence[int]) -> str:
    """What a stream shows of them: up to the last space before an incomplete character."""
    text = written(ids)
    return text[: text.rfind(" ") + 1] if text.endswith("\ufffd") else text


@dataclass
class FakeSglang:
    """How the server is.

    Attributes:
        ids: what it writes; a turn's end or a stop id ends it, else the limit.
        returns_ids: its ``/v1/completions`` knows ``return_token_ids``.
        incremental: started with ``--incremental-streaming-output``.
        cache_report: started with ``--enable-cache-report``.
        raw: started with ``SGLANG_RETURN_ORIGINAL_LOGPROB=1``.
        drafts: it speculates.
        hangs: it never comes to an end.
        burst: tokens in each event.
    """

    ids: list[int] = field(default_factory=lambda: [1, TURN])
    returns_ids: bool = True
    incremental: bool = False
    cache_report: bool = False
    raw: bool = True
    drafts: bool = False
    hangs: bool = False
    burst: int = 1
    cached: int = 2

    def tokenize(self, body: Any) -> Reply:
        text = body.get("prompt")
        if text is None:
            text = "".join(f"<|user|>{each['content']}" for each in body["messages"])
            text += "<|assistant|><think>" if body["add_generation_prompt"] else ""
        ids = encode(text)
        return answer(shape("tokenize") | {"tokens": ids, "count": len(ids)})

    @staticmethod
    def detokenize(body: Any) -> Reply:
        assert body["skip_special_tokens"] is False
        return answer(shape("detokenize") | {"text": written(body["tokens"])})

    def completions(self, body: Any) -> Reply:
        if not body.get("stream"):
            reply = shape("completion")
            if not self.returns_ids:
                del reply["choices"][0]["token_ids"], reply["choices"][0]["prompt_token_ids"]
            return answer(reply)
        events = []
        limit, stops = body["max_tokens"], body.get("stop_token_ids", ())
        for first, part, text, why in self._parts(limit, stops):
            chunk = shape("completion_chunk")
            chunk["choices"][0] |= {
                "text": text,
                "finish_reason": why and why["type"],
                "matched_stop": why and why.get("matched"),
            }
            if body.get("return_token_ids") and self.returns_ids:
                chunk["choices"][0]["token_ids"] = part
                if first:
                    chunk["choices"][0]["prompt_token_ids"] = body["prompt"]
            events.append(chunk)
        if self.drafts and body.get("return_spec_tokens_details"):
            events.append(shape("completion_sglext"))
        usage = shape("completion_usage")
        details = {"cached_tokens": self.cached} if self.cache_report else None
        usage["usage"] |= {"prompt_tokens": len(body["prompt"]), "prompt_tokens_details": details}
        return self._stream([*events, usage])

    def generate(self, body: Any) -> Reply:
        sampling = body["sampling_params"]
        if set(sampling) & {"max_tokens", "min_tokens", "seed"}:
            return answer(shape("error_contract"), 400)
        if not body.get("stream"):
            return self._scored(body)
        if sampling["top_k"] == 0:
            return sse(shape("error_stream"), b"data: [DONE]\n\n")
        events, text = [], ""
        ids: list[int] = []
        tops: list[Any] = []
        limit, stops = sampling["max_new_tokens"], sampling.get("stop_token_ids", ())
        for _, part, shown, why in self._parts(limit, stops):
            event = shape("generate_event")
            ids, text = ids + part, text + shown
            row = [self._best(id, sampling["temperature"], body.get("top_logprobs_num", 0)) for id
                   in part]  # fmt: skip
            tops += row
            event["output_ids"] = part if self.incremental else list(ids)
            event["text"] = shown if self.incremental else text
            event["meta_info"] |= {
                "id": body["rid"],
                "finish_reason": why,
                "prompt_tokens": len(body["input_ids"]),
                "completion_tokens": len(ids),
                "cached_tokens": self.cached,
            }
            if body.get("return_logprob"):
                event["meta_info"]["output_top_logprobs"] = row if self.incremental else list(tops)
            if why and self.drafts:
                event["meta_info"] |= shape("completion_sglext")["sglext"]["spec_tokens_details"]
            events.append(event)
        return self._stream(events)

    def _scored(self, body: Any) -> Reply:
        """The log-probabilities of the prompt."""
        ids, start = body["input_ids"], body["logprob_start_len"]
        reply = shape("scored")
        reply["meta_info"] |= {
            "prompt_tokens": len(ids),
            "input_top_logprobs": [
                self._best(id, 0.0, body["top_logprobs_num"]) if place else None
                for place, id in enumerate(ids[start:])
            ],
        }
        return answer(reply)

    def _parts(
        self, limit: int, stops: Sequence[int]
    ) -> list[tuple[bool, list[int], str, dict[str, Any] | None]]:
        """First, ids, text and finish reason of each event."""
        ids: list[int] = []
        why = shape("finish_length") | {"length": limit}
        for id in self.ids[:limit]:
            ids.append(id)
            if id == TURN or id in stops:
                why = shape("finish_stop") | {"matched": id}
                break
        parts: list[tuple[bool, list[int], str, dict[str, Any] | None]] = []
        for start in range(0, len(ids), self.burst):
            end = start + self.burst
            shown = printable(ids[:end])[len(printable(ids[:start])) :]
            last = why if end >= len(ids) and not self.hangs else None
            parts.append((start == 0, ids[start:end], shown, last))
        return parts

    def _best(self, id: int, temperature: float, count: int) -> list[list[Any]]:
        """That id and the next one, with logits 2 and 0, as the server scales them."""
        scale = 1.0 if self.raw or not temperature else temperature
        rest = math.log1p(math.exp(-2.0 / scale))
        return [[-rest, id, None], [-2.0 / scale - rest, id + 1, None]][:count]

    def _stream(self, events: list[Any]) -> Reply:
        if self.hangs:
            return sse(*events, end="hang")
        return sse(*events, b"data: [DONE]\n\n")


@asynccontextmanager
async def sglang_playing(
    fake: FakeSglang | None = None, /, **changes: Route
) -> AsyncIterator[Replay]:
    """The server; ``changes`` replace routes."""
    fake = fake or FakeSglang()
    async with playing() as server:
        server.routes = {
            "/ready": Reply([b""]),
            "/v1/models": answer(shape("models")),
            "/model_info": answer(shape("model_info")),
            "/server_info": answer(shape("server_info")),
            "/tokenize": fake.tokenize,
            "/detokenize": fake.detokenize,
            "/v1/completions": fake.completions,
            "/generate": fake.generate,
            "/abort_request": Reply([b""]),
            **changes,
        }
        yield server
