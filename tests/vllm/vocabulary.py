"""The true bytes of each token, read from a model's own tokenizer file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from relaygen.models import home


@dataclass(frozen=True)
class Vocabulary:
    """Bytes by id."""

    data: dict[int, bytes]

    @classmethod
    def of(cls, model: str) -> Vocabulary:
        """The tokenizer in the folder of one of the test models."""
        path = home() / "vllm" / model / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        shown = _shown_bytes()
        data = {
            id: bytes(shown[char] for char in text)
            for text, id in tokenizer["model"]["vocab"].items()
            if all(char in shown for char in text)
        }
        data |= {each["id"]: each["content"].encode() for each in tokenizer["added_tokens"]}
        return cls(data)

    def text(self, ids: Iterable[int | None]) -> bytes:
        """The bytes of these tokens in a row."""
        return b"".join(self.data[id] for id in ids if id is not None)


def _shown_bytes() -> dict[str, int]:
    """GPT-2's table: each byte as a character that can be seen."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in seen]
    table = {chr(byte): byte for byte in seen}
    return table | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}
