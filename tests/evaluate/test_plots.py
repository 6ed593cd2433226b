"""Plots: what is drawn of what, what is left out and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from relaygen._jsonable import usage_dict
from relaygen._results import ModelUsage, Usage
from relaygen.costs import Costs
from relaygen.evaluate._arms import parse_arms
from relaygen.evaluate._drawing import ACCENT, AMBER, CARD, PLAIN, TEXT, Plot, label
from relaygen.evaluate._plots import (
    answer_stage,
    latency,
    measured,
    outcomes,
    pairs,
    pareto,
    plots,
    speedups,
)
from relaygen.evaluate._results import Result
from relaygen.evaluate._summarize import summarize
from relaygen.evaluate._summary import Agreement, Summary

from .answering import items
from .test_summary import ARMS, result

NAMES = ("large", "small", "relay")
SHARES = {"large": (100, 0), "small": (0, 100), "relay": (60, 40)}
SECONDS = {"large": 4.0, "small": 1.0, "relay": 3.0}


def answers(n: int = 4, **known: object) -> list[Result]:
    return [
        result(k, name, name == "large" or k > 0, tokens=SHARES[name], **{
            "seconds": SECONDS[name], **known,
        })
        for k in range(n)
        for name in NAMES
    ]  # fmt: skip


def summary(results: Sequence[Result], n: int = 4) -> Summary:
    return summarize(items(n), results, parse_arms(NAMES))


def by_arm(results: Sequence[Result]) -> dict[str, list[Result]]:
    return {name: [one for one in results if one.arm == name] for name in NAMES}


@pytest.fixture(scope="module")
def drawn() -> dict[str, Plot]:
    results = answers()
    return {plot.name: plot for plot in plots(summary(results), results)}


def words(plot: Plot) -> list[str]:
    return [
        "".join(each.itertext()).strip()
        for each in ElementTree.fromstring(plot.svg).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_all_are_drawn_as_text_and_as_images(drawn: dict[str, Plot]) -> None:
    assert list(drawn) == ["latency", "speedup", "outcomes", "pairs"]
    for plot in drawn.values():
        assert plot.png.startswith(b"\x89PNG")
        assert len(plot.svg) < 40_000
        assert {"large", "small", "relay"} & set(words(plot))
    assert set(NAMES) <= set(words(drawn["latency"]))
    assert {"4 of 4", "3 of 4"} <= set(words(drawn["outcomes"]))


def test_files_have_no_date_and_are_the_same_each_time(drawn: dict[str, Plot]) -> None:
    again = latency(summary(answers()))
    assert again == drawn["latency"]
    assert "metadata" not in again.svg
    assert b"Software" not in again.png


def test_inside_a_page_it_takes_the_pages_colours(drawn: dict[str, Plot]) -> None:
    ids: list[str] = []
    for plot in drawn.values():
        inline = plot.inline
        assert inline.startswith("<svg ")
        assert inline.endswith("</svg>")
        assert not re.search(r"https?:|xmlns|xlink|<\?xml|<!DOCTYPE|metadata", inline)
        assert TEXT not in inline
        assert CARD not in inline
        assert "var(--text)" in inline
        ids += re.findall(r'\bid="([^"]*)"', inline)
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', inline)) <= set(ids)
    assert len(set(ids)) == len(ids)


def test_no_time_is_drawn_of_answers_that_had_company() -> None:
    results = answers(at_once=4)
    told = {plot.name: plot for plot in plots(summary(results), results)}
    for name in ("latency", "speedup", "pairs"):
        assert (told[name].svg, told[name].png) == ("", b"")
        assert told[name].told == "Answers were generated beside each other, so no times are shown."
    assert told["outcomes"].svg
    assert measured(by_arm(results)) is None


def test_without_gold_answers_no_accuracy_is_drawn() -> None:
    results = [one for one in answers() if one.arm == "large"]
    results = [result(k, name, None) for k in range(2) for name in ("large", "relay")]
    one = summary(results)
    assert latency(one).told == "No question has a gold answer, so none is right."
    assert outcomes(by_arm(results)).svg == ""


def test_one_arm_is_compared_with_nothing() -> None:
    results = [result(k, "relay") for k in range(3)]
    one = summarize(items(3), results, parse_arms(["relay"]))
    assert latency(one).svg == ""
    assert speedups(one, None).told == "There are no times of the arm large and another one."
    assert pairs(one, {"relay": results}).svg == ""


def test_the_ceiling_is_a_line_where_costs_are_known() -> None:
    one = summary(answers())
    with_line = speedups(one, Costs(10.0, 2.5))
    without = speedups(one, None)
    assert "at every share" in with_line.told
    assert "at every share" not in without.told
    assert len(with_line.svg) > len(without.svg)


def test_names_cover_no_other_dot() -> None:
    def where(others: list[tuple[float, float]]) -> tuple[float, float]:
        figure = Figure(figsize=(5, 5), dpi=144)
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        label(figure, axes, [(0.5, 0.5)], ["relay"], others)
        (text,) = (each for each in axes.texts if each.get_text() == "relay")
        figure.draw_without_rendering()
        box = text.get_window_extent()
        for place in others:
            x, y = axes.transData.transform(place)
            assert not (box.x0 < x < box.x1 and box.y0 < y < box.y1)
        return float(box.x0), float(box.y0)

    free = where([])
    assert where([(0.58, 0.54)]) != free
    assert where([(0.1, 0.1)]) == free


def test_costs_come_from_plain_arms_only() -> None:
    def one(name: str, seconds: float) -> Result:
        large = ModelUsage(tokens=10, decode_seconds=seconds, decoded=10)
        small = ModelUsage(tokens=10, decode_seconds=0.1, decoded=10)
        return result(0, name, usage=usage_dict(Usage(large=large, small=small)))

    found = measured({"relay": [one("relay", 1.0)], "relay+draft": [one("relay+draft", 0.1)]})
    assert found is not None
    assert (found.large_decode, found.small_decode) == pytest.approx((100.0, 10.0))
    assert measured({"relay+draft": [one("relay+draft", 0.1)], "what?": []}) is None


def test_runs_that_differ_are_grey_and_missing_ones_blank() -> None:
    results = [result(0, "large", True), result(0, "large", False, run=1)]
    results += [result(k, "relay", k == 1) for k in range(2)]
    plot = outcomes(by_arm(results))
    assert "grey where its runs differ" in plot.told
    assert {"0.5 of 1", "1 of 2"} <= set(words(plot))
    bars = re.findall(r"fill: (#\w+)", plot.svg)
    assert [bars.count(color) for color in (ACCENT, AMBER, PLAIN)] == [1, 1, 1]


def test_the_answer_stage() -> None:
    told = words(answer_stage(Agreement(20, 17, 18, 15)))
    assert {"17 of 20", "18 of 20", "15 of 20", "same answer", "small right"} <= set(told)
    assert "large right" not in words(answer_stage(Agreement(20, 17, None, None)))
    assert answer_stage(Agreement(0, 0, None, None)).svg == ""


def test_it_is_drawn_where_it_was_asked_for() -> None:
    results = [result(0, name) for name in ("large", "answer-stage")]
    one = summarize(items(1), results, parse_arms(["large", "answer-stage"]))
    assert plots(one, results)[-1].name == "answer-stage"


def test_names_are_text_and_no_formulas() -> None:
    long = "margin:0.900000000000001:0.300000000001"
    results = [result(0, name) for name in (long, "large")]
    one = summarize(items(1), results, parse_arms([long, "large"]))
    assert f"{long[:23]}…" in words(latency(one))


places = st.tuples(st.integers(0, 5).map(float), st.integers(0, 5).map(float))


@settings(deadline=None)
@given(st.lists(places, min_size=1, max_size=12))
def test_the_front_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    front = [points[number] for number in pareto(points)]
    assert front == sorted(front)
    for x, y in points:
        beaten = any((a <= x and b >= y) and (a, b) != (x, y) for a, b in points)
        assert ((x, y) in front) is not beaten
    assert len(set(front)) == len(front)


def test_arms_of_the_summary_are_those_of_the_plots() -> None:
    results = [one for one in answers() if one.arm != "small"]
    one = summarize(items(4), results, ARMS)
    assert [row for row in words(pairs(one, by_arm(results))) if row == "relay"] == ["relay"]
