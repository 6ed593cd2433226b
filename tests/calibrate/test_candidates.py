from __future__ import annotations

import pytest

from relaygen import Thinking
from relaygen.calibrate import PAPER, default_candidates, mine
from relaygen.calibrate._candidates import LEAST_SENTENCES, LEAST_TRACES, MOST, openers
from relaygen.policies import RelayPolicy
from relaygen.profiles import load

from .traces import trace


def test_the_papers_list() -> None:
    assert len(PAPER) == len(set(PAPER)) == 91
    assert {"So ", "So,", "so ", "double-check", "then,", "Next", "Specifically,"} <= set(PAPER)
    assert not {"So", "Check", "Verify"} & set(PAPER)
    stripped = {cue.strip() for cue in PAPER}
    for name in ("qwen3-32b+1.7b", "r1-distill-32b+1.5b"):
        assert set(load(name).cues) <= stripped  # both lists were chosen from it


def test_the_default_candidates() -> None:
    cues = default_candidates()
    assert len(cues) == len(set(cues))
    assert {"So", "answer:", "Answer:", "In conclusion", "="} <= set(cues)
    assert len(RelayPolicy.of(cues).cues) == len(cues)  # none is normalized away


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("So, we add.", ("So",)),
        (
            " Let's denote the price by x.",
            ("Let's", "Let's denote", "Let's denote the", "Let's denote the price"),
        ),
        ("### Step 1: add", ("###", "Step")),
        ("- **Total**: 4", ("- **", "Total")),
        ("\\[ x = 1", ("\\[", "x")),
        ("\\begin{align} x", ("\\begin{", "align")),
        ("$$x", ("$$", "x")),
        ("1. **Find** it", ("1. **", "Find")),
        ("2. First we", ("2.", "First", "First we")),
        ("3 apples", ()),
        ("  ", ()),
    ],
)
def test_openers(sentence: str, found: tuple[str, ...]) -> None:
    assert openers(sentence) == found


def test_what_is_frequent_in_enough_traces_is_mined() -> None:
    often = [trace("We see it. We know. Let us go. Rare one.", id=str(n)) for n in range(6)]
    alone = trace("Zounds so. Zounds no. " * LEAST_SENTENCES, id="alone")
    found = mine([*often, alone], None)
    # "Let us go" always begins with "Let": the shorter one says it all. "We see" is half of "We".
    assert found == ("We", "Let", "Rare", "We know", "We see")
    assert mine(often[: LEAST_TRACES - 1], None) == ()
    assert mine(often[: LEAST_SENTENCES - 1], None) == ("We",)


def test_mining_is_deterministic_and_bounded() -> None:
    words = [f"{a}{b}" for a in "ABCDEFGHIJ" for b in "abcdefghij"]
    many = [trace(" ".join(f"{w} x." for w in words), id=str(n)) for n in range(LEAST_SENTENCES)]
    found = mine(many, None)
    assert len(found) == MOST
    assert found == mine(many[::-1], None) == tuple(sorted(found))


def test_only_the_thinking_is_mined() -> None:
    some = [trace("<think>We see.</think>Here is it.", id=str(n)) for n in range(6)]
    assert mine(some, Thinking()) == ("We",)
