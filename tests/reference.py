"""What the reference implementation does, restated in our own words for the defects it has.

Source: arXiv 2602.06454 and its code, `utils/utils.py`: cues and sentence ends are stop strings of
vLLM requests, every large segment has `min_tokens=5`, and the loop goes by the stop string alone.
Text in, text out; both models are perfect and write the same script.
"""

from __future__ import annotations

from collections.abc import Sequence

LARGE_MIN_TOKENS = 5
"""The reference's guard against the So-loop."""

SENTENCE_STOPS = (".", "!", "?", "\n\n")
"""What ends a segment of the small model."""


def stopped(
    tokens: Sequence[str], stops: Sequence[str], min_tokens: int = 0
) -> tuple[str, str] | None:
    """What a request with stop strings returns, and which one ended it; None if none did.

    A stop string is any substring of the generated text. It is looked for after each token, in the
    order of the list, in what came behind the first `min_tokens` tokens; the text is cut behind it.
    """
    text = "".join(tokens[:min_tokens])
    searched = len(text)
    for token in tokens[min_tokens:]:
        text += token
        for stop in stops:
            at = text.find(stop, searched)
            if at >= 0:
                return text[: at + len(stop)], stop
    return None


def tokens_of(script: Sequence[str], place: int) -> list[str]:
    """The tokens of the script from a character on; a token cut in two begins with its rest."""
    tokens, start = [], 0
    for token in script:
        if start + len(token) > place:
            tokens.append(token[max(0, place - start) :])
        start += len(token)
    return tokens


def relay(
    script: Sequence[str], cues: Sequence[str], min_tokens: int = LARGE_MIN_TOKENS
) -> list[tuple[str, str]]:
    """Who writes what of the script, turn by turn."""
    segments: list[tuple[str, str]] = []
    role, place = "large", 0
    while rest := tokens_of(script, place):
        found = (
            stopped(rest, cues, min_tokens) if role == "large" else stopped(rest, SENTENCE_STOPS)
        )
        text = found[0] if found is not None else "".join(rest)
        segments.append((role, text))
        place += len(text)
        role = next_role(role, None if found is None else found[1])
    return segments


def next_role(role: str, stop: str | None) -> str:
    """Who is called next. Without a stop string (the model ended its turn): the same one again."""
    if stop is None:
        return role
    return "small" if role == "large" else "large"


def cues_that_fired(
    script: Sequence[str], cues: Sequence[str], min_tokens: int = LARGE_MIN_TOKENS
) -> list[str]:
    """The cue that ended each large segment."""
    fired, place = [], 0
    for role, text in relay(script, cues, min_tokens):
        if role == "large":
            found = stopped(tokens_of(script, place), cues, min_tokens)
            fired += [found[1]] if found is not None else []
        place += len(text)
    return fired
