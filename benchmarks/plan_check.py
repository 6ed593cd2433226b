"""What `relaygen plan` predicts from one evaluation, beside what another one measured.

    relaygen eval --data costs.jsonl    --arms large,large+ngram,relay,relay+ngram --out costs
    relaygen eval --data measured.jsonl --arms large,large+ngram,relay,relay+ngram --out measured
    python benchmarks/plan_check.py costs/results.jsonl measured/results.jsonl --devices 1

Both with concurrency 1 on a machine that does nothing else. What the parts cost comes from the
first, how the text is shared (utilization, hand-offs, lengths) from the second; no time of the
second is an input. Ratios are of milliseconds per token, over all questions, to the arm ``large``;
intervals are 95 % bootstrap intervals over the questions, paired.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from scipy.stats import bootstrap

from relaygen.cli import main as relaygen

Times = Mapping[str, tuple[float, int]]
"""Seconds and tokens of one arm, by question and run."""


@dataclass(frozen=True)
class Row:
    arm: str
    median: float  # of an answer's milliseconds per token
    seconds: float  # median of an answer's
    ratio: float
    low: float
    high: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.ratio - 1


def times(path: Path) -> dict[str, Times]:
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for line in path.read_text("utf-8").splitlines():
        result = json.loads(line)
        if result["error"] is None and result["at_once"] == 1:
            usage = result["usage"]
            key = f"{result['item']}/{result['run']}"
            found.setdefault(result["arm"], {})[key] = (
                usage["seconds"],
                usage["completion_tokens"],
            )
    return dict(found)


def predicted(costs: Path, measured: Path, arm: str, devices: int) -> float:
    """Milliseconds per token over those of the large model alone."""
    command = ["plan", "--costs", str(costs), "--trace", str(measured), "--arm", arm]
    result = CliRunner().invoke(relaygen, [*command, "--devices", str(devices), "--json"])
    if result.exit_code:
        raise SystemExit(f"relaygen {' '.join(command)}: {result.output}")
    forecast: dict[str, Any] = json.loads(result.output)
    return 1 / float(forecast["speedup"])


def ratio_of(arm: Times, large: Times) -> tuple[float, float, float]:
    """Over all questions that both answered, with its interval."""
    keys = sorted(arm.keys() & large.keys())
    columns = [
        np.array([which[key][at] for key in keys]) for which in (arm, large) for at in (0, 1)
    ]

    def pooled(s: Any, t: Any, base_s: Any, base_t: Any, *, axis: int = -1) -> Any:
        return (s.sum(axis) / t.sum(axis)) / (base_s.sum(axis) / base_t.sum(axis))

    found = bootstrap(columns, pooled, paired=True, method="percentile", rng=0)
    interval = found.confidence_interval
    return float(pooled(*columns)), float(interval.low), float(interval.high)


def table(rows: Sequence[Row], constant: float) -> str:
    lines = [
        "| arm | ms per token, median | seconds, median | ratio to large | 95 % | plan | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row.arm} | {row.median:.1f} | {row.seconds:.2f} | {row.ratio:.3f} | "
            f"{row.low:.3f} to {row.high:.3f} | {row.predicted:.3f} | {row.error:+.1%} |"
        )
    worst = max((abs(row.error) for row in rows), default=0.0)
    blind = max((abs(constant / row.ratio - 1) for row in rows), default=0.0)
    lines += [
        "",
        f"Largest error {worst:.1%}; of a constant, the mean ratio {constant:.3f}, {blind:.1%}.",
        order(rows),
    ]
    return "\n".join(lines)


def order(rows: Sequence[Row]) -> str:
    apart = [(a, b) for a, b in combinations(rows, 2) if a.high < b.low or b.high < a.low]
    right = sum((a.ratio < b.ratio) == (a.predicted < b.predicted) for a, b in apart)
    return f"Order right in {right} of {len(apart)} pairs of arms whose intervals do not overlap."


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("costs", type=Path)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--devices", type=int, default=1)
    asked = parser.parse_args()
    found = times(asked.measured)
    if "large" not in found:
        raise SystemExit(f"{asked.measured} has no answer of the arm large that ran alone")
    rows = []
    for arm, each in found.items():
        ratio, low, high = ratio_of(each, found["large"]) if arm != "large" else (1.0, 1.0, 1.0)
        rate = [1000 * seconds / tokens for seconds, tokens in each.values() if tokens]
        rows.append(
            Row(
                arm,
                statistics.median(rate),
                statistics.median(seconds for seconds, _ in each.values()),
                ratio,
                low,
                high,
                1.0
                if arm == "large"
                else predicted(asked.costs, asked.measured, arm, asked.devices),
            )
        )
    rows.sort(key=lambda row: row.ratio)
    others = [row.ratio for row in rows if row.arm != "large"]
    print(table(rows, statistics.fmean(others) if others else 1.0))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
