"""Defects of the reference implementation: it fails on a text, we do not.

The numbers are those of the list in our notes on the paper's code.
"""

from __future__ import annotations

import pytest

from relaygen.policies import HandOff, RelayPolicy
from relaygen.policies.base import STAY

from . import reference
from .policies.support import begun, feed, play, words, written

QWEN_CUES = (
    *("Oh,", "another,", "Thus", "Now", "Alternatively", "alternatively,", "Thus,", "Therefore"),
    *("similarly", "similarly,", "now", "Again", "specifically,", "Again,", "Similarly,", "Now,"),
    *("Specifically,", "Hence", "Similarly", "Other", "now,", "hence", "Specifically", "So "),
    *("Therefore,", "Wait,", "Also", "So,"),
)
"""The reference's list for Qwen3 32B and 1.7B, in its order."""


def ours(text: str, cues: tuple[str, ...] = QWEN_CUES) -> list[tuple[str, str]]:
    return list(written(play(RelayPolicy.of(cues), words(text))))


def theirs(text: str, cues: tuple[str, ...] = QWEN_CUES) -> list[tuple[str, str]]:
    return reference.relay(words(text), cues)


@pytest.mark.parametrize(
    ("word", "fragment"),
    [
        ("know", "now"),
        ("unknown", "now"),
        ("acknowledge", "now"),
        ("snow", "now"),
        ("Otherwise", "Other"),
        ("Against", "Again"),
        ("whence", "hence"),
    ],
)
def test_defect_4_stop_strings_are_substrings(word: str, fragment: str) -> None:
    text = f"it is all so very {word} to us all here"
    cut = text.index(fragment) + len(fragment)
    assert theirs(text) == [("large", text[:cut]), ("small", text[cut:])]
    assert ours(text) == [("large", text)]


def test_defect_4_goes_on_in_the_middle_of_a_word() -> None:
    text = "this is what we have here. Otherwise it fails."
    assert theirs(text)[1] == ("small", "wise it fails.")
    assert ours(text) == [("large", text)]


@pytest.mark.parametrize("word", ["Now", "Thus", "Again", "Therefore", "similarly"])
def test_defect_5_a_bare_cue_shadows_its_comma_form(word: str) -> None:
    """In the reference the comma forms of the list are dead; we count them where they occur."""
    cues = (word, f"{word},")
    text = f"this is what we have here: {word}, on"
    assert reference.cues_that_fired(words(text), cues) == [word]
    # The reference records the bare form even where both are complete at the same token.
    together = ["a", " b", " c", " d", " e", f" {word},", " on"]
    assert reference.cues_that_fired(together, cues) == [word]
    (large, _) = play(RelayPolicy.of(cues), together)
    assert large.cue == f"{word},"


def test_defect_5_the_order_of_the_list_decides() -> None:
    """Several tokens at once (speculative decoding): another result from the same list."""
    at_once = ["a", " b", " c", " d", " e", " Now, on"]
    assert reference.cues_that_fired(at_once, ("Now", "Now,")) == ["Now"]
    assert reference.cues_that_fired(at_once, ("Now,", "Now")) == ["Now,"]
    for cues in (("Now", "Now,"), ("Now,", "Now")):
        assert play(RelayPolicy.of(cues), at_once)[0].cue == "Now,"


def test_defect_5_only_the_comma_form_listed() -> None:
    """With the comma form alone the bare word is no cue: here both agree."""
    text = "this is what we have here: Wait it, or Wait, so"
    assert theirs(text, ("Wait,",))[0][1].endswith("or Wait,")
    assert ours(text, ("Wait,",))[0][1].endswith("or Wait,")


def test_defect_5_how_many_of_the_paper_s_cues_can_never_fire() -> None:
    shadowed = [c for c in QWEN_CUES if any(c != o and o.strip() in c for o in QWEN_CUES)]
    dead = [
        cue
        for cue in QWEN_CUES
        if cue.strip()
        not in reference.cues_that_fired([*"abcde", *words(f" {cue.strip()} x")], QWEN_CUES)
        and cue != "So "
    ]
    assert dead == [cue for cue in shadowed if cue.endswith(",") and cue != "So,"]
    assert len(dead) == 8
    # Ours records each one, as a token of its own; a bare form is never in the way of it.
    for cue in dead:
        assert play(RelayPolicy.of(QWEN_CUES), [f" {cue}", " x"])[0].cue == cue


@pytest.mark.parametrize("opening", ["Therefore", "Thus", " Hence", "\n\nNow"])
def test_defect_6_min_tokens_hides_a_cue_at_the_start(opening: str) -> None:
    text = f"{opening} it is four."
    assert theirs(text) == [("large", text)]
    assert ours(text) == [("large", opening), ("small", " it is four.")]


def test_defect_6_the_large_model_resumes_exactly_there() -> None:
    text = "all that we have seen: Thus it is. Therefore so. Hence it was."
    assert theirs(text)[1:] == [
        ("small", " it is."),
        ("large", " Therefore so. Hence it was."),
    ]
    assert ours(text)[1:] == [
        ("small", " it is."),
        ("large", " Therefore"),
        ("small", " so."),
        ("large", " Hence"),
        ("small", " it was."),
    ]


@pytest.mark.parametrize(
    ("sentence", "theirs_ends"),
    [
        (" pi is 3.14 or so.", " pi is 3."),
        (" it is odd, e.g. three or five.", " it is odd, e."),
        (" the U.S. have it.", " the U."),
        (" it is n! times 5! or so.", " it is n!"),
        (" `a.b` is it.", " `a."),
        (" $x!$ is it.", " $x!"),
        ("\n1. it is one.", "\n1."),
        ("\nfile.py is it.", "\nfile."),
        (" a != b holds.", " a !"),
    ],
)
def test_defect_7_a_dot_is_not_the_end_of_a_sentence(sentence: str, theirs_ends: str) -> None:
    text = f"all that we have seen: Thus{sentence} More of it."
    assert theirs(text)[1] == ("small", theirs_ends)
    assert ours(text)[1] == ("small", sentence)


def test_defect_11_after_its_end_of_turn_a_model_is_called_again() -> None:
    """The small model wants to stop; the reference asks it once more, and once more."""
    asked, role = [], "small"
    for _ in range(3):  # it ends its turn each time, without a stop string
        asked.append(role)
        role = reference.next_role(role, None)
    assert asked == ["small"] * 3

    policy = RelayPolicy.of(QWEN_CUES)
    session = begun(policy)
    assert feed(session, ["Thus"]) == [HandOff(0, "delegate", "cue", "Thus")]
    session.begin("small", "delegate", "reasoning", "handoff")
    # The loop calls the large model, which owes a sentence: the small one is not asked at once.
    session.begin("large", "lead", "reasoning", "turn")
    assert feed(session, [" Therefore", " it", " is", ".\n"]) == [STAY] * 4
    assert feed(session, ["Hence"], first=4) == [HandOff(4, "delegate", "cue", "Hence")]
