"""The report's plots: what each shows, and why one is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .._errors import UsageError
from ..costs import Costs, ceiling, measured_costs, pooled
from ._arms import Arm
from ._drawing import ACCENT, AMBER, PLAIN, TEXT, Plot, dot, drawn, label, short
from ._paired import ratios_of, shares_of, usages_of
from ._statistics import wilson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._results import Result
    from ._summary import Agreement, Summary

_GOLDEN = 0.618034
_MOST_DOTS = 400  # of one arm: more are no clearer, and make the page large
_NO_TIMES = "Answers were generated beside each other, so no times are shown."


def plots(summary: Summary, results: Sequence[Result], *, devices: int = 1) -> tuple[Plot, ...]:
    """All plots, those that cannot be drawn with the reason.

    Args:
        summary: of the results.
        results: the ones that count, failed ones left out.
        devices: 1 where both models compute on one, else 2; for the ceiling.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    by_arm: dict[str, list[Result]] = {arm.name: [] for arm in summary.arms}
    for result in results:
        by_arm[result.arm].append(result)
    made = [
        latency(summary),
        speedups(summary, measured(by_arm), devices=devices),
        outcomes(by_arm),
        pairs(summary, by_arm),
    ]
    if summary.answer_stage is not None:
        made.append(answer_stage(summary.answer_stage))
    return tuple(made)


def latency(summary: Summary) -> Plot:
    """Accuracy against end-to-end seconds, with the line of arms that no other beats in both."""
    name, title = "latency", "Accuracy against time"
    shown = [arm for arm in summary.arms if arm.accuracy is not None and arm.seconds is not None]
    if len(shown) < 2:
        graded = any(arm.accuracy is not None for arm in summary.arms)
        why = _no_times(summary) if graded else "No question has a gold answer, so none is right."
        return Plot(name, title, why)
    front = pareto([(arm.seconds or 0.0, arm.accuracy or 0.0) for arm in shown])

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places = [(arm.seconds or 0.0, 100.0 * (arm.accuracy or 0.0)) for arm in shown]
        line = [places[number] for number in front]
        axes.plot(
            *zip(*line, strict=True),
            color=ACCENT,
            drawstyle="steps-post",
            linewidth=1.6,
            zorder=2.5,
        )
        for number, (arm, (x, y)) in enumerate(zip(shown, places, strict=True)):
            if arm.low is not None and arm.high is not None:
                axes.vlines(x, 100 * arm.low, 100 * arm.high, color=PLAIN, linewidth=1.4)
            dot(axes, x, y, filled=number in front)
        low, high = axes.get_xlim()
        axes.set_xlim(max(0.0, low - 0.12 * (high - low)), high + 0.12 * (high - low))
        axes.set(xlabel="seconds for an answer, median", ylabel="accuracy, %")
        axes.grid()
        label(figure, axes, places, [arm.name for arm in shown])

    told = (
        "Up and to the left is better. No other arm is both faster and more accurate than a filled "
        "dot; upright lines are 95 % intervals of the accuracy."
    )
    return drawn(name, title, told, 5.0, draw)


def speedups(summary: Summary, costs: Costs | None, *, devices: int = 1) -> Plot:
    """Speed-up over the large model against the large model's share of the tokens."""
    name, title = "speedup", "Speed-up against utilization"
    shown = [arm for arm in summary.arms if arm.utilization is not None and arm.speedup is not None]
    if len(shown) < 2:
        return Plot(name, title, _no_times(summary, "the arm large and another one"))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        if costs is not None:
            across = [number / 100 for number in range(101)]
            best = [ceiling(costs, value, devices=devices) for value in across]
            axes.plot(across, best, color=ACCENT, linewidth=1.6)
        axes.axhline(1.0, color=PLAIN, linewidth=1.0, linestyle=(0, (5, 4)))
        places = [(arm.utilization or 0.0, arm.speedup or 0.0) for arm in shown]
        for arm, (x, y) in zip(shown, places, strict=True):
            if arm.ceiling is not None:
                axes.vlines(x, min(y, arm.ceiling), max(y, arm.ceiling), color=PLAIN, linewidth=1.4)
                dot(axes, x, arm.ceiling, filled=False)
            dot(axes, x, y, filled=True)
        axes.set_xlim(-0.04, 1.04)
        axes.set_ylim(0.0, 1.12 * axes.get_ylim()[1])
        axes.set(xlabel="the large model's share of the tokens", ylabel="speed-up over large, ×")
        axes.grid()
        hollow = [
            (x, arm.ceiling)
            for arm, (x, _) in zip(shown, places, strict=True)
            if arm.ceiling is not None
        ]
        label(figure, axes, places, [arm.name for arm in shown], hollow)

    line = " The line is that ceiling at every share, from the costs of all plain arms together."
    told = (
        "Filled: ms per token of large over the arm's, both medians. Hollow: the arm's ceiling, if "
        "hand-offs cost nothing." + (line if costs is not None else "")
    )
    return drawn(name, title, told, 5.0, draw)


def outcomes(by_arm: Mapping[str, Sequence[Result]]) -> Plot:
    """Right and wrong answers, question by question."""
    name, title = "outcomes", "The same questions, arm by arm"
    shares = {arm: shares_of(results) for arm, results in by_arm.items()}
    arms = [arm for arm, found in shares.items() if found]
    if not arms:
        return Plot(name, title, "No question has a gold answer, so none is right.")
    columns = [
        tuple(shares[arm].get(item) for arm in arms)
        for item in dict.fromkeys(item for arm in arms for item in shares[arm])
    ]
    columns.sort(key=lambda column: [2.0 if one is None else -one for one in column])

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, arm in enumerate(arms):
            for start, length, share in _runs([column[row] for column in columns]):
                if share is None:
                    continue
                color = ACCENT if share == 1.0 else AMBER if share == 0.0 else PLAIN
                axes.broken_barh([(start, length)], (row - 0.36, 0.72), facecolor=color)
            known = list(shares[arm].values())
            right = (
                f"{sum(known):g}" if all(one in (0, 1) for one in known) else f"{sum(known):.1f}"
            )
            text = f"{right} of {len(known)}"
            axes.text(len(columns) * 1.012, row, text, va="center", color=TEXT)
        axes.set_xlim(0, len(columns))
        axes.set_yticks(range(len(arms)), [short(arm) for arm in arms], color=TEXT)
        axes.invert_yaxis()
        axes.set_xlabel("questions, sorted by who is right")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)

    several = any(one not in (0.0, 1.0, None) for column in columns for one in column)
    told = "Each column is a question: green where the arm is right, orange where it is wrong" + (
        ", grey where its runs differ." if several else "."
    )
    return drawn(name, title, told, 1.1 + 0.34 * len(arms), draw)


def pairs(summary: Summary, by_arm: Mapping[str, Sequence[Result]]) -> Plot:
    """Each question's speed-up over the large model."""
    name, title = "pairs", "Speed-up of each question"
    shown = [ratio for ratio in summary.ratios if ratio.against in by_arm and ratio.arm in by_arm]
    if not shown:
        return Plot(name, title, _no_times(summary, "the arm large and another one"))

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        axes = figure.subplots()
        axes.axvline(1.0, color=PLAIN, linewidth=1.0, linestyle=(0, (5, 4)))
        for row, ratio in enumerate(shown):
            found = ratios_of(by_arm[ratio.arm], by_arm[ratio.against])
            dots = found[:: 1 + len(found) // _MOST_DOTS]
            heights = [row + 0.5 * (_GOLDEN * place % 1.0 - 0.5) for place in range(len(dots))]
            axes.plot(dots, heights, "o", color=PLAIN, markersize=4.0, markeredgewidth=0.0)
            axes.hlines(row, ratio.low, ratio.high, color=ACCENT, linewidth=3.0)
            dot(axes, ratio.ratio, row, filled=True)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, 0.8), max(high, 1.25))
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_yticks(range(len(shown)), [short(ratio.arm) for ratio in shown], color=TEXT)
        axes.set_xlabel("ms per token of large over the arm's, ×")
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)

    told = (
        "Each grey dot is a question that both answered; right of 1 the arm is faster. The green "
        "dot is the median, with its 95 % interval."
    )
    return drawn(name, title, told, 1.1 + 0.5 * len(shown), draw)


def answer_stage(stage: Agreement) -> Plot:
    """How often both models answer alike behind the same thinking."""
    name, title = "answer-stage", "Answers behind the same thinking"
    if not stage.n:
        return Plot(name, title, "No thinking was answered by both models.")
    counts = {
        "same answer": stage.agree,
        "large right": stage.large_correct,
        "small right": stage.small_correct,
    }
    rows = [(text, count) for text, count in counts.items() if count is not None]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, (_, count) in enumerate(rows):
            low, high = (100.0 * limit for limit in wilson(count, stage.n))
            axes.hlines(row, low, high, color=ACCENT, linewidth=3.0)
            dot(axes, 100.0 * count / stage.n, row, filled=True)
            axes.text(101.5, row, f"{count} of {stage.n}", va="center", color=TEXT)
        axes.set_xlim(0, 100)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [text for text, _ in rows], color=TEXT)
        axes.set_xlabel("% of the answers")
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)

    told = "Both models answer behind the large model's thinking. Lines are 95 % intervals."
    return drawn(name, title, told, 1.1 + 0.4 * len(rows), draw)


def pareto(places: Sequence[tuple[float, float]]) -> list[int]:
    """Which of these have no other with less of the first and more of the second; by the first."""
    front: list[int] = []
    for number in sorted(range(len(places)), key=lambda one: (places[one][0], -places[one][1])):
        if not front or places[number][1] > places[front[-1]][1]:
            front.append(number)
    return front


def measured(by_arm: Mapping[str, Sequence[Result]]) -> Costs | None:
    """Costs over all arms without speculative decoding; None where there are none to quote."""
    plain = [
        result
        for name, results in by_arm.items()
        if _is_plain(name)
        for result in results
        if result.at_once == 1
    ]
    return measured_costs(pooled(usages_of(plain)))


def _is_plain(name: str) -> bool:
    try:
        arm = Arm.of(name)
    except UsageError:
        return False
    return (arm.large, arm.small) == ("none", "none")


def _no_times(summary: Summary, needed: str = "two arms") -> str:
    if any(arm.at_once > 1 for arm in summary.arms):
        return _NO_TIMES
    return f"There are no times of {needed}."


def _runs(values: Sequence[float | None]) -> Iterator[tuple[int, int, float | None]]:
    """Start, length and value of stretches of equal ones."""
    start = 0
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[start]:
            yield start, place - start, values[start]
            start = place
