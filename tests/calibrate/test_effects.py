"""From scored traces to the statistics of each cue."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen.calibrate import Firing, Scores, Sentence, Trace
from relaygen.calibrate._effects import (
    CueStats,
    Observed,
    Run,
    names,
    overall_margin,
    stats_of_each,
    stats_of_runs,
    tables,
)

from .observations import Cue, observe

SO: list[Cue] = [("So", 0)]


def of(cue: str, *observed: Observed, mined: tuple[str, ...] = ()) -> CueStats:
    (stats,) = stats_of_each(tables(observed), [cue], mined)
    return stats


def test_a_hand_computed_cue() -> None:
    one = observe(
        (SO, [0.1, 0.9, 0.8]),
        ([], [0.2, 0.4, 0.6, 0.3]),
        ([], [0.3, 0.5, None, 0.1]),
        wrong=[2],
    )
    two = observe((SO, [0.0, 0.5]), ([], [0.0, 0.7]), unnamed=[1])
    stats = of("So", one, two)
    assert (stats.occurrences, stats.traces, stats.tokens, stats.known) == (2, 2, 3, 3)
    assert stats.margin == pytest.approx((0.9 + 0.8 + 0.5) / 3)
    assert stats.agreement == pytest.approx(1 / 2)  # one right, one wrong, one not named
    # Place 1: 0.9 against (0.4 + 0.5) / 2; place 2: 0.8 against 0.6, the unknown is left out.
    assert stats.differences.tolist() == pytest.approx([(0.45 + 0.2) / 2, -0.2])


def test_an_unknown_margin_is_left_out_and_is_not_1() -> None:
    stats = of("So", observe((SO, [0.1, None, 0.8]), ([], [0.5, 0.5, 0.6])))
    assert (stats.tokens, stats.known, stats.margin) == (2, 1, 0.8)
    assert stats.differences.tolist() == pytest.approx([0.2])
    stats = of("So", observe((SO, [0.1, None]), ([], [0.5, 0.5]), unnamed=[1]))
    assert (stats.occurrences, stats.traces, stats.known) == (1, 1, 0)
    assert stats.margin is None
    assert stats.agreement is None
    assert np.isnan(stats.differences).all()


def test_a_cue_that_never_fires() -> None:
    stats = of("Thus", observe((SO, [0.1, 0.2])))
    assert (stats.occurrences, stats.traces, stats.tokens, stats.margin) == (0, 0, 0, None)
    assert np.isnan(stats.differences).all()


def test_a_trace_without_another_sentence_says_nothing() -> None:
    stats = of("So", observe((SO, [0.1, 0.2])), observe((SO, [0.1, 0.6]), ([], [0.0, 0.5])))
    assert np.isnan(stats.differences[0])
    assert stats.differences[1] == pytest.approx(0.1)
    assert stats.occurrences == 2


def test_beyond_the_longest_other_sentence_the_place_before_stands_in_once() -> None:
    stats = of("So", observe((SO, [0.0, 0.0, 0.9, 0.9]), ([], [0.5, 0.4])))
    # Place 1 against 0.4; place 2 against its neighbour 0.4; place 3 has no match.
    assert stats.differences.tolist() == pytest.approx([(-0.4 + 0.5) / 2])


def test_both_neighbours_stand_in_with_their_weights() -> None:
    one = observe((SO, [0.0, 0.0, 0.9]), ([], [0.0, 0.1, None, 0.7]), ([], [0.0, 0.3]))
    mean = (0.1 + 0.3 + 0.7) / 3
    assert of("So", one).differences.tolist() == pytest.approx([(-0.2 + 0.9 - mean) / 2])


def test_a_bare_cue_is_tested_on_the_sentences_of_its_comma_form() -> None:
    one = observe(
        ([("So", 0), ("So,", 1)], [0.0, 0.0, 0.9]),
        ([("So", 0)], [0.0, 0.0, 0.5]),
        ([], [0.0, 0.0, 0.3]),
    )
    bare, comma = of("So", one), of("So,", one)
    assert (bare.occurrences, bare.tokens) == (2, 4)
    assert (comma.occurrences, comma.tokens) == (1, 1)
    assert bare.differences.tolist() == pytest.approx([(0.6 + 0.2) / 4])
    assert comma.differences.tolist() == pytest.approx([0.9 - (0.5 + 0.3) / 2])


def test_mined_cues_are_not_looked_at_where_they_were_mined() -> None:
    mining, testing = (
        observe((SO, [0.1, 0.9]), ([], [0.1, 0.5]), fold=0),
        observe((SO, [0.1, 0.6]), ([], [0.1, 0.5]), fold=1),
    )
    assert of("So", mining, testing).occurrences == 2
    mined = of("So", mining, testing, mined=("So",))
    assert (mined.occurrences, mined.margin) == (1, 0.6)
    assert np.isnan(mined.differences[0])
    assert of("So", mining, testing, mined=("Thus",)).occurrences == 2


def test_a_sentence_that_a_segment_runs_into_is_no_match_for_it() -> None:
    sentences = (
        Sentence(0, 2, (Firing("So", 0, 1, 4, True),)),  # delegates 1, 2 and 3
        Sentence(2, 5, ()),
        Sentence(5, 8, ()),
    )
    margins = (0.1, 0.9, 0.8, 0.7, 0.0, 0.2, 0.3, 0.4)
    trace = Trace("t", "?", (), tuple(range(8)), (b"x",) * 8, "stop", None, "m", 1)
    one = Observed(trace, Scores("t", "s", margins, (None,) * 8), sentences)
    # The delegated tokens stand at places 1, 0 and 1; only the last sentence is compared.
    expected = (0.9 - 0.3 + 0.8 - 0.2 + 0.7 - 0.3) / 3
    assert of("So", one).differences.tolist() == pytest.approx([expected])


def test_a_set_is_measured_on_its_own_runs() -> None:
    one = observe((SO, [0.1, 0.9]), ([("Now", 0)], [0.1, 0.7]), ([], [0.1, 0.5]))
    stats = stats_of_runs("both", tables([one]), [[Run(0, 1, 2), Run(2, 3, 4)]])
    assert (stats.name, stats.occurrences) == ("both", 2)
    assert stats.differences.tolist() == pytest.approx([0.3])


def test_names_and_overall_mean() -> None:
    one = observe(([("So", 0), ("Now", 1)], [0.1, None, 0.5]), ([], [0.3]), after=3)
    assert names([one]) == ("Now", "So")
    assert overall_margin(tables([one])) == pytest.approx(0.3)
    assert overall_margin(tables([observe(([], [None]))])) is None
    assert overall_margin([]) is None


def test_scores_that_end_early_leave_the_rest_unknown() -> None:
    full = observe((SO, [0.1, 0.9, 0.8]), ([], [0.2, 0.5, 0.6]))
    short = Observed(
        full.trace, Scores("t", "s", full.scores.margins[:5], full.scores.top[:5]), full.sentences
    )
    assert of("So", short).differences.tolist() == pytest.approx([(0.4 + 0.3) / 2])


values = st.one_of(st.none(), st.integers(0, 64).map(lambda n: n / 64))
sentence = st.tuples(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=2, unique_by=lambda c: c[0]
    ),
    st.lists(values, min_size=5, max_size=9),
)


@settings(deadline=None)
@given(st.lists(sentence, min_size=1, max_size=7))
def test_any_trace_agrees_with_the_definition(
    sentences: list[tuple[list[Cue], list[float | None]]],
) -> None:
    stats = of("a", observe(*sentences))
    parts: list[float] = []
    pool: dict[int, list[float]] = {}
    for cues, margins in sentences:
        if not any(name == "a" for name, _ in cues):
            for place, margin in enumerate(margins):
                if margin is not None:
                    pool.setdefault(place, []).append(margin)
    for cues, margins in sentences:
        for name, at in cues:
            for place in range(at + 1, len(margins)) if name == "a" else ():
                match = pool.get(place) or pool.get(place - 1, []) + pool.get(place + 1, [])
                if (margin := margins[place]) is not None and match:
                    parts.append(margin - sum(match) / len(match))
    expected = sum(parts) / len(parts) if parts else math.nan
    assert stats.differences.tolist() == pytest.approx([expected], nan_ok=True, abs=1e-9)


@settings(deadline=None)
@given(st.lists(sentence, min_size=2, max_size=7), st.floats(-0.4, 0.4), st.floats(-0.04, 0.04))
def test_neither_the_trace_nor_the_place_is_an_effect(
    sentences: list[tuple[list[Cue], list[float | None]]], level: float, slope: float
) -> None:
    """Adding a constant to a trace, and where every place has a match a slope too, changes nothing."""
    full = [
        (cues, [0.5 if v is None else v / 8 + 0.45 for v in margins][:5])
        for cues, margins in sentences
    ]
    moved = [
        (cues, [v + level / 2 + slope * place for place, v in enumerate(margins)])
        for cues, margins in full
    ]
    before, after = of("a", observe(*full)), of("a", observe(*moved))
    assert after.differences.tolist() == pytest.approx(
        before.differences.tolist(), nan_ok=True, abs=1e-9
    )
