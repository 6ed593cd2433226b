"""Tables of the pages name everything that the code has, and nothing else."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from relaygen.costs import Costs, ceiling
from relaygen.engines import EngineInfo
from relaygen.evaluate import _folder, _tables
from relaygen.evaluate._arms import OWN, Arm
from relaygen.evaluate._paired import NO_WORSE, WORSE, verdict
from relaygen.evaluate._plots import plots
from relaygen.evaluate._presets import PRESETS
from relaygen.evaluate._statistics import mean_interval
from relaygen.evaluate._summary import Agreement, ArmSummary, Summary
from relaygen.policies import Policy, Session
from relaygen.profiles import POLICIES

from .docs import ROOT, spans, text_of

DOCS = ROOT / "docs"


def cells(page: str, column: int = 0) -> set[str]:
    """The code in one column of all tables of a page."""
    rows = [line for line in text_of(DOCS / page).splitlines() if line.startswith("| ")]
    return {code for row in rows for code in re.findall(r"`([^`]+)`", row.split(" | ")[column])}


def section(page: str, heading: str) -> str:
    return text_of(DOCS / page).split(f"\n## {heading}\n")[1].split("\n## ")[0]


def first_words(page: str, heading: str) -> set[str]:
    """Plain words in the first column of a section's tables."""
    rows = [line for line in section(page, heading).splitlines() if line.startswith("| ")]
    return {word for row in rows for word in row[2:].split(" | ")[0].split(", ")}


def test_every_policy_is_on_the_page() -> None:
    table = text_of(DOCS / "policies.md").split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)", row)}
    assert named == set(POLICIES)


def test_everything_of_a_policy_is_described() -> None:
    named = {code.partition("(")[0] for code in cells("policies.md")}
    for protocol in (Policy, Session):
        for part in dir(protocol):
            assert part.startswith("_") or part in named, part


@pytest.mark.parametrize("page", ["engines.md", "policies.md"])
def test_files_that_a_page_names_are_there(page: str) -> None:
    source = ROOT / "src" / "relaygen"
    for code in spans(text_of(DOCS / page)):
        if re.fullmatch(r"(?:policies|engines)/\w+\.py", code):
            assert (source / code).is_file(), code
        module = re.fullmatch(r"relaygen((?:\.[a-z_]+)+)", code)
        if module:
            path = source / module[1][1:].replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").is_file(), code


def test_fields_of_an_engine_are_there() -> None:
    fields = {field.name for field in dataclasses.fields(EngineInfo)}
    named = {code.split(".")[1] for code in cells("engines.md") if code.startswith("EngineInfo.")}
    assert named == {"vocabulary", "text_only", "stop_ids"} <= fields


def test_presets_and_arms_of_an_evaluation() -> None:
    page = cells("evaluate.md")
    assert set(PRESETS) <= page
    for name, preset in PRESETS.items():
        assert f"| `{name}` | {preset.repository}" in text_of(DOCS / "evaluate.md")
    arms = {"large", "small", "relay", "margin:0.9:0.3", "one-shot", "entropy:step", "random:0.3"}
    arms |= {"relay@fast", "large+draft", "large+ngram", "relay+small-ngram", *OWN}
    assert arms <= page
    for arm in arms:
        assert Arm.of(arm).name == arm


def test_files_of_an_evaluation() -> None:
    folder = _folder.Folder(Path("x"))
    names = {
        value.name + ("" if value.suffix else "/")
        for name in dir(folder)
        if not name.startswith("_") and isinstance(value := getattr(folder, name), Path)
    } - {"x/"}
    assert names <= cells("evaluate.md")
    free = [name for name in _folder.FREE if name not in ("engines", "shares")]
    for name in free:  # the others are found out, not asked for
        assert f"`--{name}`" in section("evaluate.md", "Stopping and going on")


def arm() -> ArmSummary:
    """One of which everything is known."""
    values = {field.name: 1 for field in dataclasses.fields(ArmSummary)}
    return ArmSummary(**{**values, "name": "large", "finishes": {}})  # type: ignore[arg-type]


def test_every_column_of_the_report() -> None:
    full = Summary(1, 1, True, (arm(),), (), ())
    for heading, table, count in (
        ("Verdicts", _tables.paired_table(full), 7),
        ("Accuracy", _tables.accuracy_table(full), 8),
        ("Tokens", _tables.tokens_table(full), 6),
        ("Times", _tables.times_table(full), 7),
    ):
        assert len(table.headings) == count
        assert {"arm", *first_words("report.md", heading)} >= set(table.headings), heading
        named = first_words("report.md", heading) - {"column", "verdict", "---"}
        others = {NO_WORSE, WORSE, "not decided at n = …", "against"}
        assert named <= set(table.headings) | others, heading


def test_columns_of_the_csv() -> None:
    header = _tables.results_csv([]).strip().split(",")
    named = re.findall(r"`(\w+)`", section("report.md", "results.csv"))
    assert set(header) <= set(named)
    assert set(named) <= {*header, "stop", "length", "repetition"}


def test_verdicts_are_those_of_the_code() -> None:
    table = section("report.md", "Verdicts")
    for words, (low, high) in {
        f"| {NO_WORSE} | lies above −2 |": (-1.9, -0.1),
        f"| {WORSE} | lies below 0 |": (-2.1, -0.1),
    }.items():
        assert words in table
        assert verdict(low, high, 9) in words
    assert "| not decided at n = … |" in table
    assert verdict(-2.1, 0.1, 9) == "not decided at n = 9"


def test_questions_that_are_enough() -> None:
    words = "from about *n* = 9,600·*d* on: 960 questions"
    assert words in section("report.md", "Verdicts")
    changed = 96 // 2  # of 960, a tenth
    values = [1.0] * changed + [-1.0] * changed + [0.0] * (960 - 2 * changed)
    low, high = mean_interval(values)
    assert (100 * low, 100 * high) == pytest.approx((-2, 2), abs=0.1)


def test_plots_are_those_of_the_code() -> None:
    summary = Summary(0, 1, True, (), (), (), Agreement(0, 0, None, None))
    rows = section("report.md", "Plots")
    for plot in plots(summary, []):
        assert f"| {plot.title} |" in rows
    assert rows.count("\n|") - 2 == len(plots(summary, []))


def test_ceilings_of_the_page() -> None:
    rows = re.findall(
        r"^\| (0\.\d) \| ([\d.]+) \| ([\d.]+) \|$", section("limits.md", "The ceiling"), re.M
    )
    assert len(rows) == 4
    for share, free, fifth in rows:
        assert f"{ceiling(Costs(40, 0), float(share)):.2f}" == free
        assert f"{ceiling(Costs(40, 8), float(share)):.2f}" == fifth
    half = f"the ceiling at *u* = 0.7 is {ceiling(Costs(40, 20), 0.7):.2f}"
    assert half in section("limits.md", "When not to use it")
