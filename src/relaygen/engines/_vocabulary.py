"""Token ids and their exact bytes, as a GGUF file lists them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Token types of the GGUF format."""

_SPACE = "\u2581".encode()

STYLES: Mapping[str, str] = MappingProxyType(
    {"gpt2": "bytes", "llama": "pieces", "t5": "pieces", "gemma4": "pieces"}
)
"""How ``tokenizer.ggml.model`` writes its tokens: GPT-2's printable stand-ins for bytes, or
SentencePiece with U+2581 for a space and ``<0xNN>`` for a byte."""


def _stand_ins() -> dict[int, int]:
    """GPT-2's printable characters and the bytes that they stand for."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {
        **{byte: byte for byte in plain},
        **{256 + place: byte for place, byte in enumerate(others)},
    }


_BYTES = MappingProxyType(_stand_ins())


class Vocabulary:
    """The tokens of one model.

    Args:
        model: the file's ``tokenizer.ggml.model``, a key of `STYLES`.
        tokens: as they stand in the file (UTF-8), by id.
        types: of each token.
        ends: ids that end a turn, as far as the file names them.
    """

    def __init__(
        self,
        model: str,
        tokens: Sequence[bytes],
        types: Sequence[int],
        ends: Collection[int] = (),
    ) -> None:
        self.model = model
        self._tokens = tokens
        self._types = types
        self._ends = frozenset(ends)
        self._byte_level = STYLES[model] == "bytes"

    def __len__(self) -> int:
        return len(self._tokens)

    def type(self, id: int) -> int:
        """One of the token types; `UNKNOWN` for an id that does not exist."""
        return self._types[id] if 0 <= id < len(self._types) else UNKNOWN

    def controls(self, id: int) -> bool:
        """Whether the token steers the chat and is not part of its text."""
        return self.type(id) == CONTROL or id in self._ends

    def data(self, id: int) -> bytes:
        """The bytes of a token; of a control or user-defined one its literal text.

        An unused token writes nothing, as in llama.cpp's own detokenizer.

        Raises:
            KeyError: there is no such id.
        """
        if not 0 <= id < len(self._tokens):
            raise KeyError(id)
        token, kind = self._tokens[id], self._types[id]
        if kind == BYTE and token.startswith(b"<0x"):
            return bytes.fromhex(token[3:5].decode())
        if kind != NORMAL:
            return b"" if kind == UNUSED else token
        if not self._byte_level:
            return token.replace(_SPACE, b" ")
        try:
            return token.decode().translate(_BYTES).encode("latin-1")
        except UnicodeError:  # not written in stand-ins: an added token without its type
            return token

    def ids(self, data: bytes) -> tuple[int, ...]:
        """The ids that write exactly these bytes as text, lowest first."""
        return tuple(self._by_data.get(data, ()))

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, self._by_data), default=0)

    @cached_property
    def _by_data(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for id, kind in enumerate(self._types):
            if kind in (NORMAL, USER_DEFINED, BYTE) and id not in self._ends:
                found.setdefault(self.data(id), []).append(id)
        return found

    @cached_property
    def fingerprint(self) -> str:
        """Equal strings mean that every id means the same, added tokens included.

        Unused tokens at the end do not count: models of one family pad their vocabularies to
        different sizes and never generate the padding.
        """
        used = len(self._types)
        while used and self._types[used - 1] == UNUSED:
            used -= 1
        digest = hashlib.sha256(f"{self.model} {used}\n".encode())
        for token, kind in zip(self._tokens[:used], self._types, strict=False):
            digest.update(b"%d %d " % (kind, len(token)) + token)
        return f"gguf:{digest.hexdigest()}"
