"""The margin policy over scored traces, against the policy itself; and the choice of thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relaygen import Limits
from relaygen.calibrate import Scores, sentences
from relaygen.calibrate._effects import Observed, Run, tables
from relaygen.calibrate._predict import replay
from relaygen.calibrate._thresholds import (
    ALWAYS,
    NEVER,
    Ends,
    Grid,
    Option,
    Thresholds,
    best,
    ends,
    play,
)
from relaygen.engines.scripted import ScriptedEngine
from relaygen.policies import MarginPolicy

from ..policies.support import plan
from ..policies.support import play as live
from ..support import run
from .observations import Cue, observe
from .traces import trace

CUES = ("Now", "So", "So,", "Thus")
MARGINS = (None, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
PAIRS = st.tuples(st.sampled_from((0.3, 0.5, 0.7, NEVER)), st.sampled_from((0.0, 0.1, 0.3)))
TEXTS = st.lists(
    st.sampled_from(
        [
            "So",
            " So",
            "So,",
            " Now",
            "Thus",
            " we",
            " add",
            " 3",
            ".5",
            ".",
            "!",
            "\n",
            "\n\n",
            "é",
            "😀",
        ]
    ),
    min_size=1,
    max_size=60,
).map("".join)


def seen(text: str, margins: Sequence[float | None], cues: Sequence[str] = CUES) -> Observed:
    """A trace whose margins are these, again and again."""
    one = trace(text)
    size = len(one.ids)
    told = tuple(margins[place % len(margins)] for place in range(size))
    return Observed(one, Scores(one.id, "s", told, (None,) * size), sentences(one, cues, None))


def played(
    one: Observed, pair: tuple[float, float], cues: Sequence[str] = CUES, *, limit: int = 128
) -> list[tuple[int, int]]:
    made = tables([one])
    (runs,) = play(made, [Ends(made[0], limit)], cues, Thresholds(*pair)).runs
    return [(run.first, run.end) for run in runs]


# Against the policy itself.


@settings(deadline=None, max_examples=400)
@given(TEXTS, st.lists(st.sampled_from(MARGINS), min_size=1, max_size=30), PAIRS)
@example("So a.\n" * 8, [0.9, 0.9, 0.9, 0.1], (NEVER, 0.3))  # a line break is no sentence
@example("So a.\n" * 8, [0.9, 0.1, 0.9, 0.9], (NEVER, 0.3))
@example("So a so So b.", [0.9, 0.9, 0.1], (NEVER, 0.3))  # it fires again
@example("So 😀 😀", [0.9, 0.9, 0.9, 0.9, 0.1], (NEVER, 0.3))  # nothing of the character stays
def test_the_hand_offs_are_those_of_the_policy(
    text: str, margins: list[float | None], pair: tuple[float, float]
) -> None:
    one = seen(text, margins)
    stay, leave = pair
    expected, place = [], 0
    for segment in live(
        MarginPolicy.of(CUES, stay=stay, leave=leave),
        one.trace.pieces,
        start=plan(thinking=False, answer_role="relay"),
        margin=lambda place: one.scores.margins[place],
        streamed=True,
    ):
        # Behind the last token there is nothing to delegate.
        if segment.role == "small" and place < len(one.trace.ids):
            expected.append((place, place + segment.size))
        place += segment.size
    assert played(one, pair) == expected


@settings(deadline=None, max_examples=100)
@given(TEXTS, PAIRS, st.sampled_from((2, 5, 128)), st.integers(0, 9))
def test_the_tokens_are_those_of_the_loop(
    text: str, pair: tuple[float, float], limit: int, salt: int
) -> None:
    def margin(token: str) -> float:
        return (crc32(f"{salt}{token}".encode()) % 11) / 10

    one = trace(text)
    margins = [margin(piece.decode(errors="replace")) for piece in one.pieces]
    stay, leave = pair
    done = run(
        MarginPolicy.of(CUES, stay=stay, leave=leave),
        text,
        small=ScriptedEngine(text, margin=margin),
        answer_role="relay",
        limits=Limits(max_tokens=len(one.ids), max_segment_tokens=limit, max_repeats=0),
    ).generation
    assert done.text == text
    wrote = [segment.role for segment in done.segments for _ in range(segment.tokens)]
    cut = Observed(
        one,
        Scores(one.id, "s", tuple(margins), (None,) * len(margins)),
        sentences(one, CUES, None, max_segment_tokens=limit),
    )
    mine = ["large"] * len(one.ids)
    for first, end in played(cut, pair, limit=limit):
        mine[first:end] = ["small"] * (end - first)
    assert mine == wrote


@settings(deadline=None)
@given(TEXTS, st.lists(st.sampled_from(MARGINS), min_size=1, max_size=30))
def test_without_effective_thresholds_it_is_the_plain_replay(
    text: str, margins: list[float | None]
) -> None:
    made = tables([seen(text, margins)])
    plain = replay(made, CUES)
    got = play(made, ends(made), CUES, Thresholds(NEVER, ALWAYS))
    assert got.runs == plain.runs
    assert got.handoffs.tolist() == plain.handoffs.tolist()
    assert got.utilization == plain.utilization


# By hand.

SURE = 0.9


def small(
    stay: float, leave: float, *parts: tuple[Sequence[Cue], Sequence[float | None]], limit: int = 9
) -> list[tuple[int, int]]:
    return played(observe(*parts), (stay, leave), limit=limit)


@pytest.mark.parametrize(
    ("stay", "leave", "expected"),
    [
        (NEVER, 0.0, [(1, 4), (9, 11)]),
        (0.8, 0.0, [(1, 6), (9, 11)]),  # on into the second sentence, not into the third
        (0.7, 0.0, [(1, 10)]),  # to the limit, and the second cue was the small model's
        (NEVER, 0.3, [(1, 3), (9, 11)]),
        (NEVER, 0.2, [(1, 4), (9, 11)]),  # as high as the threshold is high enough
        (0.8, 0.3, [(1, 3), (9, 11)]),
        (0.8, 0.75, [(1, 3), (9, 9)]),  # nothing of the last one
    ],
)
def test_where_segments_end(stay: float, leave: float, expected: list[tuple[int, int]]) -> None:
    got = small(
        stay,
        leave,
        ([("So", 0)], [0.1, 0.8, 0.9, 0.2]),
        ([], [0.8, 0.9]),
        ([("Now", 2)], [0.7, 0.1, 0.1, 0.4, 0.9]),
    )
    assert got == expected


def test_a_token_without_a_margin_neither_goes_on_nor_hands_back() -> None:
    parts: tuple[tuple[list[Cue], list[float | None]], ...] = (
        ([("So", 0)], [0.1, None, 0.9]),
        ([], [None, 0.9]),
    )
    assert small(0.5, 0.5, *parts) == [(1, 3)]
    assert small(0.5, 0.5, parts[0], ([], [SURE, SURE]), *parts[1:]) == [(1, 5)]


def test_a_weak_region_is_cut_and_its_cue_fires_again_behind_it() -> None:
    weak = [SURE, SURE, 0.1, 0.1, 0.1, SURE, SURE]
    assert small(NEVER, 0.5, ([("So", 0)], weak)) == [(1, 2)]
    again = seen("So we add So we add.", [SURE, SURE, 0.1, SURE, SURE, SURE, SURE])
    assert played(again, (NEVER, 0.5)) == [(1, 2), (4, 7)]
    assert played(again, (NEVER, 0.0)) == [(1, 7)]


def test_unsure_at_once_it_waits_for_the_end_of_the_sentence() -> None:
    cues = [("So", 0), ("Now", 2)]
    assert small(NEVER, 0.5, (cues, [SURE, 0.1, SURE, SURE, SURE]), (cues, [SURE] * 5)) == [
        (1, 1),
        (6, 10),
    ]


def test_a_segment_that_keeps_nothing_is_two_hand_offs_and_no_token() -> None:
    made = tables([observe(([("So", 0)], [SURE, 0.1, SURE, SURE]))])
    got = play(made, ends(made), ["So"], Thresholds(NEVER, 0.5))
    assert got.runs == ((Run(0, 1, 1),),)
    assert (got.large.tolist(), got.handoffs.tolist()) == ([4], [2])


SENTENCES = st.lists(
    st.tuples(
        st.sampled_from(([], [("So", 0)], [("So", 0), ("Now", 3)], [("Now", 2)])),
        st.lists(st.sampled_from(MARGINS), min_size=5, max_size=9),
    ),
    min_size=1,
    max_size=6,
)


@given(SENTENCES, st.sampled_from((0.0, 0.1, 0.3)), st.sampled_from((0.3, 0.5, 0.9)))
def test_who_leaves_earlier_writes_less(
    parts: list[tuple[list[Cue], list[float | None]]], low: float, high: float
) -> None:
    def tokens(leave: float) -> set[int]:
        return {
            token
            for first, end in played(observe(*parts), (NEVER, leave))
            for token in range(first, end)
        }

    assert tokens(high) <= tokens(low)


# The choice.


def pair_of_sentences() -> list[Observed]:
    """Three sure tokens behind the cue; two more, then four of which the scorer is wrong."""
    parts: tuple[tuple[list[Cue], list[float | None]], ...] = (
        ([("So", 0)], [0.5, 0.9, 0.9, 0.9]),
        ([], [0.9, 0.9, 0.1, 0.1, 0.1, 0.1]),
    )
    wrong = [place for place in range(40) if place % 10 >= 6]
    return [observe(*parts * 4, wrong=wrong, id=f"t{number}") for number in range(3)]


def test_thresholds_reach_a_target_by_hand() -> None:
    made = tables(pair_of_sentences())
    grid = Grid(made, ends(made), ("So",))
    # The delegated margins are all 0.9, sentences start at 0.5 (without the first one) or 0.9.
    options = {each.thresholds.leave: each for each in grid.options(0.5)}
    assert sorted(options) == [0.0, 0.9]
    assert options[0.0].thresholds == (NEVER, 0.0)
    assert options[0.0].utilization == pytest.approx(0.7)
    assert options[0.0].agreement == 1.0
    assert options[0.0].margin == pytest.approx(0.9)
    assert options[0.9].thresholds == (0.9, 0.9)
    assert options[0.9].utilization == pytest.approx(0.5)
    assert best(list(options.values()), 0.5) == options[0.9]
    # Whoever goes on to the end of the second sentence is wrong there.
    far = {each.thresholds.leave: each for each in grid.options(0.1)}
    assert far[0.0].thresholds.stay == 0.9
    assert far[0.0].utilization == pytest.approx(0.1)
    assert far[0.0].agreement == pytest.approx(5 / 9)


def test_no_sentence_is_begun_whose_first_token_would_be_handed_back() -> None:
    """Openings of 0.5 are almost all there are; handing back below 0.9 none of them goes on."""
    parts: list[tuple[list[Cue], list[float | None]]] = [([("So", 0)], [0.5, 0.9, 0.9])] * 12
    made = tables([observe(*parts, ([], [0.95] * 3))])
    options = Grid(made, ends(made), ("So",)).options(12 / 39)
    assert {each.thresholds for each in options} == {(NEVER, 0.0), (NEVER, 0.9)}


def option(utilization: float, agreement: float | None, margin: float | None) -> Option:
    return Option(("So",), Thresholds(0.5, 0.1), utilization, agreement, margin)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([(0.70, 0.8, 0.9), (0.719, 0.9, 0.8)], 1),  # agreement first
        ([(0.70, 0.8, 0.9), (0.721, 0.9, 0.8)], 0),  # too far off
        ([(0.75, 0.8, 0.9), (0.769, 0.9, 0.8), (0.62, 1.0, 1.0)], 1),  # beyond the nearest
        ([(0.70, None, 0.8), (0.71, None, 0.9)], 1),  # margins where agreement is not known
        ([(0.70, None, None), (0.71, 0.1, 0.1)], 1),
        ([(0.71, 0.8, 0.9), (0.70, 0.8, 0.9), (0.69, 0.8, 0.9)], 1),  # the nearest of equals
    ],
)
def test_the_best_of_some_thresholds(
    options: list[tuple[float, float | None, float | None]], chosen: int
) -> None:
    made = [option(*each) for each in options]
    assert best(made, 0.7) is made[chosen]


@settings(deadline=None, max_examples=30)
@given(SENTENCES, st.floats(0.0, 1.0))
def test_whatever_the_margins_the_thresholds_are_a_policys(
    parts: list[tuple[list[Cue], list[float | None]]], target: float
) -> None:
    made = tables([observe(*parts)])
    grid = Grid(made, ends(made), ("Now", "So"))
    for each in grid.options(target):
        stay, leave = each.thresholds
        MarginPolicy.of(each.cues, stay=stay, leave=leave)
        assert (round(stay, 4), round(leave, 4)) == (stay, leave)
        assert each.utilization == grid.play(each.thresholds).utilization
