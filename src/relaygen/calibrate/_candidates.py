"""Candidate cues: the paper's list, the groups of the one-shot policy, and what a model writes.

The 91 strings are `DEFAULT_CUE_TOKENS` of the reference implementation (`utils/utils.py` of
jiwonsong-dev/RelayGen, MIT).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from .._task import Thinking
from ..policies.one_shot import CUE_GROUPS
from ._records import Trace
from ._segments import sentences

_PAIRED = (
    *("Therefore", "Thus", "So", "Similarly", "Also", "Alternatively", "Wait", "Hmm", "But"),
    *("However", "Hence", "Another", "Oh", "Maybe", "Other", "Again", "Now", "Ah", "Any"),
    *("Specifically", "Then", "Next"),
)


def _paper() -> Iterable[str]:
    for word in _PAIRED:
        for form in (word, word.lower()):
            yield f"{form} " if word == "So" else form  # as it stands there
            yield f"{form},"
    yield from ("check", "double-check", "verify")


PAPER: tuple[str, ...] = tuple(_paper())
"""The paper's candidates: 22 words, capital and lower, bare and with a comma, and three more."""

LEAST_SENTENCES = 6
"""Sentences of the mining fold that must begin so. The test needs 20 segments in the other fold,
which is hopeless below; with fewer candidates every test is less strict."""
LEAST_TRACES = 3
"""Traces of the mining fold in which they must be."""
MOST = 60
"""Mined candidates. Each one tested makes the test of all stricter."""
_WORDS = 4
_SAME = 0.9
"""A longer opener is left out where it is this share of a shorter one: the words between are all
but certain, so that the shorter one delegates the same and more."""

_RUN = r"(?:\\[a-zA-Z]+\{|\\.|[^\w\s\\])+"
_SYMBOLS = re.compile(rf"(?:\d{{1,3}}\. )?{_RUN}(?: {_RUN})*")
_NUMBER = re.compile(r"\d{1,3}\.(?=\s)")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_GAP = re.compile(r" ")


def default_candidates() -> tuple[str, ...]:
    """The paper's strings and the one-shot groups, these in both cases; none of them twice."""
    groups = [cue for group in CUE_GROUPS.values() for cue in group]
    both = [form for cue in groups for form in (cue, cue[:1].upper() + cue[1:])]
    return tuple(dict.fromkeys(cue.strip() for cue in (*PAPER, *both)))


def mine(traces: Sequence[Trace], thinking: Thinking | None) -> tuple[str, ...]:
    """How this model begins its sentences, most frequent first.

    Openers of one to four words, and what LaTeX, lists and headings begin with.

    Args:
        traces: of one fold; what is found is tested on the other one.
        thinking: how the model marks its thinking; see `sentences`.
    """
    count: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for trace in traces:
        here = Counter(
            opener
            for sentence in sentences(trace, (), thinking)
            for opener in openers(
                b"".join(trace.pieces[sentence.start : sentence.end]).decode(errors="replace")
            )
        )
        count.update(here)
        inside.update(here.keys())
    frequent = {
        opener: number
        for opener, number in count.items()
        if number >= LEAST_SENTENCES and inside[opener] >= LEAST_TRACES
    }
    kept = [opener for opener in frequent if not _covered(opener, frequent)]
    return tuple(sorted(kept, key=lambda opener: (-frequent[opener], opener))[:MOST])


def openers(sentence: str) -> tuple[str, ...]:
    """The openers of one sentence: its leading symbols, then one to four words."""
    text = sentence.strip()
    found: list[str] = []
    symbols = _SYMBOLS.match(text) or _NUMBER.match(text)
    if symbols:
        found.append(symbols.group())
    at = symbols.end() if symbols else 0
    at += len(text[at:]) - len(text[at:].lstrip())
    begin = at
    for _ in range(_WORDS):
        word = _WORD.match(text, at)
        if word is None:
            break
        found.append(text[begin : word.end()])
        gap = _GAP.match(text, word.end())
        if gap is None:
            break
        at = gap.end()
    return tuple(found)


def _covered(opener: str, frequent: dict[str, int]) -> bool:
    """Whether a beginning of this opener, whole words of it, is hardly more frequent."""
    words = opener.split(" ")
    shorter = (" ".join(words[:size]) for size in range(1, len(words)))
    return any(frequent[opener] >= _SAME * frequent[each] for each in shorter if each in frequent)
