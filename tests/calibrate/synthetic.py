"""A synthetic calibration: traces written from templates, scores drawn from known margins."""

from __future__ import annotations

import random
from collections.abc import Sequence

from relaygen.calibrate import Scores, Trace, sentences
from relaygen.calibrate._effects import Observed
from relaygen.engines.scripted import ScriptedTokenizer

EASY = {"Thus": 0.16, "So": 0.10, "Therefore": 0.18, "First": 0.06, "Hence": 0.13}
"""Cues that start easier stretches, by how much."""
PLAIN = ("Wait", "But", "Now", "However", "Maybe", "Then", "Also", "Let", "We", "Again")

_ENDS = (
    "the total number of apples is 12 and we keep it in mind.",
    "each of the boxes holds 3.5 kg, which gives \\(4 \\cdot 3.5 = 14\\) in all.",
    "we add the two values and get 27 as the sum of both.",
    "the answer must be smaller than the number of pages that she read.",
    "he pays 5 dollars for every ticket and 2 more for the drinks.",
)


def trace(number: int, seed: int, *, length: int = 24) -> Trace:
    """One trace of `length` sentences, in paragraphs."""
    draw = random.Random(f"{seed}:{number}")
    words = []
    for at in range(length):
        cue = draw.choice([*EASY, *PLAIN, "Indeed"])
        comma = "," if draw.random() < 0.4 else ""
        gap = "\n\n" if at % 5 == 4 else " "
        words.append(f"{cue}{comma} {draw.choice(_ENDS)}{gap}")
    text = "".join(words).rstrip() + "\n\nThe answer is \\boxed{12}."
    tokens = ScriptedTokenizer()
    ids = tokens.encode(text)
    return Trace(
        f"q{number}#0",
        f"A farmer has {number + 3} boxes of apples, and every box weighs 3.5 kg. How many apples?",
        (1, 2, 3),
        ids,
        tuple(map(tokens.data, ids)),
        "stop",
        seed,
        "large-model",
        number % 2,
    )


def observed(
    count: int, candidates: Sequence[str], *, seed: int = 1, length: int = 24
) -> list[Observed]:
    """Scored traces; behind an easy cue margins are higher by its amount."""
    found = []
    for number in range(count):
        one = trace(number, seed, length=length)
        draw = random.Random(f"{seed}:{number}:margins")
        bonus = [0.0] * len(one.ids)
        for sentence in sentences(one, list(EASY), None):
            for firing in sentence.firings:
                for token in range(firing.first, firing.end):
                    bonus[token] = EASY[firing.name]
        level = draw.gauss(0.68, 0.06)
        margins = tuple(
            round(min(1.0, max(0.0, draw.gauss(level + more, 0.25))), 4) for more in bonus
        )
        top = tuple(
            id if draw.random() < 0.55 + 0.45 * margin else draw.choice(one.ids)
            for id, margin in zip(one.ids, margins, strict=True)
        )
        scores = Scores(one.id, "small-model", margins, top, start=len(one.prompt_ids))
        found.append(Observed(one, scores, sentences(one, candidates, None)))
    return found
