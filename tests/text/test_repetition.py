"""The repetition guard."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen.text.repetition import LONGEST_BLOCK, RepetitionGuard


def fires(guard: RepetitionGuard, tokens: list[int]) -> int | None:
    """How many tokens it took."""
    return next((n for n, token in enumerate(tokens, 1) if guard.feed(token)), None)


def needed(block: int, repeats: int, tokens: int) -> int:
    """Tokens that a loop must fill."""
    return max(block * repeats, tokens)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 16, 33, LONGEST_BLOCK])
def test_a_block_repeated_often_enough_is_a_loop(block: int) -> None:
    least = needed(block, 8, 128)
    took = fires(RepetitionGuard(), list(range(block)) * 600)
    assert took is not None
    assert least <= took < least + 8
    assert took % 8 == 0  # it looks at every eighth token only


@pytest.mark.parametrize("block", [1, 2, 3, 7, 16, 33, LONGEST_BLOCK])
def test_one_repetition_too_few_is_none(block: int) -> None:
    """Not even where the look falls on the loop's last token."""
    looping = list(range(block)) * 600
    for before in range(8):
        prefix = [-1 - n for n in range(before)]
        guard = RepetitionGuard()
        assert fires(guard, prefix + looping[: needed(block, 8, 128) - 1] + [-99] * 7) is None


def test_longer_blocks_are_not_looked_for() -> None:
    assert fires(RepetitionGuard(), list(range(LONGEST_BLOCK + 1)) * 30) is None


def test_a_row_of_digits_is_no_loop_but_a_page_of_them_is() -> None:
    assert fires(RepetitionGuard(), [3] * 120) is None
    assert fires(RepetitionGuard(), [3] * 136) is not None


def test_fewer_tokens_and_repeats_may_be_asked_for() -> None:
    assert fires(RepetitionGuard(2, 16), [1, 2, 3, 4, 5, 6, 7, 8] * 2) == 16
    assert fires(RepetitionGuard(3, 16), [1, 2, 3, 4, 5, 6, 7, 8] * 2) is None
    assert fires(RepetitionGuard(3, 16), [1, 2, 3, 4, 5, 6, 7, 8] * 3) == 24


def test_zero_switches_it_off() -> None:
    assert fires(RepetitionGuard(0), [1] * 2000) is None


def test_a_loop_is_found_behind_any_beginning() -> None:
    generator = random.Random(1)
    beginning = [generator.randrange(1000) for _ in range(777)]
    took = fires(RepetitionGuard(), beginning + [1, 2, 3] * 60)
    assert took is not None
    assert took < 777 + 128 + 8


def test_reset_asks_for_as_many_tokens_again() -> None:
    guard = RepetitionGuard()
    assert fires(guard, [1, 2] * 60 + [1]) is None
    guard.reset()
    assert fires(guard, [1, 2] * 63) is None
    assert fires(guard, [1, 2]) == 2


def test_bytes_are_tokens_too() -> None:
    guard = RepetitionGuard(2, 8)
    assert [guard.feed(token) for token in [b"a", b"b"] * 4][-1]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=LONGEST_BLOCK),
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(2, 8),
    st.integers(1, 160),
)
def test_every_block_repeated_enough_is_a_loop(
    block: list[int], before: list[int], repeats: int, tokens: int
) -> None:
    least = needed(len(block), repeats, tokens)
    looping = (block * (least // len(block) + 9))[: least + 7]
    took = fires(RepetitionGuard(repeats, tokens), before + looping)
    assert took is not None
    assert took >= min(needed(1, repeats, tokens), least)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=200), st.integers(2, 4))
def test_what_fires_is_a_loop(tokens: list[int], repeats: int) -> None:
    took = fires(RepetitionGuard(repeats, 12), tokens)
    if took is not None:
        read = tokens[:took]
        assert any(
            len(read) >= (span := needed(block, repeats, 12))
            and all(read[-n] == read[-n - block] for n in range(1, span - block + 1))
            for block in range(1, LONGEST_BLOCK + 1)
        )


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(64)), st.integers(0, 1000))
def test_counting_is_no_loop(order: list[int], seed: int) -> None:
    """Much alike and never the same: the same words in another order each time."""
    generator = random.Random(seed)
    tokens = [token for _ in range(12) for token in generator.sample(order, len(order))]
    assert fires(RepetitionGuard(), tokens) is None
