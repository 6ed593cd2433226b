"""The prefix cache: whole blocks of 16 tokens, shared by all requests, within a budget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK = 16


class Chain:
    """The blocks of one growing list of ids; a block's name covers everything before it."""

    __slots__ = ("_ids", "blocks")

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)
        self.blocks: list[int] = []
        self._hash()

    def __len__(self) -> int:
        return len(self._ids)

    def extend(self, ids: Sequence[int]) -> None:
        """More ids behind the others."""
        self._ids.extend(ids)
        self._hash()

    def _hash(self) -> None:
        ids, blocks = self._ids, self.blocks
        parent = blocks[-1] if blocks else 0
        for start in range(len(blocks) * BLOCK, len(ids) - BLOCK + 1, BLOCK):
            parent = hash((parent, *ids[start : start + BLOCK]))
            blocks.append(parent)


class PrefixCache:
    """Least recently used blocks go first, and of one request's blocks its last ones.

    Args:
        budget: tokens; what does not fill a block is not used. 0 caches nothing.

    Attributes:
        queries, hits: tokens looked up, and found, since the start.
        evicted: blocks thrown out since the start.
    """

    def __init__(self, budget: int) -> None:
        self.capacity = budget // BLOCK
        self.queries = self.hits = self.evicted = 0
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, chain: Chain) -> int:
        """The cached tokens of a prompt; its last token is never among them."""
        found = 0
        for block in chain.blocks[: max(0, len(chain) - 1) // BLOCK]:
            if block not in self._blocks:
                break
            found += 1
        self._touch(chain.blocks[:found])
        self.queries += len(chain)
        self.hits += found * BLOCK
        return found * BLOCK

    def store(self, chain: Chain, computed: int) -> None:
        """The first `computed` tokens have been computed: their whole blocks are cached."""
        self._touch(chain.blocks[: computed // BLOCK])
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)
            self.evicted += 1

    def clear(self) -> None:
        """Forget every block."""
        self._blocks.clear()

    def _touch(self, blocks: Sequence[int]) -> None:
        cached = self._blocks
        for block in reversed(blocks):  # the first one of a chain is the last to go
            cached[block] = None
            cached.move_to_end(block)
