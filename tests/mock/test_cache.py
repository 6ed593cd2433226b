from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relaygen.mock._cache import BLOCK, Chain, PrefixCache


class NaiveCache:
    """The same by definition: whole prefixes in a list, the most recent last."""

    def __init__(self, budget: int) -> None:
        self.capacity = budget // BLOCK
        self.prefixes: list[tuple[int, ...]] = []

    def touch(self, ids: list[int], blocks: int) -> None:
        for count in range(blocks, 0, -1):
            prefix = tuple(ids[: count * BLOCK])
            if prefix in self.prefixes:
                self.prefixes.remove(prefix)
            self.prefixes.append(prefix)

    def match(self, ids: list[int]) -> int:
        found = 0
        while (found + 1) * BLOCK < len(ids) and tuple(ids[: (found + 1) * BLOCK]) in self.prefixes:
            found += 1
        self.touch(ids, found)
        return found * BLOCK

    def store(self, ids: list[int], computed: int) -> None:
        self.touch(ids, computed // BLOCK)
        self.prefixes = self.prefixes[max(0, len(self.prefixes) - self.capacity) :]


# Few different tokens in long runs, so that prefixes are shared.
IDS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=4).map(
    lambda runs: [id for id, length in runs for _ in range(length)]
)
REQUESTS = st.lists(st.tuples(IDS, st.integers(0, 40), st.floats(0, 1)), max_size=30)


@given(st.integers(0, 200), REQUESTS)
def test_against_the_naive_cache(budget: int, requests: list[tuple[list[int], int, float]]) -> None:
    cache, naive = PrefixCache(budget), NaiveCache(budget)
    hits = queries = 0
    for prompt, written, share in requests:
        chain = Chain(prompt)
        cached = cache.match(chain)
        assert cached == naive.match(prompt)
        assert cached % BLOCK == 0
        assert cached < len(prompt)
        hits, queries = hits + cached, queries + len(prompt)
        ids = prompt + [7] * written
        chain.extend([7] * written)
        computed = max(cached, int(share * len(ids)))
        cache.store(chain, computed)
        naive.store(ids, computed)
        assert len(cache) == len(naive.prefixes) <= budget // BLOCK
    assert (cache.hits, cache.queries) == (hits, queries)


@given(IDS, IDS)
def test_a_chain_does_not_depend_on_its_pieces(first: list[int], second: list[int]) -> None:
    chain = Chain(first)
    chain.extend(second)
    assert chain.blocks == Chain(first + second).blocks
    assert len(chain) == len(first + second)


def test_the_last_token_is_always_computed() -> None:
    cache = PrefixCache(1000)
    chain = Chain(list(range(32)))
    cache.store(chain, 32)
    assert cache.match(chain) == 16
    longer = Chain(list(range(33)))
    assert cache.match(longer) == 32


def test_a_block_stands_for_everything_before_it() -> None:
    cache = PrefixCache(1000)
    block = list(range(16))
    cache.store(Chain([*block, *block]), 32)
    assert cache.match(Chain([5] * 16 + [*block, 1])) == 0


def test_the_ends_of_old_requests_go_first() -> None:
    cache = PrefixCache(4 * BLOCK)
    old, new = [1] * 48 + [9], [2] * 32 + [9]
    cache.store(Chain(old), 48)
    cache.store(Chain(new), 32)
    assert cache.evicted == 1
    assert cache.match(Chain(new)) == 32
    assert cache.match(Chain(old)) == 32


def test_clear_forgets() -> None:
    cache = PrefixCache(1000)
    chain = Chain([1] * 40)
    cache.store(chain, 40)
    assert cache.match(chain) == 32
    cache.clear()
    assert cache.match(chain) == 0
