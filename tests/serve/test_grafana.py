"""The Grafana dashboard: valid, without overlaps, and about metrics that are there."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from .metering import Family, check_expression, family, groups, had, page, selectors, values
from .support import pair, post

FILE = Path(__file__).parents[2] / "docs" / "grafana" / "relaygen.json"
BOARD: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
PANELS: list[dict[str, Any]] = BOARD["panels"]
SHOWN = [panel for panel in PANELS if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in SHOWN for target in panel["targets"]]

NOT_SHOWN = {
    "relaygen_hint_stops_total",  # for who works on the hints
}
"""Metrics that the dashboard leaves out on purpose."""


@pytest.fixture(scope="module")
def exported() -> dict[str, Family]:
    served = pair()
    post(served)
    return dict(page(served).families)


# Grafana's side.


def test_the_file_is_one_that_grafana_10_and_11_import() -> None:
    assert BOARD["schemaVersion"] == 39
    assert (BOARD["id"], BOARD["uid"], BOARD["title"]) == (None, "relaygen", "RelayGen")
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "job", "instance"}
    source = variables["datasource"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    for name in ("job", "instance"):
        assert variables[name]["query"]["query"] == variables[name]["definition"]


def test_everything_asks_the_chosen_data_source() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in SHOWN:
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])
    variables = [each for each in BOARD["templating"]["list"] if each["type"] == "query"]
    assert all(variable["datasource"] == chosen for variable in variables)


def test_panels_have_a_place_each_and_no_two_the_same() -> None:
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
        assert min(place["w"], place["h"]) >= 1
    for one, two in combinations(PANELS, 2):
        a, b = one["gridPos"], two["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above, (one["title"], two["title"])
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in PANELS)
    covered = sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in PANELS)
    assert covered == 24 * height  # nor a hole


def test_panels_can_be_told_apart() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in SHOWN:
        assert panel["description"].endswith(".")
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0
        if panel["type"] != "table":
            assert panel["fieldConfig"]["defaults"]["unit"]
        if len(references) > 1:
            assert len({target["legendFormat"] for target in panel["targets"]}) > 1


# Prometheus' side.


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_about_series_that_are_there(
    expression: str, exported: dict[str, Family]
) -> None:
    check_expression(expression, exported)
    for _, matchers in selectors(expression):
        assert matchers[:2] == [("job", "=~", "$job"), ("instance", "=~", "$instance")]


def test_counters_are_shown_as_rates_and_gauges_are_not(exported: dict[str, Family]) -> None:
    for expression in EXPRESSIONS:
        for name, _ in selectors(expression):
            counted = family(name, exported).type != "gauge"
            rate = re.search(
                rf"(rate|increase)\({name}\{{[^}}]*\}}\[\$__rate_interval\]\)", expression
            )
            assert (rate is not None) is counted, expression


def test_quantiles_are_of_buckets_by_their_bound() -> None:
    for expression in EXPRESSIONS:
        quantiles = expression.count("histogram_quantile(")
        assert expression.count("_bucket{") == quantiles
        assert len(re.findall(r"sum by \(le\b", expression)) == quantiles


def test_every_metric_is_shown_or_left_out_on_purpose(exported: dict[str, Family]) -> None:
    shown = {family(name, exported).name for text in EXPRESSIONS for name, _ in selectors(text)}
    assert shown | NOT_SHOWN == set(exported)
    assert not shown & NOT_SHOWN


def test_legends_name_labels_that_are_there(exported: dict[str, Family]) -> None:
    for panel in SHOWN:
        for target in panel["targets"]:
            kept = {label for group in groups(target["expr"]) for label in group} - {"le"}
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            if panel["type"] != "table":
                assert used == kept, target["expr"]


def test_values_that_are_asked_for_are_values_that_labels_have() -> None:
    served = pair()
    post(served)
    known = had(page(served))
    for expression in EXPRESSIONS:
        for label, value in values(expression):
            assert value in known[label], expression
