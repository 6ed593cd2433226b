"""Seeds of segments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relaygen._seeds import segment_seed

NUMBERS = st.integers(0, 2**40)


@given(NUMBERS)
def test_the_first_segment_uses_the_seed_itself(seed: int) -> None:
    assert segment_seed(seed, 0, 0) == seed


@given(NUMBERS, st.integers(0, 5), st.integers(0, 500))
def test_31_bits_and_reproducible(seed: int, choice: int, segment: int) -> None:
    first = segment_seed(seed, choice, segment)
    assert first == segment_seed(seed, choice, segment)
    if choice or segment:
        assert first is not None
        assert 0 <= first < 2**31


def test_every_choice_and_segment_has_its_own() -> None:
    seeds = {segment_seed(7, c, s) for c in range(4) for s in range(100)}
    assert len(seeds) == 400


def test_no_seed_stays_no_seed() -> None:
    assert segment_seed(None, 3, 9) is None
