"""The report: what it says, that what was written is only text, and that it needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from relaygen.evaluate._arms import parse_arms
from relaygen.evaluate._drawing import Plot
from relaygen.evaluate._paired import NO_WORSE, WORSE, Paired
from relaygen.evaluate._questions import Item
from relaygen.evaluate._report import Subject, render, verdicts
from relaygen.evaluate._results import Part, Result
from relaygen.evaluate._summarize import summarize
from relaygen.evaluate._tables import titled

from ..pages import Checked, read
from .answering import items
from .test_summary import result

ARMS = ("large", "relay", "random:0.3")
EVIL = "</script></style><script>alert(1)</script><b>&\"' {{ 7 }}"
SVG = Plot(
    "latency", "Accuracy against time", "How to read it.", '<svg><text id="a">relay</text></svg>'
)
OUT = Plot("pairs", "Speed-up of each question", "There are no times.")


def texts(cue: str = "Thus") -> tuple[Part, ...]:
    return (
        Part("large", "reasoning", "start", "", "We think. ", 3, 0.1),
        Part("small", "reasoning", "sentence", cue, "Thus 2 < 3. ", 5, 0.1),
        Part("large", "answer", "end", "", "It is 4.", 4, 0.1),
    )


def subject(n: int = 3, *, at_once: int = 1, found: Sequence[Result] | None = None) -> Subject:
    results = found or [
        result(k, name, name == "large" or k > 0, segments=texts(), at_once=at_once, extracted="4")
        for k in range(n)
        for name in ARMS
    ]
    summary = summarize(items(n), results, parse_arms(ARMS))
    facts = [("data", "numbers"), ("odd", EVIL)]
    return Subject(summary, items(n), results, (SVG, OUT), facts)


@pytest.fixture(scope="module")
def html() -> str:
    return render(subject())


def test_it_is_one_well_formed_file_without_requests(html: str) -> None:
    read(html)
    assert not re.search(r"https?://|@import|url\(|fetch\(|<script src", html)
    assert "prefers-color-scheme: dark" in html
    assert html.startswith("<!doctype html>")


def test_the_same_subject_gives_the_same_bytes(html: str) -> None:
    assert render(subject()) == html


def test_verdicts_come_first(html: str) -> None:
    told = read(html)
    order = [told.index(f" {word} ") for word in ("Verdicts", "Accuracy", "Tokens", "Questions")]
    assert order == sorted(order)
    assert "relay not decided at n = 3" in told
    assert "−33.3 points," in told
    assert "better in 0, worse in 1" in told
    assert "against random:0.3" in told
    assert "fewer than 30 questions" in told


def test_the_figures_are_those_of_the_tables(html: str) -> None:
    told = read(html)
    for words in ("2 of 3", "66.7 %", "0.600", "hand-offs", "ms/token", "answer after", "1.43×"):
        assert words in told, words
    assert "reached" in told


def test_verdicts_stand_in_no_table_of_numbers_too(html: str) -> None:
    titles = [title for title, _ in titled(subject().summary)]
    left_out = [title for title in titles if f"<h2>{title}</h2>" not in html]
    assert left_out == ["Accuracy, paired by question"]


def test_no_times_where_answers_had_company() -> None:
    told = read(render(subject(at_once=4)))
    assert "None: answers were generated beside each other" in told
    assert "ms/token" not in told
    assert "1.43×" not in told
    assert " 2.0 s" not in told


def test_times_are_there_or_not() -> None:
    results = [result(0, "large"), result(0, "relay", at_once=2)]
    told = read(render(subject(1, found=results)))
    assert "ms/token" in told
    assert "Times None" not in told
    assert "no times of relay: answers were" in told


def test_plots_are_drawn_or_their_absence_is_explained(html: str) -> None:
    assert '<text id="latency-a">relay</text>' in html
    assert "How to read it." in html
    assert "Left out. There are no times." in html


def test_texts_have_their_writers_and_the_cue_behind_each_handoff(html: str) -> None:
    assert '<span class="small">Thus 2 &lt; 3. </span>' in html
    assert 'aria-label="small model at the cue “Thus”, 5 tokens"' in html
    assert 'aria-label="large model, 3 tokens"' in html
    assert 'aria-label="large model end, 4 tokens"' in html
    assert html.count("<em>answer</em>") == 9


def test_whatever_models_and_users_wrote_is_text() -> None:
    evil = tuple(replace_text(part) for part in texts(EVIL))
    item = Item(EVIL, EVIL, EVIL, EVIL, "math")
    results = [
        replace(result(0, "large", False, segments=evil, extracted=EVIL), item=EVIL),
        replace(result(0, "relay", error=EVIL), item=EVIL),
        replace(result(0, "random:0.3", None, answer=EVIL), item=EVIL),
    ]
    summary = summarize([item], results, parse_arms(ARMS))
    page = render(Subject(summary, [item], results, (), [(EVIL, EVIL)]))
    told = read(page)
    assert page.count("<script>") == page.count("</script>") == 1
    assert page.count("</style>") == 1
    assert "<b>&" not in page
    assert told.count("<script>alert(1)</script>") >= 7
    assert "{{ 7 }}" in told


def replace_text(part: Part) -> Part:
    return part._replace(text=EVIL)


class Questions(Checked):
    """The data that the filter works on."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str | None, str | None]] = []
        self.options: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        own = dict(attrs)
        if tag == "details" and own["class"] == "q card":
            self.found.append((own["data-s"], own["data-d"]))
        if tag == "option":
            self.options.append(own["value"] or "")


def questions(page: str) -> Questions:
    checked = Questions()
    checked.feed(page)
    return checked


def test_the_filter_has_what_it_needs(html: str) -> None:
    found = questions(html)
    assert found.found == [("100", "1"), ("111", "0"), ("111", "0")]
    assert found.options[:5] == ["all", "differ", "every", "nobody", "lacking"]
    assert {"is:0:1", "is:1:0m", "beside:1:0m:1", "beside:2:1:0m"} <= set(found.options)
    assert "beside:0:0m:1" not in found.options
    assert "const arms = 3, base = 0;" in html


def test_without_large_nothing_is_beside_it() -> None:
    results = [result(0, "small")]
    summary = summarize(items(1), results, parse_arms(["small"]))
    page = render(Subject(summary, items(1), results, (), []))
    assert not [one for one in questions(page).options if one.startswith("beside")]
    assert "base = -1;" in page
    assert "None: no question was graded for an arm and for large" in read(page)


def test_without_gold_answers_there_is_nothing_right() -> None:
    results = [result(0, name, None, extracted=name) for name in ARMS]
    page = render(subject(1, found=results))
    found = questions(page)
    assert found.found == [("uuu", "1")]
    assert found.options == ["all", "differ", "lacking"]


def test_a_similarity_of_words_is_called_so(html: str) -> None:
    results = [result(0, name, None, answer="blue") for name in ARMS]
    assert read(render(subject(1, found=results))).count("lexical similarity") == 2
    assert "lexical" not in html


def test_a_hundred_questions_stay_small() -> None:
    part = "Let me <think> about what this means for the 3 & 4 again. " * 2
    segments = tuple(
        Part("small" if k % 2 else "large", "reasoning", "cue", "Thus", part, 28, 0.1)
        for k in range(20)
    )
    results = [
        result(k, name, segments=segments)
        for k in range(100)
        for name in ("large", "small", "relay", "random:0.3", "one-shot")
    ]
    arms = parse_arms(["large", "small", "relay", "random:0.3", "one-shot"])
    page = render(Subject(summarize(items(100), results, arms), items(100), results, (), []))
    assert len(page.encode()) < 3_000_000
    assert "Long texts" not in page


def test_very_long_texts_lose_their_middles() -> None:
    segments = (Part("large", "reasoning", "start", "", "long " * 500_000, 9, 0.1),)
    page = render(subject(1, found=[result(0, "large", segments=segments)]))
    assert len(page) < 1_700_000
    assert "characters are not shown" in page
    assert "Long texts are shown without their middles" in page


def test_intervals_are_drawn_on_one_scale() -> None:
    pairs = [
        Paired("a", "large", 50, 0.0, -1.5, 1.5, 1, 1, NO_WORSE),
        Paired("b", "large", 50, -20.0, -40.0, -1.0, 1, 9, WORSE),
        Paired("c", "large", 50, 1.0, -5.0, 6.0, 1, 1, "not decided at n = 50"),
    ]
    drawn = verdicts(pairs)
    assert [one.tone for one in drawn] == ["good", "bad", "open"]
    assert all(0 <= one.low <= one.at <= one.high <= 100 for one in drawn)
    assert {one.zero for one in drawn} == {50.0}
    assert drawn[0].margin < drawn[0].low < drawn[1].high < 50.0
    assert drawn[1].high < drawn[0].zero
    assert verdicts([]) == ()
