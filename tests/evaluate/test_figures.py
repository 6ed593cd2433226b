"""Every figure of a small evaluation, worked out by hand, in all four files of its report."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from relaygen._files import append
from relaygen._jsonable import usage_dict
from relaygen._results import ModelUsage, Usage
from relaygen.evaluate._job import Evaluation
from relaygen.evaluate._results import Part, Result

from ..pages import read
from .answering import evaluation

ARMS = "large,small,relay,random"

# Large model, small model, seconds, first answer, right, hand-offs, discarded; question by question.
TOLD: dict[str, list[tuple[int, int, float, float, bool, int, int] | None]] = {
    "large": [
        (100, 0, 2.0, 0.5, True, 0, 0),  # 20 ms per token
        (200, 0, 5.0, 0.5, True, 0, 0),  # 25
        (100, 0, 3.0, 0.7, False, 0, 0),  # 30
        (100, 0, 4.0, 0.7, True, 0, 0),  # 40
    ],
    "small": [
        (0, 100, 0.5, 0.1, False, 0, 0),  # 5
        (0, 200, 1.0, 0.2, True, 0, 0),  # 5
        None,  # not there; of the last question one that failed
    ],
    "relay": [
        (60, 40, 1.0, 0.2, True, 2, 1),  # 10
        (120, 80, 4.0, 0.2, False, 4, 2),  # 20
        (50, 50, 2.0, 0.4, False, 2, 0),  # 20
        (50, 50, 3.0, 0.4, True, 2, 3),  # 30
    ],
    "random": [
        (53, 47, 2.0, 0.2, True, 2, 0),  # 20
        (53, 47, 2.0, 0.2, True, 2, 0),
        (53, 47, 4.0, 0.2, True, 2, 0),  # 40
        (53, 47, 4.0, 0.2, False, 2, 0),
    ],
}

ACCURACY = [  # Wilson's intervals of 3, 1 of 2, 2 and 3 of 4
    ("large", "4", "3 of 4", "75.0 %", "30.1 … 95.4"),
    ("small", "2 of 4", "1 of 2", "50.0 %", "9.5 … 90.5"),
    ("relay", "4", "2 of 4", "50.0 %", "15.0 … 85.0"),
    ("random", "4", "3 of 4", "75.0 %", "30.1 … 95.4"),
]
TOKENS = [
    ("large", "1.000", "0", "500", "0"),
    ("small", "0.000", "0", "300", "0"),
    ("relay", "0.560", "10", "500", "6"),  # 280 of 500
    ("random", "0.530", "8", "400", "0"),
]
TIMES = [  # ceilings: 20 / (20 u + 5 (1 - u))
    ("large", "27.5", "3.5", "0.6", "1.00×", "–", "–"),
    ("small", "5.0", "0.8", "0.2", "5.50×", "–", "–"),
    ("relay", "20.0", "2.5", "0.3", "1.38×", "1.49×", "92.1 %"),
    ("random", "30.0", "3.0", "0.2", "0.92×", "1.54×", "59.4 %"),
]
PAIRED = [  # of 1 more right and 1 more wrong answer beside those there are; steps of 1 / (n + 2)
    ("small", "large", "2", "-50.0", "-100.0 … +50.0", "0 / 1"),
    ("relay", "large", "4", "-25.0", "-66.7 … +33.3", "0 / 1"),
    ("random", "large", "4", "+0.0", "-66.7 … +66.7", "1 / 1"),
    ("large", "random", "4", "+0.0", "-66.7 … +66.7", "1 / 1"),
    ("small", "random", "2", "-50.0", "-100.0 … +50.0", "0 / 1"),
    ("relay", "random", "4", "-25.0", "-83.3 … +50.0", "1 / 2"),
]
RATIOS = [
    ("small", "large", "2", "4.50×"),  # 20/5, 25/5
    ("relay", "large", "4", "1.42×"),  # 20/10, 25/20, 30/20, 40/30: between 4/3 and 3/2
    ("random", "large", "4", "1.00×"),  # 20/20, 25/20, 30/40, 40/40
]
REMARKS = [
    "not complete: 2 answers are missing; 1 failed",
    "fewer than 30 questions: read the intervals as a rough guide",
    "answers cut at the token limit: relay 1",
    "random delegates 47.0%, relay 44.0%: more than 2 points apart",
]


def result(arm: str, item: int, order: int) -> Result:
    found = TOLD[arm][item] if item < len(TOLD[arm]) else None
    if found is None:
        return Result(f"q{item}", 0, arm, order, 1, 1, error="gone")
    large, small, seconds, first, right, handoffs, discarded = found
    usage = Usage(
        large=ModelUsage(
            tokens=large, discarded=discarded, decoded=large, decode_seconds=0.020 * large
        ),
        small=ModelUsage(tokens=small, decoded=small, decode_seconds=0.005 * small),
        handoffs=handoffs,
        seconds=seconds,
        first_answer_seconds=first,
    )
    return Result(
        *(f"q{item}", 0, arm, order, 1, 1, "\\boxed{1}", ""),
        "length" if (arm, item) == ("relay", 1) else "stop",
        right,
        "1",
        usage_dict(usage),
        (Part("large", "answer", "start", "", "\\boxed{1}", large, seconds),),
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    one = evaluation(tmp_path_factory.mktemp("figures"), ARMS, n=4)
    one.claim()
    order = 0
    for item in range(4):
        for arm in TOLD:
            if (arm, item) != ("small", 2):
                append(one.folder.results, result(arm, item, order).to_json())
                order += 1
    one.report()
    return one


def cells(rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [" | ".join(row) for row in rows]


def test_the_markdown(done: Evaluation) -> None:
    page = done.folder.markdown.read_text("utf-8")
    lines = [line.strip("| ") for line in page.splitlines()]
    for row in cells(ACCURACY) + cells(TOKENS) + cells(TIMES):
        assert row in lines, row
    verdicts = [line.split(" | ") for line in lines if "not decided" in line]
    assert [(*row[:2], *row[3:]) for row in verdicts] == PAIRED
    assert {row[2] for row in verdicts} == {"not decided at n = 4", "not decided at n = 2"}
    ratios = page[page.index("## Milliseconds per token") :].splitlines()[4:7]
    assert [tuple(line.strip("| ").split(" | "))[:4] for line in ratios] == RATIOS
    assert page.splitlines()[-4:] == [f"- {remark}" for remark in REMARKS]


def test_the_page(done: Evaluation) -> None:
    page = re.sub(r"<svg.*?</svg>", "", done.folder.page.read_text("utf-8"), flags=re.DOTALL)
    told = read(page)
    for row in ACCURACY + TOKENS + TIMES:
        assert f" {' '.join(row)} " in told, row
    for arm, _, n, points, interval, counts in PAIRED:
        shown = points.replace("-", "−").replace("+0.0", "0.0")
        better, worse = counts.split(" / ")
        wanted = (
            f"{arm} not decided at n = {n} {shown} points, {interval.replace('-', '−')} "
            f"n = {n}; better in {better}, worse in {worse}"
        )
        assert wanted in told, wanted
    for remark in REMARKS:
        assert remark in told
    assert re.findall(r'data-s="([^"]*)"', page) == ["1011", "1101", "0-01", "1e10"]
    assert "relay right: 1 · 60 % by the large model, 2 hand-offs, 100 tokens, 1.0 s" in told
    assert "4 hand-offs, 200 tokens, 4.0 s, ended by length" in told


def test_the_table(done: Evaluation) -> None:
    rows = list(csv.DictReader(io.StringIO(done.folder.table.read_text("utf-8"))))
    assert [row["order"] for row in rows] == [str(number) for number in range(15)]
    for row in rows:
        place = int(row["item"][1:])
        known = TOLD[row["arm"]][place] if place < len(TOLD[row["arm"]]) else None
        if known is None:
            assert (row["error"], row["correct"], row["seconds"]) == ("gone", "", "")
            continue
        large, small, seconds, first, right, handoffs, discarded = known
        assert (row["large_tokens"], row["small_tokens"]) == (str(large), str(small))
        assert (row["correct"], row["handoffs"]) == (str(right), str(handoffs))
        assert row["discarded_tokens"] == str(discarded)
        assert (float(row["seconds"]), float(row["first_answer_seconds"])) == (seconds, first)
        assert float(row["ms_per_token"]) == pytest.approx(1000 * seconds / (large + small))
        assert float(row["utilization"]) == pytest.approx(large / (large + small))


def test_the_summary(done: Evaluation) -> None:
    told: dict[str, Any] = json.loads(done.folder.summary.read_text("utf-8"))
    assert (told["questions"], told["runs"], told["complete"]) == (4, 1, False)
    arms = {arm["name"]: arm for arm in told["arms"]}
    relay = arms["relay"]
    assert (relay["accuracy"], relay["correct"], relay["graded"]) == (0.5, 2, 4)
    assert (relay["low"], relay["high"]) == pytest.approx((0.15004, 0.84996), abs=1e-4)
    assert (relay["utilization"], relay["small_share"]) == pytest.approx((0.56, 0.44))
    assert (relay["ms_per_token"], relay["seconds"]) == pytest.approx((20.0, 2.5))
    assert relay["speedup"] == pytest.approx(1.375)
    assert relay["ceiling"] == pytest.approx(20 / 13.4)
    assert relay["reached"] == pytest.approx(1.375 * 13.4 / 20)
    assert relay["finishes"] == {"stop": 3, "length": 1}
    assert [(arm["answers"], arm["errors"]) for arm in told["arms"]] == [
        *((4, 0), (2, 1), (4, 0), (4, 0)),
    ]
    pairs = [(one["arm"], one["against"], one["difference"]) for one in told["paired"]]
    assert pairs == [(row[0], row[1], float(row[3])) for row in PAIRED]
    ratios = {one["arm"]: one["ratio"] for one in told["ratios"]}
    assert ratios == pytest.approx({"small": 4.5, "relay": 17 / 12, "random": 1.0})
