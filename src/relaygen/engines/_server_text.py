"""Texts and conversations as token ids, by a server's own tokenizer and chat template."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

from .._types import Conversation, Message, Prompt
from ._chat import split

_MARKER = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
"""What may be a special token: such servers parse those in any text."""


class ServerText:
    """For a server that parses special tokens in every text that it tokenizes.

    Args:
        encode: the server's ids of a text; with True, behind what a prompt begins with (BOS).
        detokenize: the server's text of ids, special tokens included.
        template: the ids of messages in the model's chat template; with True, with the assistant's
            turn opened behind them.
    """

    def __init__(
        self,
        encode: Callable[[str, bool], Awaitable[tuple[int, ...]]],
        detokenize: Callable[[Sequence[int]], Awaitable[str]],
        template: Callable[[list[Message], Conversation, bool], Awaitable[tuple[int, ...]]],
    ) -> None:
        self._encode = encode
        self._detokenize = detokenize
        self._template = template
        self._specials: dict[str, bool] = {}
        self._spaced: bool | None = None

    async def plain(self, text: str) -> tuple[int, ...]:
        """The server's ids of a text, nothing added."""
        return await self._encode(text, False)

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation in the model's chat template, as the server's chat route renders it.

        A final assistant message is left open: it is appended to the rendering of the rest, as
        `LlamaServerEngine.render` does.

        Raises:
            EngineError: the server does not answer, or the template refuses the conversation.
            UsageError: a final assistant message that cannot be continued.
        """
        raw = conversation.raw
        if raw is not None:
            if isinstance(raw, str):
                return Prompt(await self._encode(raw, True), raw, raw)
            text = await self._detokenize(raw)
            return Prompt(raw, text, text)
        messages, begun = split(conversation)
        closed_ids, ids = await asyncio.gather(
            self._template(messages, conversation, False),
            self._template(messages, conversation, True),
        )
        closed, text = await asyncio.gather(self._detokenize(closed_ids), self._detokenize(ids))
        assistant = text.removeprefix(closed) if text.startswith(closed) else ""
        if begun:
            ids = await self._extended(ids, text, begun)
        return Prompt(ids, text + begun, assistant + begun)

    async def _extended(self, ids: tuple[int, ...], text: str, begun: str) -> tuple[int, ...]:
        """The ids of both texts, cut as one where the server gives the same ids for the first."""
        alone, whole = await asyncio.gather(self.plain(text), self.plain(text + begun))
        return whole if alone == ids else ids + await self.tokenize(begun, special=True)

    async def tokenize(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Ids of `text` as a continuation: no BOS, and no space that is not in it.

        Without `special` a marker that is a special token is cut behind its first character, so
        that its parts are plain text.

        Raises:
            EngineError: the server does not answer.
        """
        if not text:
            return ()
        parts = [text] if special else await self._harmless(text)
        found: list[int] = []
        for part in parts:
            found += await self._continuation(part)
        return tuple(found)

    async def _harmless(self, text: str) -> list[str]:
        cuts = []
        for match in _MARKER.finditer(text):
            marker = match.group()
            if marker not in self._specials:
                self._specials[marker] = len(await self._continuation(marker)) == 1
            if self._specials[marker]:
                cuts.append(match.start() + 1)
        return [
            text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)
        ]

    async def _continuation(self, text: str) -> tuple[int, ...]:
        if self._spaced is None:  # some tokenizers put a space before a text
            line, both = await asyncio.gather(self.plain("\n"), self.plain("\na"))
            self._spaced = both[len(line) :] != await self.plain("a")
        if self._spaced:  # a line break takes the space, and no token spans it
            line, both = await asyncio.gather(self.plain("\n"), self.plain("\n" + text))
            if both[: len(line)] == line:
                return both[len(line) :]
        return await self.plain(text)
