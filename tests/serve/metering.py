"""Shared by the tests of metrics: what the page says, read by Prometheus' own parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from .support import Pair, get


@dataclass(frozen=True)
class Family:
    """One metric as Prometheus names it: a counter's name ends in ``_total``."""

    name: str
    type: str
    help: str
    labels: frozenset[str]


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True)
class Page:
    """A page of ``/metrics``."""

    series: Series
    families: Mapping[str, Family]

    def value(self, name: str, **labels: str) -> float:
        """Of one series; 0 where it is not there."""
        return self.series.get((f"relaygen_{name}", frozenset(labels.items())), 0.0)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of a name with these labels among theirs."""
        return sum(self.of(name, **labels).values())

    def of(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """The series of a name with these labels: the values of the others -> value; none is 0."""
        wanted = frozenset(labels.items())
        return {
            tuple(value for _, value in sorted(found - wanted)): number
            for (each, found), number in self.series.items()
            if each == f"relaygen_{name}" and wanted <= found and number
        }


def read(text: str) -> Page:
    """A page, parsed."""
    series: Series = {}
    families: dict[str, Family] = {}
    for metric in text_string_to_metric_families(text):
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = frozenset(label for sample in metric.samples for label in sample.labels)
        families[name] = Family(name, metric.type, metric.documentation, labels - {"le"})
        for sample in metric.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in series
            series[key] = sample.value
    return Page(series, families)


def scrape(served: Pair) -> Page:
    """The page of an application."""
    response = get(served, "/metrics")
    assert response.status_code == 200
    return read(response.text)


def page(served: Pair) -> Page:
    """The same without asking for it over HTTP."""
    return read(served.service.metrics.page().decode())


# PromQL.

_SELECTOR = re.compile(r"(relaygen_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')
_GROUPED = re.compile(r"by \(([^)]*)\)")
TARGET = {"job", "instance"}
"""Prometheus' own labels."""

Matchers = list[tuple[str, str, str]]


def selectors(expression: str) -> list[tuple[str, Matchers]]:
    """The series that an expression names, each with its (label, operator, value)."""
    return [(name, _MATCHER.findall(inside)) for name, inside in _SELECTOR.findall(expression)]


def groups(expression: str) -> list[set[str]]:
    """The labels of each ``by``."""
    return [{label.strip() for label in found.split(",")} for found in _GROUPED.findall(expression)]


def family(name: str, exported: Mapping[str, Family]) -> Family:
    """The metric of a series' name; a histogram is named by one of its parts."""
    found = exported.get(name) or exported.get(re.sub(r"_(bucket|sum|count)$", "", name))
    assert found is not None, name
    assert (found.name == name) is (found.type != "histogram"), name
    return found


def check_expression(expression: str, exported: Mapping[str, Family]) -> None:
    """Its parentheses are closed, its metrics are there and have the labels that it uses."""
    for pair_ in ("()", "{}", "[]"):
        assert expression.count(pair_[0]) == expression.count(pair_[1]), expression
    labels: set[str] = set()
    found = selectors(expression)
    assert found, expression
    for name, matchers in found:
        metric = family(name, exported)
        labels |= metric.labels | ({"le"} if name.endswith("_bucket") else set())
        assert {label for label, _, _ in matchers} <= metric.labels | TARGET, expression
    for group in groups(expression):
        assert group <= labels | TARGET, expression


def values(expression: str) -> list[tuple[str, str]]:
    """Labels and the values that an expression asks for, alternatives apart."""
    return [
        (label, each)
        for _, matchers in selectors(expression)
        for label, operator, value in matchers
        if operator != "!=" and not value.startswith("$")
        for each in value.split("|")
    ]


def had(found: Page) -> dict[str, set[str]]:
    """Each label and the values that it has on a page."""
    made: dict[str, set[str]] = {}
    for _, labels in found.series:
        for label, value in labels:
            made.setdefault(label, set()).add(value)
    return made
