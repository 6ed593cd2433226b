"""Several policies on the same questions, interleaved in one run, graded by math-verify.

    python benchmarks/arms.py QUESTIONS.jsonl --n 20 --out docs/results/gsm8k-20

Each line of QUESTIONS has `id`, `question` and `answer`. The results are appended line by line, so
an interrupted run goes on where it stopped; the summary is written when all of them are there.
Greedy, one question at a time. n is small: the accuracy is a smoke test.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relaygen import Limits, Relay, Sampling
from relaygen._agreement import same_answer

PROMPT = "{question}\nPlease reason step by step, and put your final answer within \\boxed{{}}."
ARMS = ("large", "small", "relay", "one-shot", "random:0.25")
COLUMNS = (
    "arm",
    "correct",
    "utilization",
    "hand-offs",
    "tokens",
    "discarded",
    "ms per token",
    "seconds",
    "estimate",
)


def records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def measure(relay: Relay, question: dict[str, Any], arm: str, max_tokens: int) -> dict[str, Any]:
    from relaygen.costs import speedup

    generation = relay.generate(
        PROMPT.format(question=question["question"]),
        policy=arm,
        seed=0,
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0),
        limits=Limits(max_tokens=max_tokens),
    )
    usage = generation.usage
    return {
        "id": question["id"],
        "arm": arm,
        "correct": same_answer(f"\\boxed{{{question['answer']}}}", generation.answer),
        "utilization": usage.utilization,
        "handoffs": usage.handoffs,
        "tokens": usage.completion_tokens,
        "small_tokens": usage.small_tokens,
        "discarded": usage.discarded_tokens,
        "ms_per_token": usage.ms_per_token,
        "seconds": usage.seconds,
        "estimated_speedup": speedup(usage),
        "finish": generation.finish,
        "segments": [[s.role, s.text, s.cue] for s in generation.segments],
    }


def summary(results: list[dict[str, Any]], arms: list[str]) -> str:
    """A Markdown table; medians over questions, utilization over all tokens."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for arm in arms:
        rows = [row for row in results if row["arm"] == arm]
        tokens = sum(row["tokens"] for row in rows)
        estimates = [r["estimated_speedup"] for r in rows if r["estimated_speedup"] is not None]
        cells = [
            arm,
            f"{sum(row['correct'] for row in rows)}/{len(rows)}",
            f"{1 - sum(row['small_tokens'] for row in rows) / tokens:.3f}",
            f"{sum(row['handoffs'] for row in rows)}",
            f"{tokens}",
            f"{sum(row['discarded'] for row in rows)}",
            f"{statistics.median(row['ms_per_token'] for row in rows):.0f}",
            f"{statistics.median(row['seconds'] for row in rows):.1f}",
            f"{statistics.median(estimates):.2f}" if estimates else "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("questions", type=Path)
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--profile", default="embedded")
    parser.add_argument("--out", type=Path, required=True, help="without a suffix")
    options = parser.parse_args()
    questions = list(records(options.questions))[: options.n]
    path = options.out.with_suffix(".jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    results = list(records(path)) if path.exists() else []
    done = {(row["id"], row["arm"]) for row in results}
    todo = [(q, arm) for q in questions for arm in options.arms if (q["id"], arm) not in done]
    started = time.monotonic()
    with Relay(profile=options.profile) as relay, path.open("a", encoding="utf-8") as out:
        for number, (question, arm) in enumerate(todo):
            if number == 0:
                relay.generate("Say hi.", limits=Limits(max_tokens=8))  # start the engines
            row = measure(relay, question, arm, options.max_tokens)
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            out.flush()
            results.append(row)
            left = (time.monotonic() - started) / (number + 1) * (len(todo) - number - 1)
            print(
                f"[{number + 1}/{len(todo)}] {row['id']} {arm}: "
                f"{'right' if row['correct'] else 'wrong'}, about {left / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )
    table = summary(results, options.arms)
    path.with_suffix(".md").write_text(table + "\n", encoding="utf-8")
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
