"""Segments: by hand, and against the loop itself for random texts."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relaygen import Limits, Thinking
from relaygen._errors import UsageError
from relaygen.calibrate import Firing, Trace, default_candidates, sentences
from relaygen.calibrate._segments import MAX_SEGMENT_TOKENS
from relaygen.policies import RelayPolicy
from relaygen.text.cues import CueSet

from ..support import THINKING, run
from .traces import trace

PLAIN = "We add. Thus, 2 + 2 is 4. So it is e.g. fine!\n\nNow we know: So 3.14 holds"


def pieces(text: str, cue: str, thinking: Thinking | None = None) -> list[str]:
    """The texts that the cue would delegate."""
    made = trace(text)
    return [
        b"".join(made.pieces[firing.first : firing.end]).decode(errors="replace")
        for sentence in sentences(made, (cue,), thinking)
        for firing in sentence.firings
    ]


def texts(text: str, thinking: Thinking | None = None) -> list[str]:
    made = trace(text)
    return [
        b"".join(made.pieces[sentence.start : sentence.end]).decode(errors="replace")
        for sentence in sentences(made, (), thinking)
    ]


def test_the_sentences_are_those_of_the_run_time() -> None:
    assert texts(PLAIN) == [
        "We add.",
        " Thus, 2 + 2 is 4.",
        " So it is e.g. fine!\n",
        "\nNow we know: So 3.14 holds",
    ]
    assert texts("") == []


def test_a_cue_delegates_the_rest_of_its_sentence() -> None:
    assert pieces(PLAIN, "Thus") == [", 2 + 2 is 4."]
    assert pieces(PLAIN, "Thus,") == [" 2 + 2 is 4."]
    assert pieces(PLAIN, "So") == [" it is e.g. fine!\n", " 3.14 holds"]
    assert pieces(PLAIN, "ow") == []  # only whole words
    assert pieces("Thus", "Thus") == []  # nothing is left to delegate


def test_a_cue_fires_once_in_what_it_delegates_itself() -> None:
    assert pieces("So it is so, So be it. So.", "So") == [" it is so, So be it.", "."]


def test_the_longest_match_is_recorded_and_every_cue_counts() -> None:
    found = sentences(trace("We say I see now. Go"), ("now", "see now", "see", "I"), None)
    assert [s.firings for s in found] == [
        (
            Firing("I", 2, 3, 6, True),
            Firing("see", 3, 4, 6, True),
            Firing("now", 4, 5, 6, False),
            Firing("see now", 4, 5, 6, True),
        ),
        (),
    ]


def test_only_the_thinking_is_relayed() -> None:
    relayed = texts(THINKING, Thinking())
    assert "".join(relayed) == THINKING.partition("<think>")[2].partition("</think>")[0]
    assert "".join(texts(THINKING.removeprefix("<think>"), Thinking())) == "".join(relayed)
    assert "".join(texts("No tags. So all.", Thinking())) == "No tags. So all."
    # Cut off inside the thinking.
    assert texts("<think>We see. So", Thinking()) == ["We see.", " So"]
    assert pieces("<think>\nSo we end</think>So it is.", "So", Thinking()) == [" we end"]


def test_a_spelled_tag_is_none_where_a_token_is() -> None:
    parts = ("So we write ", "</", "think", ">", " so. Done", "</think>", "So it is.")
    cut = [trace(part) for part in parts]
    made = Trace(
        id="a",
        question="?",
        prompt_ids=(),
        ids=tuple(id for part in cut for id in part.ids),
        pieces=tuple(data for part in cut for data in part.pieces),
        finish="stop",
        seed=1,
        model="m",
        fold=0,
    )
    last = sentences(made, (), Thinking())[-1]
    assert made.pieces[last.end] == b"</think>"


def test_the_limit_is_the_loops() -> None:
    assert Limits().max_segment_tokens == MAX_SEGMENT_TOKENS
    long = "So " + " a" * 300 + " So b. c"
    (first, *rest), _ = (s.firings for s in sentences(trace(long), ("So",), None))
    assert (first.first, first.end) == (1, 129)
    assert len(rest) == 1  # it fires again behind the limit


def test_what_fires_inside_its_own_segment_is_kept_apart() -> None:
    first, second = sentences(trace("So we so Thus So. So we."), ("So", "Thus"), None)
    assert [(f.name, f.token) for f in first.firings] == [("So", 0), ("Thus", 3)]
    assert [(f.name, f.token, f.end) for f in first.repeats] == [("So", 4, 6)]
    assert [f.name for f in second.firings] == ["So"]
    assert second.repeats == ()


def test_an_empty_candidate_is_refused() -> None:
    with pytest.raises(UsageError):
        sentences(trace("a"), ("So", " "), None)


def delegations(
    text: str, cue: str, thinking: Thinking | None, limit: int
) -> list[tuple[int, int]]:
    """(first, end) in the trace of what the small model wrote in a run of the loop."""
    done = run(
        RelayPolicy(CueSet([cue]), max_consecutive_delegations=10**9),
        text,
        thinking=thinking,
        answer_role="large" if thinking else "relay",
        limits=Limits(max_tokens=len(trace(text).ids), max_segment_tokens=limit, max_repeats=0),
    ).generation
    assert done.text == trace(text).text
    found, at = [], 0
    for segment in done.segments:
        if segment.role == "small" and segment.tokens:
            found.append((at, at + segment.tokens))
        at += segment.tokens
    return found


WORDS = (
    *("So", " So", "Thus", " Thus", " now", " know", ",", ".", "!", "?", " ", "\n", "\n\n", ")"),
    *('"', "}", "=", " x", "3", ".14", " e.g", " 1", "$", "`", "\\(", "\\)", "\\boxed{", "####"),
    *("é", "。", "日本", "</", "<", "think", " let us", " Let"),
)
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=60).map("".join)
CUES = ("So", "Thus", "Thus,", "now", "=", "}", ")", "Let", "let us", "\\(", "。", "é", "?", "So.")


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.sampled_from(CUES), st.sampled_from((2, 3, 7, 128)), st.sampled_from(range(3)))
@example("So it is.) So we. So", "So", 128, 0)
@example("So. Thus it is. So!", "So.", 128, 0)
@example("So it is é. Thus", "é", 2, 0)
def test_segments_are_those_of_the_loop(text: str, cue: str, limit: int, mode: int) -> None:
    thinking = Thinking() if mode else None
    if mode == 1:
        text = f"<think>{text}</think>So it ends. So."
    if mode == 2:
        text = f"<think>{text}"
    made = trace(text)
    found = sentences(made, (cue,), thinking, max_segment_tokens=limit)
    # In order, without gaps, and each firing in the sentence of its first token.
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(s.start < s.end for s in found)
    assert all(s.start <= f.first < s.end and f.first < f.end for s in found for f in s.firings)
    mine = [(f.first, f.end) for s in found for f in s.firings]
    assert mine == delegations(text, cue, thinking, limit)


def test_a_hundred_candidates_over_a_long_trace_take_seconds() -> None:
    made = trace(
        "First we add. Thus the sum = 3.14 or 4, so. Therefore, it is fine.\n\nNow so.\n" * 400
    )
    candidates = default_candidates()
    assert len(candidates) > 100
    assert len(made.ids) > 10_000
    started = time.process_time()
    found = sentences(made, candidates, None)
    assert time.process_time() - started < 10
    assert sum(len(s.firings) for s in found) > 2_000
