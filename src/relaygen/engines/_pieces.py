"""From a server's token ids to their exact bytes, with and without the model's vocabulary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from .._errors import EngineReplyError
from ._repair import splits, spread
from ._vocabulary import Vocabulary
from ._wire import Wire

BROKEN = "\ufffd"
"""What stands in a text for bytes that are no character."""

LONGEST_RUN = 4
"""A character has at most four bytes, so at most that many tokens."""

_MOST_RUNS = 1 << 16
_SPACELESS = (".", "?", "!", ",", "'", "n't")
"""Beginnings before which a tokenizer that tidies up takes a space away."""


class PieceReader(Protocol):
    """Bytes of the tokens of one stream."""

    def controls(self, id: int, text: str) -> bool:
        """Whether the token is none of the text, given what the server wrote for it."""
        ...

    async def read(self, ids: Sequence[int], text: str) -> list[tuple[int, bytes]]:
        """The tokens whose bytes are known now, some of earlier calls first.

        Args:
            ids: of one chunk, with those that were lost.
            text: what the server wrote for all of them; ``""`` where that is not known.
        """
        ...

    async def restore(self, text: str, count: int, ids: Sequence[int]) -> tuple[int, ...] | None:
        """The `count` ids that came before `ids` in this chunk; None where that cannot be told."""
        ...


async def tokenize(wire: Wire, text: str, *, special: bool, begin: bool = False) -> tuple[int, ...]:
    """Ids by the server's tokenizer; `begin` adds what a prompt begins with (BOS).

    Raises:
        EngineError: the server does not answer, or not with ids.
    """
    body = {"content": text, "add_special": begin, "parse_special": special}
    return ids_of(await wire.post("/tokenize", body), wire)


async def detokenize(wire: Wire, ids: Sequence[int]) -> str:
    """The text of ids by llama-server.

    Raises:
        EngineError: the server does not answer, or not with a text.
    """
    answer = await wire.post("/detokenize", {"tokens": list(ids)})
    text = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise EngineReplyError(f"{wire.url} answered without a text", role=wire.role)
    return text


def ids_of(answer: Any, wire: Wire) -> tuple[int, ...]:
    """The token ids of an answer.

    Raises:
        EngineReplyError: there are none.
    """
    ids = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:  # no booleans
        raise EngineReplyError(f"{wire.url} answered without token ids", role=wire.role)
    return tuple(ids)


class LocalPieces:
    """By the GGUF file's own vocabulary.

    Attributes:
        ambiguous: repairs in which several splits were possible and the longest first was taken.
    """

    def __init__(self, wire: Wire, vocabulary: Vocabulary) -> None:
        self._wire = wire
        self._vocabulary = vocabulary
        self.ambiguous = 0

    def reader(self) -> PieceReader:
        """For one stream; there is nothing to remember."""
        return self

    def controls(self, id: int, text: str) -> bool:
        """By the token's type; nothing written means the server thinks so too."""
        return not text or self._vocabulary.controls(id)

    async def read(self, ids: Sequence[int], text: str) -> list[tuple[int, bytes]]:
        """Looked up."""
        try:
            return [(id, self._vocabulary.data(id)) for id in ids]
        except KeyError as error:
            raise EngineReplyError(
                f"token {error} is not in the model file's vocabulary", role=self._wire.role
            ) from None

    async def restore(self, text: str, count: int, ids: Sequence[int]) -> tuple[int, ...] | None:
        """Split what `ids` did not write into tokens; ask the server between several ways."""
        written = b"".join(data for _, data in await self.read(ids, text))
        whole = text.encode()
        if not whole.endswith(written):
            return None
        ways = splits(whole[: len(whole) - len(written)], count, self._vocabulary)
        if len(ways) < 2:
            return ways[0] if ways else None
        likely = await tokenize(self._wire, text, special=False)
        for way in ways:
            if likely == (*way, *ids):
                return way
        self.ambiguous += 1
        return ways[0]


class RemotePieces:
    """By asking the server, whose vocabulary file we do not have.

    The bytes of an id are what it adds behind an anchor token; asked once per id, and not at all
    where the server's own text tells them.

    Args:
        tokenize: the server's ids of a text, special markers as text.
        detokenize: the server's text of ids; bytes that are no whole character are U+FFFD there.
        role: for error messages.
    """

    def __init__(
        self,
        tokenize: Callable[[str], Awaitable[tuple[int, ...]]],
        detokenize: Callable[[Sequence[int]], Awaitable[str]],
        role: str = "",
    ) -> None:
        self._tokenize = tokenize
        self._detokenize = detokenize
        self._role = role
        self._anchor: tuple[int, str] | None = None
        self._tidies: bool | None = None
        self._runs: dict[tuple[int, ...], str] = {}
        self.known: dict[int, bytes] = {}
        self.ambiguous = 0

    def reader(self) -> PieceReader:
        """For one stream, which may be inside a character."""
        return _RemoteReader(self)

    async def restore(self, text: str, count: int, ids: Sequence[int]) -> tuple[int, ...] | None:
        """The server's own tokens of the text, where their last ones are `ids`."""
        likely = await self._tokenize(text)
        fits = len(likely) == count + len(ids) and likely[count:] == tuple(ids)
        return likely[:count] if fits else None

    async def text(self, ids: Sequence[int]) -> str:
        """What `ids` write behind the anchor; asked once for the same ids."""
        key = tuple(ids)
        found = self._runs.get(key)
        if found is not None:
            return found
        if self._anchor is None:
            anchor = (await self._tokenize("a"))[-1]
            self._anchor = anchor, await self._detokenize([anchor])
        anchor, prefix = self._anchor
        text = await self._detokenize([anchor, *ids])
        if not text.startswith(prefix):
            raise EngineReplyError(
                "the server detokenizes in a way that is not understood", role=self._role
            )
        text = text[len(prefix) :]
        if len(key) == 1 and text.startswith(_SPACELESS) and await self._tidied(key[0], text):
            text = " " + text
        return self.remember(key, text)

    async def _tidied(self, id: int, text: str) -> bool:
        """Whether the server has taken a space away before this text.

        Some tokenizers are set to "clean up" spaces before punctuation when they decode (Llama 3's
        is). Then ``.`` and `` .`` look alike, and only the way back tells which it is.
        """
        if self._tidies is None:
            spaced = "a ."
            self._tidies = await self._detokenize(await self._tokenize(spaced)) != spaced
        return self._tidies and (await self._tokenize(f"a{text}"))[-1] != id

    def remember(self, ids: tuple[int, ...], text: str) -> str:
        """Keep what these ids write together."""
        if len(self._runs) >= _MOST_RUNS:
            self._runs.clear()
        self._runs[ids] = text
        if len(ids) == 1 and BROKEN not in text:
            self.known[ids[0]] = text.encode()
        return text


class _RemoteReader:
    """One llama-server stream: the tokens since the last whole character."""

    def __init__(self, table: RemotePieces) -> None:
        self._table = table
        self._run: list[int] = []

    def controls(self, id: int, text: str) -> bool:
        """The server writes nothing for them."""
        return not text

    async def restore(self, text: str, count: int, ids: Sequence[int]) -> tuple[int, ...] | None:
        return await self._table.restore(text, count, ids)

    async def read(self, ids: Sequence[int], text: str) -> list[tuple[int, bytes]]:
        """Tokens inside a character wait for the one that completes it."""
        whole = bool(text) and BROKEN not in text and not self._run
        if whole and len(ids) > 1:  # the lost ones of a character and its last
            return list(zip(ids, spread(text.encode(), len(ids)), strict=True))
        if whole and ids[0] not in self._table.known:
            # Without stop strings the server writes a token's own text, so it need not be asked.
            self._table.remember((ids[0],), text)
        found = []
        for id in ids:
            found += await self._one(id)
        return found

    async def _one(self, id: int) -> list[tuple[int, bytes]]:
        known = self._table.known.get(id)
        if known is not None and not self._run:
            return [(id, known)]
        self._run.append(id)
        text = await self._table.text(self._run)
        if text.endswith(BROKEN) and len(self._run) < LONGEST_RUN:
            return []
        run, self._run = self._run, []
        return list(zip(run, spread(text.encode(), len(run)), strict=True))
