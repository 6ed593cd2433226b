"""The page on metrics: its table is what the server exports, its queries are about that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from relaygen.serve._watch import OUTCOMES

from .metering import Family, Page, check_expression, had, page, values
from .support import pair, post

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
RULES = re.findall(r"expr: (?:>-\n)?(.*?)\n +for:", BLOCKS[1], re.DOTALL)
QUERIES = re.findall(r"^\| [^`|]* \| `(.*relaygen_.*)` \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def found() -> Page:
    served = pair()
    post(served)
    return page(served)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose first heading this is."""
    table = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0]
    lines = (line.strip("| ").split("|") for line in table.splitlines()[2:])
    return [[cell.strip() for cell in line] for line in lines]


def ticked(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_the_table_is_what_is_exported(found: Page) -> None:
    listed: dict[str, Family] = {}
    for name, kind, labels, meaning in rows("metric"):
        (metric,) = ticked(name)
        listed[metric] = Family(metric, kind, f"{meaning}.", frozenset(ticked(labels)))
    exported: Mapping[str, Family] = found.families
    assert listed == exported
    assert list(listed) == list(exported)


def test_every_label_is_explained_with_its_values(found: Page) -> None:
    told = {label: ticked(text) for name, text in rows("label") for label in ticked(name)}
    about = found.families["relaygen_info"].labels
    used = {label for each in found.families.values() for label in each.labels}
    assert set(told) == used - (about - {"policy", "level"})
    assert told["outcome"] == set(OUTCOMES)
    known = had(found)
    for label in ("direction", "kind", "phase", "source", "state", "stage"):
        assert told[label] == known[label], label
    assert told["model"] == known["model"] | {"inserted"}


def test_there_are_five_alerts_and_some_queries() -> None:
    assert len(RULES) == BLOCKS[1].count("- alert:") == 5
    assert len(QUERIES) == 3


@pytest.mark.parametrize("expression", [*RULES, *QUERIES])
def test_a_query_is_about_series_that_are_there(expression: str, found: Page) -> None:
    check_expression(expression, found.families)
    known = had(found)
    known["policy"] |= {"margin"}
    for label, value in values(expression):
        assert value in known[label], expression


def test_files_that_it_names_are_there() -> None:
    for name in re.findall(r"\]\(([\w/.]+)\)", PAGE):
        assert (DOCS / name).is_file()
    for name in re.findall(r"(benchmarks/\w+\.py)", PAGE):
        assert (DOCS.parent / name).is_file()
