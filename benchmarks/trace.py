"""Writes a synthetic reasoning trace for mock engines, and tells how the relay reads it.

    python benchmarks/trace.py [long|short|FILE | --short] [--seed N] [--tokens N] [--write FILE]

The trace is made of the kind of sentences that reasoning models write. Its figures come from a real
relay over two engines that play it in this process, with the profile ``qwen3-32b+1.7b``.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from pathlib import Path
from statistics import mean

from relaygen.bench import Figures, played
from relaygen.mock import Trace, load_trace

_TOKENS = re.compile(r"</?think>|\d| ?[A-Za-z]+(?:'[a-z]+)?|\n+| ?[^\w\s]|\s|.", re.DOTALL)
_LONGEST_WORD = 10  # letters, before a word is two tokens

SHORT = (
    "<think>\nOkay, we need the sum of 17 and 25. First I add the tens, which gives 30. "
    "So the ones give 12, and that is 3.0 tens… no, 1 ten and 2 ones.\n\n"
    "Let me check the café's bill 🧮 again. Therefore the sum is 42, e.g. 17 + 25 = 42. "
    "Wait, is that right? Now 42 - 25 is 17, which is what we began with. "
    "That is good enough 👍🏽.\n</think>\n\nThe sum is 42."
)

STEPS = (
    "The problem says that {name} has {a} {things} and gives {b} of them away.",
    "First, the difference {a} - {b} has to be computed before anything else.",
    "Let me think about what the question really wants from us here.",
    "We know that each of the {b} boxes holds {c} {things}, and no box is empty.",
    "If the total is {a}, the share of each person depends on how many people there are.",
    "I should be careful with the remainder of {a} divided by {c}.",
    "That would mean that {name} had {b} {things} in the beginning, which is odd.",
    "Let me write the equation down: x + {b} = {a}.",
    "The sum of the first {c} odd numbers is a perfect square, and this might help.",
    "Hmm, the wording is a little ambiguous, but the first reading is more natural.",
    "We can check this with a small case, for example with {c} {things} and two people.",
    "Multiplying both sides by {c} makes the fractions disappear, which is convenient.",
    "The average of {a} and {b} is what we want to compare with {c}.",
    "It is not obvious why the order should matter, but let us keep it in mind.",
    "The second condition says that the number is divisible by {c}.",
    "Let me recompute that product more slowly, because the digits are easy to confuse.",
    "With {b} in the denominator, the expression is about {d}.{e}, i.e. a bit more than {d}.",
)
EASY = (
    ("So", " x is {a} minus {b}, which is {f}."),
    ("Thus", ", the remaining {things} number {f} in all."),
    ("Now", ", {b} plus {c} is {g}, as we said above."),
    ("Therefore", " the second part comes to {g} {things}."),
    ("Also", ", the number {c} divides this without a remainder."),
    ("Again", ", we subtract {b} from {a} and get {f}."),
    ("Hence", " the total must be at least {g}."),
    ("Similarly", ", the other side gives {f} {things}."),
    ("Wait,", " that is the same as {b} plus {c}, so it is {g}."),
    ("Alternatively", ", we count them one by one and reach {f} again."),
    ("Specifically", ", {a} minus {b} leaves exactly {f} of them."),
)
NAMES = ("Anna", "Tom", "Maria", "Ben", "Clara", "David")
THINGS = ("apples", "marbles", "tickets", "books", "coins", "stamps")
ANSWER = "\n</think>\n\nThe answer is {f}: {a} minus {b}."


def tokens_of(text: str) -> list[bytes]:
    """Much as a real tokenizer cuts: words with their space, single digits, parts of characters."""
    tokens: list[bytes] = []
    for part in _TOKENS.findall(text):
        data = part.encode()
        if len(data) >= 4 and not part.strip().isascii():  # an emoji: its bytes are no character
            tokens += (data[: len(data) - 2], data[len(data) - 2 :])
        elif len(part.strip()) > _LONGEST_WORD and part.strip().isalpha():
            middle = len(data) // 2
            tokens += (data[:middle], data[middle:])
        else:
            tokens.append(data)
    return tokens


def generate(seed: int, size: int) -> Trace:
    """A trace of about `size` tokens."""
    draw = random.Random(seed)
    text, length = "<think>\nOkay, let me work through this step by step.", 0
    while length < size - 45:
        paragraph = [draw.choice(STEPS) for _ in range(draw.choice((1, 2, 2)))]
        paragraph.append("".join(draw.choice(EASY)))
        if draw.random() < 0.2:  # the last sentence of a paragraph is not always the easy one
            paragraph.append(draw.choice(STEPS))
        text += draw.choice(("\n\n", " ")) + " ".join(_filled(one, draw) for one in paragraph)
        length = len(tokens_of(text))
    return Trace.of(tokens_of(text + _filled(ANSWER, draw)), name=f"synthetic-{seed}")


def _filled(sentence: str, draw: random.Random) -> str:
    a, b, c = draw.randrange(120, 990), draw.randrange(11, 99), draw.randrange(3, 12)
    numbers = {"a": a, "b": b, "c": c, "d": a // b, "e": a * 10 // b % 10, "f": a - b, "g": b + c}
    return sentence.format(**numbers, name=draw.choice(NAMES), things=draw.choice(THINGS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?", help="long, short or a file: only tell its figures")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=2100)
    parser.add_argument("--short", action="store_true", help="the short trace instead")
    parser.add_argument("--write", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.trace:
        trace = load_trace(arguments.trace)
    elif arguments.short:
        trace = Trace.of(tokens_of(SHORT), name="short")
    else:
        trace = generate(arguments.seed, arguments.tokens)
    if arguments.write:
        arguments.write.write_text(trace.dump(), encoding="utf-8")
    found = Figures.of(played(trace))
    print(
        f"{trace.name}: {found.tokens} tokens, {found.utilization:.1%} large, "
        f"{found.handoffs} hand-offs, {len(found.delegated)} delegated segments of "
        f"{mean(found.delegated):.1f} tokens on average (longest {max(found.delegated)}), "
        f"answer {found.answer} tokens"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
