"""A vocabulary made from a trace: equal traces give equal ids, in every process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ._trace import Trace

# The ids that the Qwen3 family gives to these.
SPECIAL: Mapping[str, int] = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<tool_call>": 151657,
    "</tool_call>": 151658,
    "<tool_response>": 151665,
    "</tool_response>": 151666,
    "<think>": 151667,
    "</think>": 151668,
}
HIDDEN = frozenset((151643, 151644, 151645))  # not in the text under skip_special_tokens
SIZE = 151_936
START = SPECIAL["<|im_start|>"]
EOS = SPECIAL["<|im_end|>"]
ROLES = ("system", "user", "assistant", "tool")

_FIRST, _LAST = 10_000, 151_000  # words have five or six digits, as most of a real vocabulary
_UNITS = re.compile(
    f"(<\\|im_start\\|>(?:{'|'.join(ROLES)})\n|{'|'.join(map(re.escape, SPECIAL))})"
)


class Vocabulary:
    """Ids 0 to 255 are single bytes, then come the trace's words, then the special markers.

    Text becomes ids by greedy longest match over the words, and bytes elsewhere, without loss.
    """

    def __init__(self, trace: Trace) -> None:
        special = {text.encode(): id for text, id in SPECIAL.items()}
        words = {token for token in trace.tokens if len(token) > 1 and token not in special}
        words.update(role.encode() for role in ROLES)
        step = (_LAST - _FIRST) // (len(words) + 1)
        self._ids = {bytes([byte]): byte for byte in range(256)}
        self._ids.update((word, _FIRST + n * step) for n, word in enumerate(sorted(words)))
        self._lengths = _lengths(self._ids)
        self._data = {id: data for data, id in (self._ids | special).items()}
        self._trace_ids = {**self._ids, **special}

    def trace_id(self, token: bytes) -> int:
        """The id of a token of the trace; markers are the special ones."""
        return self._trace_ids[token]

    def data(self, id: int) -> bytes:
        """The bytes of an id; none for an id without a meaning."""
        return self._data.get(id, b"")

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes of many."""
        data = self._data
        return b"".join([data.get(id, b"") for id in ids])

    def encode(self, text: str | bytes, *, special: bool = False) -> list[int]:
        """Ids of a text; with `special`, markers are recognized, and a turn's head is a unit."""
        if isinstance(text, bytes):
            return self._words(text)
        if not special:
            return self._words(text.encode(errors="replace"))
        ids: list[int] = []
        for part in _UNITS.split(text):
            if part in SPECIAL:
                ids.append(SPECIAL[part])
            elif part.startswith("<|im_start|>"):
                role = part[len("<|im_start|>") : -1].encode()
                ids += (START, self._ids[role], self._ids[b"\n"])
            elif part:
                ids += self._words(part.encode(errors="replace"))
        return ids

    def head(self, role: str) -> list[int]:
        """The ids that open a turn."""
        return self.encode(f"<|im_start|>{role}\n", special=True)

    def _words(self, data: bytes) -> list[int]:
        ids, lengths, found = self._ids, self._lengths, []
        at, end = 0, len(data)
        while at < end:
            for length in lengths[data[at]]:
                id = ids.get(data[at : at + length])
                if id is not None:
                    found.append(id)
                    at += length
                    break
        return found


def _lengths(words: Iterable[bytes]) -> Sequence[tuple[int, ...]]:
    """First byte -> the lengths of the words that begin with it, longest first."""
    lengths: list[set[int]] = [set() for _ in range(256)]
    for word in words:
        lengths[word[0]].add(len(word))
    return [tuple(sorted(found, reverse=True)) for found in lengths]


def byte_level(data: bytes) -> str:
    """Bytes in the alphabet in which byte-level BPE vocabularies are written (``Ġ`` is a space)."""
    return data.decode("latin-1").translate(_ALPHABET)


def _alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {b: chr(256 + n) for n, b in enumerate(rest)}


_ALPHABET = _alphabet()
