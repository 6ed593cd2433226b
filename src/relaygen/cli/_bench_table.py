"""What a benchmark found, as tables on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from relaygen.bench._points import SWEEPS, Sweep
from relaygen.cli._tables import on_stdout, plain_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from relaygen._benchmark import Spread
    from relaygen.bench import LiveResult, Measured
    from relaygen.mock import Trace

_WIDTH = 150  # of a pipe
_TITLES: Mapping[Sweep, str] = {
    "streams": "streams at a time, short question",
    "context": "length of the prompt, one stream",
    "handoffs": "hand-offs at a fixed pace, one stream, short question",
}
_LEGEND = (
    "wall: seconds of a stream, median. / own: over the engines' decoding and prefill. share: of "
    "the ceiling, which counts the trace's decoding alone; slowest: of the slowest stream. "
    "speed-up: over the large model alone, measured likewise. CPU: of the relay's process; per "
    "hand-off: what it has more than the large model alone. discarded tokens, requests and bytes "
    "sent: of one stream."
)


def show_measured(trace: Trace, found: Sequence[Measured]) -> None:
    """Print what was measured, sweep by sweep."""
    if not found:
        return
    console = on_stdout(_WIDTH)
    console.print(Text(f"trace {trace.name}: {len(trace.tokens)} tokens\n", "dim"))
    for sweep in SWEEPS:
        those = [one for one in found if one.sweep == sweep]
        if not those:
            continue
        console.print(Text(_TITLES[sweep], "bold"))
        console.print(_measured(those))
        console.print()
    console.print(Text(_LEGEND, "dim"))
    for line in shares(found):
        console.print(Text(line, "bold"))


def shares(found: Sequence[Measured]) -> list[str]:
    """The share of the ceiling by number of streams, one line each."""
    return [
        f"{one.setting}: {one.share:.3f} of the ceiling (slowest {one.share_min:.3f}), "
        f"{one.whole} of {one.streams} texts whole"
        for one in found
        if one.sweep == "streams"
    ]


def _measured(found: Sequence[Measured]) -> Table:
    table = plain_table(
        *("", "prompt", "hand-offs", "wall", "/ own", "ceiling", "share", "slowest", "speed-up"),
        *("CPU/token", "CPU/hand-off", "discarded", "requests", "bytes"),
    )
    for one in found:
        handoff = one.cpu_ms_per_handoff
        table.add_row(
            one.setting,
            f"{one.context:,}",
            str(one.handoffs),
            f"{one.wall_s:.2f} s",
            f"{one.over_own:.3f}",
            f"{one.ceiling:.2f}x",
            f"{one.share:.3f}",
            f"{one.share_min:.3f}",
            f"{one.speedup:.2f}x",
            f"{one.cpu_us_per_token:.0f} µs",
            "–" if handoff is None else f"{handoff:.2f} ms",
            f"{one.discarded:.0f}",
            f"{one.requests:.0f}",
            f"{one.sent_bytes / 1000:,.0f} kB",
        )
    return table


def show_live(result: LiveResult) -> None:
    """Print both arms, and what they are to each other pair by pair."""
    console, found = on_stdout(_WIDTH), result.benchmark
    table = plain_table("arm", "seconds", "ms per token", "tokens", "answers")
    for arm in result.arms:
        table.add_row(
            Text(arm.name),
            _spread(arm.seconds, ".1f"),
            _spread(arm.ms_per_token, ".1f"),
            _spread(arm.tokens, ".0f"),
            str(arm.seconds.count),
        )
    console.print(table)
    console.print()
    ratios = plain_table("large over the relay, pair by pair", "")
    ratios.add_row("ms per token", _spread(found.ms_ratio, ".2f", "x"))
    ratios.add_row("seconds", _spread(found.speedup, ".2f", "x"))
    ratios.add_row("utilization", _spread(found.utilization, ".1%"))
    ratios.add_row("hand-offs", _spread(found.handoffs, ".0f"))
    ratios.add_row("answers agree", f"{found.agreement:.0%}")
    console.print(ratios)
    console.print()
    console.print(
        Text(
            "Median, lowest to highest. Above 1x the relay is faster. Seconds depend on how long "
            "the two texts are, ms per token do not.",
            "dim",
        )
    )


def _spread(spread: Spread, form: str, unit: str = "") -> str:
    return f"{spread.median:{form}}{unit} ({spread.lowest:{form}} … {spread.highest:{form}})"
