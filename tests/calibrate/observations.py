"""Observations written by hand: one letter a token, sentences and firings given by their places."""

from __future__ import annotations

from collections.abc import Sequence

from relaygen.calibrate import Firing, Scores, Sentence, Trace
from relaygen.calibrate._effects import Observed

Cue = tuple[str, int]  # its name, and the place in the sentence of its token


def observe(
    *sentences: tuple[Sequence[Cue], Sequence[float | None]],
    fold: int = 1,
    wrong: Sequence[int] = (),
    unnamed: Sequence[int] = (),
    after: int = 0,
    id: str = "t",
) -> Observed:
    """A trace of sentences; every cue delegates from behind its token to the sentence's end.

    `wrong`: tokens where the scorer's best token is another; `unnamed`: where it names none;
    `after`: tokens behind the relayed stage, margins unknown.
    """
    margins: list[float | None] = []
    found = []
    for cues, values in sentences:
        start, end = len(margins), len(margins) + len(values)
        margins += values
        firings = [Firing(name, start + at, start + at + 1, end, True) for name, at in cues]
        firings.sort(key=lambda firing: firing.token)
        found.append(Sentence(start, end, tuple(firings)))
    margins += [None] * after
    ids = tuple(range(100, 100 + len(margins)))
    top = tuple(
        None if at in unnamed else 7 if at in wrong else token for at, token in enumerate(ids)
    )
    pieces = (b"x",) * len(ids)
    trace = Trace(id, "?", (1,), ids, pieces, "stop", None, "m", fold)
    return Observed(trace, Scores(id, "s", tuple(margins), top, start=1), tuple(found))
