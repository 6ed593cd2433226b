"""The report: what it says, what it draws, and that it needs nothing but itself."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen._page import grouped, percent, probability, signed
from relaygen.calibrate import Firing, Scores, Sentence, Trace, sentences
from relaygen.calibrate._check import Check, LevelCheck, Speed
from relaygen.calibrate._effects import Observed
from relaygen.calibrate._examples import delegations, examples, shade, visible
from relaygen.calibrate._figures import MOST_ROWS, ROW, WIDTH, compared, curve, forest, ticks
from relaygen.calibrate._outcome import Calibration, CueResult, Level, Point, Steered
from relaygen.calibrate._report import Subject, comparison, reason, render
from relaygen.calibrate._select import calibrate
from relaygen.costs import Costs
from relaygen.engines.scripted import ScriptedTokenizer
from relaygen.profiles import load

from ..pages import read
from .synthetic import EASY, PLAIN, observed

NAN = math.nan
CANDIDATES = (*EASY, *PLAIN, "Thus,", "Hmm", "<b>&\"'")


def cue(name: str, effect: float = 0.1, **more: object) -> CueResult:
    made = CueResult(
        name, 30, 12, 400, 0.05, 0.9, 0.8, effect, effect - 0.05, effect + 0.05, 0.001, 0.01,
        0.005, True, effect > 0, effect > 0,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def untested(name: str, occurrences: int = 2) -> CueResult:
    return CueResult(
        name, occurrences, occurrences, 9, 0.001, 0.9, 0.8, NAN, NAN, NAN, NAN, NAN, NAN, False, False
    )  # fmt: skip


@pytest.fixture(scope="module")
def subject() -> Subject:
    seen = observed(24, CANDIDATES)
    result = calibrate(seen, seed=1, candidates=CANDIDATES)
    profile = replace(load("embedded"), name="<mine>")
    return Subject(profile, result, seen, [("seed", "1"), ("odd", "<i>")], 'relaygen run "…"')


@pytest.fixture(scope="module")
def html(subject: Subject) -> str:
    return render(subject)


def test_it_is_one_well_formed_file_without_requests(html: str) -> None:
    read(html)
    assert not re.search(r"https?://|@import|url\(|fetch\(|<script src", html)
    assert "prefers-color-scheme: dark" in html


def test_what_users_and_models_wrote_is_escaped(html: str) -> None:
    assert "<b>&" not in html
    assert "<mine>" not in html
    assert "<i>" not in html.replace("<i></i>", "")
    assert "&lt;b&gt;&amp;&#34;&#39;" in html
    assert "&lt;mine&gt;" in html


def test_the_same_subject_gives_the_same_bytes(subject: Subject, html: str) -> None:
    assert render(subject) == html


def test_the_headlines_are_the_calibrations_figures(subject: Subject, html: str) -> None:
    text = read(html)
    result = subject.calibration
    careful = result.levels[0]
    chosen = [one for one in result.cues if one.selected]
    tested = [one for one in result.cues if one.testable]
    assert chosen
    assert f"{len(chosen)} of {len(tested)} tested cues selected" in text
    assert f"{percent(careful.utilization)} of the tokens stay with the large model" in text
    assert "tokens scored in 24 traces" in text
    for level in result.levels:
        assert f"{level.name}, {percent(level.utilization)}" in text
    for one in result.cues:
        assert html.count(f"<td>{one.margin:.3f}</td>") >= (one.occurrences > 0)
    assert "Unproven" not in text
    assert "relaygen run" in text


def test_unproven_is_said_aloud(subject: Subject) -> None:
    result = replace(subject.calibration, unproven=True, fallback=True, more_traces=31)
    text = read(render(replace(subject, calibration=result)))
    assert "Unproven. No cue was shown" in text
    assert "About 31 more traces would likely" in text
    text = read(render(replace(subject, calibration=replace(result, fallback=False))))
    assert "The choice rests on cues that no test on these traces supports." in text


LEVEL_CHECK = LevelCheck(
    ("careful", "balanced"), "relay", 40, 0.761, 0.782, 0.751, 0.813, 2.14, -1.02, 5.3, 60.1, 57.4,
    0, 0, Speed(1.21, 1.25, 0.97, 1.02),
)  # fmt: skip
CHECK = Check((LEVEL_CHECK,), 40, Costs(126.04, 55.0, 29.0, 15.0), 75.2)


def test_predicted_and_measured_stand_side_by_side(subject: Subject, html: str) -> None:
    assert "; measured" not in read(html)
    assert "Predicted and measured" not in html
    text = read(render(replace(subject, check=CHECK)))
    assert "(predicted; measured 78 %, level careful)" in text
    assert "answered 40 questions that the calibration did not use" in text
    assert (
        "careful, balanced 40 76.1 % 78.2 % 75.1 … 81.3 % +2.1 −1.0 … +5.3 60.1 → 57.4 21.8 %"
    ) in text.replace("careful , balanced", "careful, balanced")
    assert "These speed-ups over it are predictions from costs that were measured here" in text
    assert "1.21 × 1.25 × 0.97 × 1.02 ×" in text
    assert "126.0 ms per token with the large model, 55.0 ms with the small one" in text
    assert "75.2 ms lost" in text
    assert "ended at the token limit" not in text


def test_a_doubtful_check_says_why(subject: Subject) -> None:
    doubtful = replace(LEVEL_CHECK, names=("fast",), policy="margin", cut=3, fallbacks=2)
    text = read(render(replace(subject, check=replace(CHECK, levels=(doubtful,)))))
    assert "fast: 3 of 40 answers ended at the token limit." in text
    assert "In 2 of 40 answers an engine failed" in text
    assert "fast margin 40" in text
    assert "; measured" not in text  # the headline is of another level


def test_a_check_of_next_to_nothing(subject: Subject) -> None:
    bare = replace(
        LEVEL_CHECK, n=1, predicted=NAN, low=NAN, high=NAN, difference=NAN, difference_low=NAN,
        difference_high=NAN, handoffs_predicted=NAN, speed=None,
    )  # fmt: skip
    page = render(replace(subject, check=Check((bare,), 1, None, 0.0)))
    text = read(page)
    assert "answered 1 question that" in text
    assert "so no speed-up is predicted" in text
    assert "nan" not in text.split()
    drawn = page.partition("<h2>Predicted and measured")[2].partition("<h2>")[0]
    assert "<svg" in drawn
    assert "nan" not in drawn


def test_predicted_and_measured_are_drawn_to_scale() -> None:
    other = replace(LEVEL_CHECK, predicted=0.70, utilization=0.72, low=NAN, high=NAN)
    made = compared([LEVEL_CHECK, other])
    assert made is not None
    one, two = made.rows
    assert one.predicted is not None
    assert two.predicted is not None
    scale = (one.at - two.at) / (0.782 - 0.72)
    assert one.at - one.predicted == pytest.approx(scale * 0.021, abs=0.2)
    assert two.at - two.predicted == pytest.approx(scale * 0.02, abs=0.2)
    assert one.high - one.low == pytest.approx(scale * 0.062, abs=0.3)
    assert two.low == two.at == two.high
    for tick in made.ticks:
        value = float(tick.text.removesuffix(" %")) / 100
        assert one.at - tick.at == pytest.approx(scale * (0.782 - value), abs=0.3)
    assert one.y < two.y < made.bottom < made.height
    assert compared([]) is None


def test_both_policies_of_a_level_stand_side_by_side(subject: Subject) -> None:
    careful = Level("careful", ("Thus",), 0.81, 20.5, 0.91, False, agreement=0.885)
    own = Steered(("Thus", "So"), 0.8, 0.3, 0.7012, 31.5, 0.93, 0.942, True)
    best = Steered(("Thus",), 1.01, 0.0, 0.6612, 12.5, 0.94, NAN, False)
    fast = Level(
        "fast", ("Thus", "So"), 0.62, 40.5, 0.87, True, target=0.7, agreement=0.83, own=own,
        best=best,
    )  # fmt: skip
    result = replace(subject.calibration, levels=(careful, fast))
    page = render(replace(subject, calibration=result))
    text = read(page.partition('<table class="levels">')[2].partition("</table>")[0])
    assert text.partition("cues ")[2] == (
        "careful relay ● 81.0 % 20.5 0.91 88.5 % Thus "
        "fast relay ● unproven 62.0 % misses 70 % 40.5 0.87 83.0 % Thus So "
        "margin unproven 70.1 % 31.5 0.93 94.2 % 0.80, 0.30 "
        "margin 66.1 % 12.5 0.94 – 1.01, 0.00 those of careful"
    )
    assert "Effects are relative to other sentences of the same traces" in read(page)


def test_it_can_be_made_of_next_to_nothing(subject: Subject) -> None:
    nothing = Calibration((untested("x"),), NAN, "paper", True, None, (), (), None, 0)
    one = subject.observed[0]
    bare = Observed(one.trace, one.scores, ())
    text = read(render(replace(subject, calibration=nothing, observed=[bare])))
    assert "No cue occurred often enough to be tested." in text
    assert "0 cues taken untested; 1 more were too rare to test" in text
    assert "nan" not in text.split()


def test_what_could_not_be_measured_is_not_told(subject: Subject) -> None:
    held = subject.calibration.held_out
    assert held is not None
    told = "what is delegated has a margin"
    assert told in read(render(subject))
    hidden = replace(held, effect=NAN, low=NAN, high=NAN)
    calibration = replace(subject.calibration, held_out=hidden)
    assert told not in read(render(replace(subject, calibration=calibration)))


def test_it_can_be_made_without_traces(subject: Subject) -> None:
    nothing = Calibration((untested("x"),), NAN, "paper", True, None, (), (), None, 0)
    read(render(replace(subject, calibration=nothing, observed=[])))


def test_the_forest_is_drawn_to_scale() -> None:
    made = forest([cue("b", -0.1), cue("a", 0.1), cue("c", 0.3), untested("d")])
    assert made is not None
    assert [row.cue.name for row in made.rows] == ["c", "a", "b"]
    assert {round(b.y - a.y, 6) for a, b in pairwise(made.rows)} == {ROW}
    c, a, b = made.rows
    assert (a.at - made.zero) == pytest.approx(made.zero - b.at, abs=0.2)
    assert (c.at - made.zero) == pytest.approx(3 * (a.at - made.zero), abs=0.4)
    assert (c.high - c.at) == pytest.approx(c.at - c.low, abs=0.2)
    assert made.zero in [tick.at for tick in made.ticks if tick.text == "0"]
    assert made.ticks[0].at <= b.low
    assert made.ticks[-1].at >= c.high
    assert forest([untested("d")]) is None


def test_a_long_forest_keeps_the_selected_ones() -> None:
    weak = [cue(f"n{number}", 0.2, selected=False) for number in range(60)]
    made = forest([*weak, cue("chosen", 0.01)])
    assert made is not None
    assert len(made.rows) == MOST_ROWS
    assert made.rows[-1].cue.name == "chosen"
    assert made.hidden == 61 - MOST_ROWS


def test_the_curve_is_drawn_to_scale() -> None:
    points = [Point(0.9, 0.9, ("a",)), Point(0.7, 0.8, ("a", "b")), Point(0.5, 0.7, ())]
    levels = [
        Level("careful", ("a",), 0.9, 1.0, 0.9, False),
        Level("balanced", ("a", "b"), 0.895, 1.0, 0.9, False),
    ]
    made = curve(points, levels, 0.7)
    assert made is not None
    (x1, y1, _), (x2, y2, _), (x3, y3, _) = made.dots  # from low utilization to high
    assert x1 < x2 < x3
    assert x3 - x2 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert y1 == made.overall
    marks = {mark.level.name: mark for mark in made.marks}
    assert (marks["careful"].x, marks["careful"].y) == (x3, y3)
    sides = {(mark.right, mark.label_y) for mark in made.marks}
    assert len(sides) == 2
    assert curve(points[:1], levels, 0.7) is None
    assert curve([Point(0.5, NAN, ()), *points[:1]], levels, 0.7) is None
    assert curve(points[:2], (), NAN) is None
    assert curve(points[:2], (), 0.7) is not None


near = st.tuples(st.floats(0.4, 1.0), st.floats(0.7, 0.95))


@settings(max_examples=30, deadline=None)
@given(st.lists(near, min_size=2, max_size=12), st.lists(near, min_size=3, max_size=3))
def test_names_of_levels_cover_no_other_level(
    line: list[tuple[float, float]], placed: list[tuple[float, float]]
) -> None:
    points = [Point(*place, ("a",)) for place in line]
    names = ("careful", "balanced", "fast")
    levels = [
        Level(name, ("a",), utilization, 1.0, margin, False)
        for name, (utilization, margin) in zip(names, placed, strict=True)
    ]
    made = curve(points, levels, 0.8)
    assert made is not None
    boxes = []
    for mark in made.marks:
        wide = 7.5 * len(f"{mark.level.name}, 100 %")
        left = mark.x + 10 if mark.right else mark.x - 10 - wide
        boxes.append((left, mark.label_y - 11, left + wide, mark.label_y + 3))
        assert 0 < mark.label_y - 11 < mark.label_y + 3 < made.bottom
        assert 0 < left < left + wide < WIDTH
    for one, two in combinations(boxes, 2):
        assert not (one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3])
    for box, mark in product(boxes, made.marks):
        assert not (box[0] < mark.x < box[2] and box[1] < mark.y < box[3])


@given(st.floats(-5, 5), st.floats(1e-6, 5))
def test_ticks_surround_and_are_few(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert found[0] <= low + 1e-8
    assert found[-1] >= low + span - 1e-8
    assert 2 <= len(found) <= 10
    steps = [b - a for a, b in pairwise(found)]
    assert max(steps) == pytest.approx(min(steps), rel=1e-3)


def test_reasons() -> None:
    assert reason(cue("a")) == "selected"
    assert reason(cue("a", proven=False)) == "selected, unproven"
    assert reason(cue("a", -0.1)) == "no easier than elsewhere"
    assert reason(cue("a", 0.1, selected=False, holm=0.2)) == "difference not certain"
    assert reason(cue("a", 0.01, selected=False)) == "difference too small"
    assert reason(untested("a")) == "too rare to test"
    assert reason(untested("a", 0)) == "never written"


def test_the_papers_lists_beside_ours() -> None:
    rows = {row.name: row for row in comparison([cue("Thus"), cue("mine"), cue("Now", -0.1)])}
    assert rows["Thus"].paper == (True, True)
    assert rows["mine"].paper == (False, False)
    assert (rows["Now"].reason, rows["Oh,"].reason) == ("no easier than elsewhere", "no candidate")
    assert "So" in rows  # the paper's has a space behind it
    qwen, r1 = (
        {c.strip() for c in load(n).cues} for n in ("qwen3-32b+1.7b", "r1-distill-32b+1.5b")
    )
    assert set(rows) == qwen | r1 | {"Thus", "mine"}
    assert [row.name for row in comparison([cue("Thus"), cue("mine")])][:2] == ["Thus", "mine"]


def one(text: str, margins: dict[int, float] | None = None, **more: object) -> Observed:
    tokens = ScriptedTokenizer()
    ids = tokens.encode(text)
    pieces = tuple(map(tokens.data, ids))
    trace = Trace("t", str(more.get("question", "q")), (1,), ids, pieces, "stop", 1, "m", 0)
    given = margins or {}
    scores = Scores(
        "t",
        "s",
        tuple(given.get(at, 0.95) for at in range(len(ids))),
        tuple(0x100 + 0x20 if at in given else id for at, id in enumerate(ids)),
    )
    return Observed(trace, scores, sentences(trace, ("Thus", "So", "Thus,"), None))


def test_examples_tell_token_by_token() -> None:
    seen = one("We add. Thus, 2 is ü. So on.", {1: 0.1})
    (made,) = examples([seen], ("Thus", "So"))
    assert "".join(token.text for token in made.tokens) == seen.trace.text
    assert [token.text for token in made.tokens if token.cue] == [" Thus", " So"]
    assert "".join(token.text for token in made.tokens if token.delegated) == ", 2 is ü. on."
    assert made.handoffs == 2
    unsure = made.tokens[1]
    assert (unsure.margin, unsure.shade, unsure.other) == (0.1, 9, "#288")
    assert {token.other for token in made.tokens if token is not unsure} == {""}
    assert made.share == pytest.approx(
        sum(end - first for first, end, _ in delegations(seen, ("Thus", "So")))
        / len(seen.trace.ids)
    )


def test_typical_examples_of_different_questions() -> None:
    texts = [
        "Plain.",
        "Thus a. B.",
        "Thus a. Bb b b b b b b b.",
        "Thus a b c d e f g. B.",
        "Thus a. B.",
    ]
    seen = [
        one(text, question="same" if number in (1, 4) else str(number))
        for number, text in enumerate(texts)
    ]
    made = examples(seen, ("Thus",))
    assert len(made) == 3
    assert made[0].question == "same"
    assert len({example.question for example in made}) == 3
    assert all(example.handoffs for example in made)
    assert [e.handoffs for e in examples(seen[:1], ("Thus",))] == [0]
    assert examples([], ("Thus",)) == ()


def test_a_long_trace_is_cut() -> None:
    (made,) = examples([one("a " * 900)], ())
    assert (len(made.tokens), made.length) == (600, 901)


@given(st.none() | st.floats(0.0, 1.0))
def test_shades(margin: float | None) -> None:
    assert shade(margin) in range(10)
    if margin is not None and margin >= 0.9001:
        assert shade(margin) == 0


def test_figures_for_people() -> None:
    assert (percent(0.256), percent(NAN), percent(1.0, 1)) == ("26 %", "–", "100.0 %")
    assert (signed(0.1), signed(-0.0301), signed(0.0001), signed(NAN)) == (
        "+0.100",
        "−0.030",
        "0.000",
        "–",
    )
    assert (probability(0.0001), probability(0.04), probability(NAN)) == ("< 0.001", "0.040", "–")
    assert grouped(1234567) == "1 234 567".replace(" ", "\N{NARROW NO-BREAK SPACE}")
    assert (visible(b" a\n", 3), visible(None, 3)) == ("␣a⏎", "#3")


def test_sentences_without_firings_delegate_nothing() -> None:
    seen = one("Thus a.")
    assert delegations(replace(seen, sentences=(Sentence(0, 3, ()),)), ("Thus",)) == ()


def test_a_cue_that_fires_again_behind_the_longest_segment_is_told_twice() -> None:
    seen = one("Thus a b c d e f g.")
    again = Sentence(
        0, 9, (Firing("Thus", 0, 1, 3, True),), repeats=(Firing("Thus", 5, 6, 9, True),)
    )
    told = delegations(replace(seen, sentences=(again,)), ("Thus",))
    assert told == ((1, 3, "Thus"), (6, 9, "Thus"))
