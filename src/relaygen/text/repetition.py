"""The repetition guard: small reasoning models get stuck in loops, and only the relay sees both.

A text loops when its last tokens are one block over and over. Short blocks must fill more tokens,
so that a row of digits or a ruled line is no loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from itertools import islice

LONGEST_BLOCK = 64
"""Tokens of the longest block that is looked for."""

_EVERY = 8


class RepetitionGuard:
    """Feeds on token ids (or bytes); says when the text loops.

    Args:
        repeats: how often a block must follow itself. 0 switches the guard off.
        tokens: how many tokens the repeated blocks must fill at least.
    """

    __slots__ = ("_count", "_recent", "_repeats", "_tokens")

    def __init__(self, repeats: int = 8, tokens: int = 128) -> None:
        self._repeats = repeats
        self._tokens = tokens
        self._recent: deque[Hashable] = deque(maxlen=max(LONGEST_BLOCK * repeats, tokens))
        self._count = 0

    def feed(self, token: Hashable) -> bool:
        """Whether the text loops now. Looks at every eighth token; cost does not grow."""
        if not self._repeats:
            return False
        self._recent.append(token)
        self._count += 1
        return self._count % _EVERY == 0 and self._loops()

    def _loops(self) -> bool:
        recent = self._recent
        size = len(recent)
        backwards = list(islice(reversed(recent), LONGEST_BLOCK + 1))
        last, block = backwards[0], 0
        while last in backwards[block + 1 :]:  # a block ends as the text does
            block = backwards.index(last, block + 1)
            span = max(block * self._repeats, self._tokens)
            if block * self._repeats > size:
                return False
            if span > size:
                continue
            tail = list(islice(recent, size - span, size))
            if tail[block:] == tail[:-block]:
                return True
        return False

    def reset(self) -> None:
        """Start over: somebody else goes on, and deserves as many tokens."""
        self._recent.clear()
        self._count = 0
