"""The JSON of replies, as vLLM writes it; chunks, the hot path, are put together by hand."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from ._config import MockConfig
from ._generation import Step
from ._log import Entry
from ._parameters import Call
from ._vocabulary import Vocabulary

DONE = b"data: [DONE]\n\n"
_FLOOR = -9999.0  # what vLLM writes for minus infinity
_FILL = (33, 34, 35)  # candidates that stand beside the token


def event(value: Any) -> bytes:
    """One event of a stream."""
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


class Candidates:
    """The candidates of each token: one margin for all of them.

    Args:
        config: the engine's.
        temperature: the request's.
        count: how many.
    """

    def __init__(self, config: MockConfig, temperature: float, count: int) -> None:
        best, second = (1 + config.margin) / 2, (1 - config.margin) / 2
        if config.processed_logprobs and temperature > 0:
            best, second = best ** (1 / temperature), second ** (1 / temperature)
            best, second = best / (best + second), second / (best + second)
        self.logprob = math.log(best)
        others = [math.log(second) if second > 0 else _FLOOR]
        others += [max(_FLOOR, -30.0 - n) for n in range(count)]
        self._others = others[: max(0, count - 1)]

    def of(self, id: int) -> list[tuple[int, float]]:
        """Ids with their log-probabilities, the token itself first."""
        spare = [other for other in (*_FILL, *range(36, 60)) if other != id]
        return [(id, self.logprob), *zip(spare, self._others, strict=False)]


class CompletionFormat:
    """Of ``/v1/completions``."""

    kind = "text_completion"

    def __init__(
        self, config: MockConfig, vocabulary: Vocabulary, call: Call, entry: Entry
    ) -> None:
        self._config, self._vocabulary = config, vocabulary
        self._call, self._entry = call, entry
        self._created = int(time.time())
        self._offset = 0
        self._first = True
        self._candidates = (
            None if call.top is None else Candidates(config, call.temperature, call.top)
        )
        self._head = (
            f'data: {{"id":{quoted(entry.id)},"object":"{self.kind}","created":{self._created},'
            f'"model":{quoted(config.model)},"choices":[{{"index":0,'
        )

    def opening(self) -> bytes:
        """What comes before the first token."""
        return b""

    def chunk(self, step: Step) -> bytes:
        """One event."""
        return self._event(f'"text":{quoted(step.text)}', step)

    def _event(self, content: str, step: Step) -> bytes:
        call = self._call
        logprobs, finish, stop = "null", "null", "null"
        if self._candidates is not None:
            logprobs = json.dumps(self._logprobs(step.ids))
        if step.finish is not None:
            finish, stop = quoted(step.finish), json.dumps(step.stop)
        prompt = ids = "null"
        if call.return_ids:
            ids = f"[{','.join(map(str, step.ids))}]"
            if self._first:
                prompt = f"[{','.join(map(str, call.ids))}]"
        self._first = False
        stamps = ",".join([f"{stamp:.6f}" for stamp in step.emitted])
        return (
            f'{self._head}{content},"logprobs":{logprobs},"finish_reason":{finish},'
            f'"stop_reason":{stop},"prompt_token_ids":{prompt},"token_ids":{ids}}}],'
            f'"usage":null,"emitted":[{stamps}]}}\n\n'
        ).encode()

    def usage(self) -> dict[str, Any]:
        """Token counts so far."""
        entry = self._entry
        details = {"cached_tokens": entry.cached_tokens} if self._config.show_cached else None
        return {
            "prompt_tokens": entry.prompt_tokens,
            "total_tokens": entry.prompt_tokens + entry.tokens,
            "completion_tokens": entry.tokens,
            "prompt_tokens_details": details,
        }

    def closing(self) -> bytes:
        """What comes behind the last token: the usage where it was asked for, and the end."""
        if not self._call.usage:
            return DONE
        return event({**self._base(self.kind), "choices": [], "usage": self.usage()}) + DONE

    def reply(self, steps: Sequence[Step]) -> dict[str, Any]:
        """The whole of a reply that is not streamed."""
        ids = [id for step in steps for id in step.ids]
        choice = {
            "index": 0,
            "text": "".join(step.text for step in steps),
            **self._choice(steps, ids),
            "prompt_token_ids": self._call.ids if self._call.return_ids else None,
        }
        return self._whole(self.kind, choice, steps)

    def _base(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._entry.id,
            "object": kind,
            "created": self._created,
            "model": self._config.model,
        }

    def _choice(self, steps: Sequence[Step], ids: list[int]) -> dict[str, Any]:
        return {
            "logprobs": None if self._candidates is None else self._logprobs(ids),
            "finish_reason": steps[-1].finish if steps else None,
            "stop_reason": steps[-1].stop if steps else None,
            "token_ids": ids if self._call.return_ids else None,
            "prompt_logprobs": None,
        }

    def _whole(self, kind: str, choice: dict[str, Any], steps: Sequence[Step]) -> dict[str, Any]:
        emitted = [stamp for step in steps for stamp in step.emitted]
        rest = {"choices": [choice], "usage": self.usage(), "emitted": emitted}
        return {**self._base(kind), **rest}

    def _logprobs(self, ids: Sequence[int]) -> dict[str, Any]:
        assert self._candidates is not None
        names = [self._name(id) for id in ids]
        offsets = []
        for id in ids:
            offsets.append(self._offset)
            self._offset += len(self._vocabulary.data(id).decode(errors="replace"))
        return {
            "text_offset": offsets,
            "token_logprobs": [self._candidates.logprob] * len(ids),
            "tokens": names,
            "top_logprobs": [
                {self._name(other): logprob for other, logprob in self._candidates.of(id)}
                for id in ids
            ],
        }

    def _name(self, id: int) -> str:
        if self._call.as_ids:
            return f"token_id:{id}"
        return self._vocabulary.data(id).decode(errors="replace")


class ChatFormat(CompletionFormat):
    """Of ``/v1/chat/completions``."""

    kind = "chat.completion.chunk"

    def opening(self) -> bytes:
        """The role."""
        return self._event('"delta":{"role":"assistant","content":""}', Step([], []))

    def chunk(self, step: Step) -> bytes:
        """One event."""
        return self._event(f'"delta":{{"content":{quoted(step.text)}}}', step)

    def reply(self, steps: Sequence[Step]) -> dict[str, Any]:
        """The whole of a reply that is not streamed."""
        ids = [id for step in steps for id in step.ids]
        content = "".join(step.text for step in steps)
        message = {"role": "assistant", "content": content, "tool_calls": []}
        choice = {"index": 0, "message": message, **self._choice(steps, ids)}
        choice.pop("prompt_logprobs")
        whole = self._whole("chat.completion", choice, steps)
        whole["prompt_token_ids"] = self._call.ids if self._call.return_ids else None
        return whole

    def _logprobs(self, ids: Sequence[int]) -> dict[str, Any]:
        assert self._candidates is not None
        return {
            "content": [
                {
                    **self._shown(id, self._candidates.logprob),
                    "top_logprobs": [self._shown(*one) for one in self._candidates.of(id)],
                }
                for id in ids
            ]
        }

    def _shown(self, id: int, logprob: float) -> dict[str, Any]:
        data = self._vocabulary.data(id)
        return {"token": self._name(id), "logprob": logprob, "bytes": list(data)}
