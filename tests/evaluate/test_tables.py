from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from relaygen.evaluate._arms import parse_arms
from relaygen.evaluate._summarize import summarize
from relaygen.evaluate._summary import Summary
from relaygen.evaluate._tables import (
    NOTHING,
    accuracy_table,
    markdown,
    paired_table,
    ratios_table,
    remarks,
    results_csv,
    times_table,
    tokens_table,
)

from .answering import items
from .test_summary import ARMS, result


def summary(n: int = 2) -> Summary:
    results = [result(k, name, name == "large") for k in range(2) for name in ("large", "relay")]
    return summarize(items(n), results, parse_arms(["large", "relay"]))


def test_columns_without_a_word_are_left_out() -> None:
    table = accuracy_table(summary())
    assert table.headings == ("arm", "answers", "right", "accuracy", "95 %")
    assert table.rows[1][:4] == ("relay", "2", "0 of 2", "0.0 %")
    table = tokens_table(summary())
    assert table.headings == ("arm", "utilization", "hand-offs", "tokens", "discarded")
    assert table.rows[1] == ("relay", "0.600", "4", "200", "0")
    table = times_table(summary())
    assert table.rows[1] == ("relay", "20.0", "2.0", "0.5", "1.00×", "1.43×", "70.0 %")


def test_no_times_at_all_where_none_may_be_quoted() -> None:
    results = [result(0, "large", at_once=2)]
    beside = summarize(items(1), results, ARMS)
    assert times_table(beside).rows == ()
    assert "Times" not in markdown(beside, [])


def test_a_partial_run_is_called_so() -> None:
    told = summary(3)
    assert accuracy_table(told).rows[0][1] == "2 of 3"
    assert "not complete: 2 answers are missing" in remarks(told)
    assert remarks(summary())[0].startswith("fewer than 30 questions")


def test_remarks_say_why_there_are_no_times_and_what_was_cut() -> None:
    results = [result(0, "large", at_once=4, finish="length"), result(0, "small", error="gone")]
    told = remarks(summarize(items(1), results, ARMS))
    assert "no times: answers were generated beside each other" in told
    assert "answers cut at the token limit: large 1" in told
    assert any("3 answers are missing; 1 failed" in remark for remark in told)


def test_arms_that_had_company_are_named_where_others_are_timed() -> None:
    results = [result(0, "large"), result(0, "small", at_once=2), result(0, "relay", at_once=2)]
    told = summarize(items(1), results, ARMS)
    assert "no times of small, relay: answers were generated beside each other" in remarks(told)
    assert [row[0] for row in times_table(told).rows] == ["large"]


def test_unequal_shares_are_told() -> None:
    arms = parse_arms(["relay", "random"])
    relay = result(0, "relay", tokens=(600, 400))
    for small, apart in ((420, False), (380, False), (421, True), (379, True)):
        random = result(0, "random", tokens=(1000 - small, small))
        told = [
            one for one in remarks(summarize(items(1), [relay, random], arms)) if "apart" in one
        ]
        share = f"{small / 10:.1f}%"
        wanted = [f"random delegates {share}, relay 40.0%: more than 2 points apart"]
        assert told == wanted * apart


def test_a_stage_that_nobody_reached_is_no_agreement() -> None:
    arms = parse_arms(["large", "answer-stage"])
    told = summarize(items(1), [result(0, "large")], arms)
    assert "no thinking was answered by both models" in remarks(told)


def test_verdicts_stand_beside_their_intervals() -> None:
    (row,) = paired_table(summary()).rows
    assert row[:5] == ("relay", "large", "not decided at n = 2", "2", "-100.0")
    assert row[6] == "0 / 2"
    (row,) = ratios_table(summary()).rows
    assert row == ("relay", "large", "2", "1.00×", "1.00 … 1.00")


def test_the_page_has_every_table() -> None:
    page = markdown(summary(), [("data", "numbers | more")])
    assert page.startswith("# Evaluation: 2 questions\n")
    assert "- data: numbers | more" in page
    tables = [line for line in page.splitlines() if line.startswith("| ---")]
    assert len(tables) == 5
    assert "| relay | large | not decided at n = 2 | 2 | -100.0 |" in page
    assert page.endswith("\n")
    assert markdown(replace(summary(), questions=1), []).startswith("# Evaluation: 1 question\n")
    beside = replace(summary(), ratios=(), runs=2)
    assert "Milliseconds" not in markdown(beside, [])
    assert markdown(beside, []).startswith("# Evaluation: 2 questions, 2 runs\n")


def test_results_as_a_table() -> None:
    results = [
        result(0, "relay", extracted='a "b", c'),
        result(1, "relay", at_once=2),
        result(2, "relay", error="gone"),
    ]
    rows = list(csv.DictReader(io.StringIO(results_csv(results))))
    assert [row["item"] for row in rows] == ["q0", "q1", "q2"]
    assert (rows[0]["extracted"], rows[0]["correct"]) == ('a "b", c', "True")
    assert (rows[0]["large_tokens"], rows[0]["small_tokens"]) == ("60", "40")
    assert [row["seconds"] for row in rows] == ["2.0", "", ""]
    assert rows[2]["error"] == "gone"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1 (a)", "'+1 (a)"),
        ("@SUM(1)", "'@SUM(1)"),
        ("-x", "'-x"),
        ("\t=1", "'\t=1"),
        ("-1,234.5", "-1,234.5"),
        ("+7", "+7"),
        ("x=1", "x=1"),
        ("", ""),
    ],
)
def test_no_spreadsheet_takes_an_answer_for_a_formula(said: str, kept: str) -> None:
    one = replace(result(0, "relay", extracted=said), item=said)
    (row,) = csv.DictReader(io.StringIO(results_csv([one])))
    assert (row["extracted"], row["item"]) == (kept, kept)


def test_nothing_is_a_dash() -> None:
    told = summarize(items(1), [result(0, "large")], ARMS)
    assert accuracy_table(told).rows[1] == ("small", "0 of 1", NOTHING, NOTHING, NOTHING)
    assert tokens_table(told).rows[1][1] == NOTHING
