"""A plan as tables for a terminal, and its verdict in one line."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from relaygen.cli._tables import on_stdout, plain_table
from relaygen.forecast import Crowd
from relaygen.plan import Plan
from relaygen.plan._plan import DEFAULT, INSIDE, SOLVED, UNIT

_INPUTS = {
    "utilization": ("utilization", ""),
    "relay_speedup": ("relay without drafting", "x"),
    "handoffs": ("hand-offs per 1,000 tokens", ""),
    "prompt_tokens": ("tokens of a question", ""),
    "tokens": ("tokens of a text", ""),
    "large_ms": ("large model, decoding", "time"),
    "small_ms": ("small model, decoding", "time"),
    "large_catch_up_ms": ("large model, catching up", "time"),
    "small_catch_up_ms": ("small model, catching up", "time"),
    "large_skips": ("of the small model, never read", ""),
    "small_skips": ("of the large model, never read", ""),
    "overhead_ms": ("overhead of a hand-off", "time"),
    "large_spec_speedup": ("large model's drafting", "x"),
    "large_spec_catch_up_ms": ("… and its reading along", "drafting time"),
    "small_spec_speedup": ("small model's drafting", "x"),
}


_SOURCES = {SOLVED: "solved from --relay-speedup", UNIT: "the unit of time"}


def show_plan(plan: Plan) -> None:
    """Print it on stdout."""
    console = on_stdout(100)
    for table in (_inputs(plan), _terms(plan), _outcome(plan)):
        console.print(table)
        console.print()
    if plan.crowds:
        console.print(_crowds(plan))
        console.print()
    if plan.unmeasured:
        console.print(Text(f"The costs leave out: {', '.join(plan.unmeasured)}."))
    console.print(Text(verdict(plan), "bold"), soft_wrap=True)


def verdict(plan: Plan) -> str:
    """The plan in one line."""
    made = plan.forecast
    ratio, over = round(made.speedup, 2), round(made.speedup_over_drafting, 2)
    said = f"{_word(ratio)} the large model alone: {ratio:.2f}x"
    if plan.setup.large_spec != 1.0:
        said += f", {over:.2f}x where both draft"
    return f"{said}; {_limit(plan)}."


def _word(ratio: float) -> str:
    return "Faster than" if ratio > 1 else "Slower than" if ratio < 1 else "As fast as"


def _limit(plan: Plan) -> str:
    made, length = plan.forecast, plan.setup.segment_tokens
    if made.break_even is not None and length is not None and length < made.break_even:
        return f"segments of {length:.0f} tokens lose, they would need {made.break_even:.0f}"
    share = made.terms[made.limit] / made.ms_per_token
    return f"limited by {made.limit}, {100 * share:.0f} % of the time"


def _inputs(plan: Plan) -> Table:
    table = plain_table("input", "", "from", left=("from",))
    for name, (label, kind) in _INPUTS.items():
        value, source = plan.inputs.get(name, (0.0, DEFAULT))
        if source == INSIDE or (source == DEFAULT and not (kind == "time" and plan.timed)):
            continue
        if source == SOLVED:
            label = "a delegated token, all included"
        table.add_row(label, _value(value, kind, plan), Text(_SOURCES.get(source, source)))
    where = "one" if plan.setup.devices == 1 else "two"
    table.add_row("devices", where, "catch-up hidden" if plan.setup.hidden else "")
    return table


def _value(value: float, kind: str, plan: Plan) -> str:
    if kind in ("time", "drafting time"):
        return _time(value, plan)
    return f"{value:.2f}x" if kind == "x" else f"{value:.4g}"


def _time(value: float, plan: Plan) -> str:
    if not plan.timed:
        return f"{value:.3f}"
    return f"{value:.2f} ms" if value >= 1 or not value else f"{value:.4f} ms"


def _terms(plan: Plan) -> Table:
    made = plan.forecast
    unit = "per token" if plan.timed else "in large tokens"
    table = plain_table("where the time goes", unit, "share")
    for name, value in made.terms.items():
        if value:
            share = f"{100 * value / made.ms_per_token:.0f} %"
            table.add_row(name, _time(value, plan), share)
    table.add_row("together", _time(made.ms_per_token, plan), "")
    table.add_row("large model alone", _time(made.alone_ms, plan), "")
    return table


def _outcome(plan: Plan) -> Table:
    made = plan.forecast
    table = plain_table("forecast", "", *(["error"] if plan.measured is not None else []))

    def row(label: str, value: str, speedup: float | None = None) -> None:
        error = None if speedup is None else plan.error(speedup)
        table.add_row(label, value, *([] if error is None else [f"{100 * error:+.1f} %"]))

    row("speed-up over the large model alone", f"{made.speedup:.2f}x", made.speedup)
    if plan.setup.large_spec != 1.0:
        row("… over it with the same drafting", f"{made.speedup_over_drafting:.2f}x")
    if plan.product is not None:
        row("plain product of both speed-ups", f"{plan.product:.2f}x", plan.product)
    if plan.measured is not None:
        row("measured", f"{plan.measured:.2f}x")
    free = " with a free small model" if plan.solved else ""
    row(f"ceiling{free}", f"{made.ceiling:.2f}x")
    row("share of the ceiling", f"{100 * made.share:.0f} %")
    if plan.setup.segment_tokens is not None:
        row("mean delegated segment", f"{plan.setup.segment_tokens:.1f} tokens")
    if not plan.solved:
        row("break-even segment", _even(made.break_even))
    row("limited by", made.limit)
    return table


def _even(tokens: float | None) -> str:
    if tokens is None:
        return "none: no length pays"
    return f"{tokens:.1f} tokens" if tokens else "none: any length pays"


def _crowds(plan: Plan) -> Table:
    table = plain_table(
        "streams", "tokens/s", "per token", "large busy", "small busy", "over large alone"
    )
    for each in plan.crowds:
        table.add_row(*_crowd(each, plan))
    return table


def _crowd(each: Crowd, plan: Plan) -> list[str]:
    rate = f"{1000 * each.tokens_per_ms:,.0f}" if plan.timed else "–"
    busy = [f"{100 * share:.0f} %" for share in (each.large_busy, each.small_busy)]
    return [
        str(each.streams),
        rate,
        _time(each.ms_per_token, plan),
        *busy,
        f"{each.speedup:.2f}x",
    ]
