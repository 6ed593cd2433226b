"""What a generation was, as lines of marked-up text for a terminal of any width. Pure functions."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal, NamedTuple

from relaygen._results import Generation, ModelUsage, Usage
from relaygen._types import Writer
from relaygen._words import plural
from relaygen.costs import ceiling, large_alone_seconds, measured_costs, money_saved, speedup
from relaygen.policies import Policy

Mark = Literal["", "large", "small", "inserted", "faint"]
"""How a piece of text is to be shown; what that looks like is the screen's business."""

Span = tuple[str, Mark]
Line = tuple[Span, ...]


class Glyphs(NamedTuple):
    """One character for each writer."""

    large: str
    small: str
    inserted: str

    def of(self, writer: Writer) -> str:
        """This writer's."""
        return {"large": self.large, "small": self.small, "inserted": self.inserted}[writer]


BLOCKS = Glyphs("█", "▄", "┃")
"""Of different height, so that they differ without colour too."""

LETTERS = Glyphs("L", "S", "i")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a summary is to say besides the generation itself.

    Attributes:
        policy: that was asked for.
        profile: its name.
        prices: of the large and the small model, per million tokens; None where not given.
        on_cpu: both models share this computer's CPU.
        cut: why this is not all: Ctrl-C, or an error that follows the summary.
    """

    policy: Policy
    profile: str
    prices: tuple[float, float] | None = None
    on_cpu: bool = False
    cut: Literal["interrupted", "failed"] | None = None


def summary(generation: Generation, shown: Shown, *, width: int, glyphs: Glyphs) -> list[Line]:
    """The whole summary; no line is longer than `width` (at least 40) columns."""
    usage = generation.usage
    lines: list[Line] = []
    if shown.cut:
        lines += _wrapped(f"{shown.cut}: this is what was written until then", width)
    if not usage.completion_tokens:
        return [*lines, (("no token was written", ""),)]
    lines.append(strip(generation, width=width, glyphs=glyphs))
    lines += table(usage, glyphs)
    for text in _facts(generation, shown):
        lines += _wrapped(text, width)
    return lines


def strip(generation: Generation, *, width: int, glyphs: Glyphs) -> Line:
    """Who wrote what along the generation, in exactly `width` columns.

    Where a column stands for several tokens it shows one writer, and what that leaves unsaid is
    carried to the next column: shares stay true over any stretch. An insertion has a column always.
    """
    writers: list[Writer] = []
    for segment in generation.segments:
        writers += [segment.role] * segment.tokens
    columns: list[Writer] = []
    owed = 0.0  # columns of the small model that were not drawn yet
    for column in range(width if writers else 0):
        start = column * len(writers) // width
        end = max(start + 1, (column + 1) * len(writers) // width)
        part = writers[start:end]
        if "inserted" in part:
            columns.append("inserted")
            continue
        owed += part.count("small") / len(part)
        columns.append("small" if owed >= 0.5 else "large")
        owed -= columns[-1] == "small"
    spans: list[tuple[str, Mark]] = []
    for writer in columns:
        if spans and spans[-1][1] == writer:
            spans[-1] = (spans[-1][0] + glyphs.of(writer), writer)
        else:
            spans.append((glyphs.of(writer), writer))
    return tuple(spans)


def table(usage: Usage, glyphs: Glyphs) -> list[Line]:
    """Tokens and times by model; 40 columns. It is the legend of the strip as well."""
    heads = ("tokens", "discarded", "time", "decode")
    lines: list[Line] = [((" " * 10 + _cells(*heads), "faint"),)]
    for role in ("large", "small"):
        model = usage.of(role)
        numbers = (str(model.tokens), str(model.discarded), _time(model), _decode(model))
        label: Span = (f"{glyphs.of(role)} {role:8}", role)
        lines.append((label, (_cells(*numbers), "")))
    if usage.inserted_tokens:
        inserted = _cells(str(usage.inserted_tokens), "", "", "").rstrip()
        lines.append(((f"{glyphs.inserted} inserted", "inserted"), (inserted, "")))
    return lines


def _cells(tokens: str, discarded: str, time: str, decode: str) -> str:
    return f"{tokens:>6}{discarded:>10}{time:>7}{decode:>7}"


def _time(model: ModelUsage) -> str:
    # An aborted request is in no model's time.
    return "–" if model.tokens and not model.seconds else seconds_text(model.seconds)


def _decode(model: ModelUsage) -> str:
    return "–" if model.decode_ms is None else _ms(model.decode_ms)


def _facts(generation: Generation, shown: Shown) -> list[str]:
    usage = generation.usage
    facts = [" · ".join(_counts(usage)), " · ".join(_speed(usage))]
    facts += _drafts(usage)
    facts += _estimate(usage, devices=1 if shown.on_cpu else 2)
    if shown.on_cpu and len(shown.policy.roles) == 2:
        facts.append(
            "both models share one CPU: this shows that the relay works, not what it gains on GPUs"
        )
    if shown.prices is not None:
        facts.append(_money(usage, shown.prices))
    if usage.fallbacks:
        facts.append(
            f"{plural(usage.fallbacks, 'fallback')}: "
            "the small model failed and the large one went on"
        )
    facts += _why_no_handoff(generation, shown)
    if generation.finish == "length":
        facts.append("cut at a limit: see --max-tokens and --ctx")
    if generation.finish == "repetition":
        facts.append("ended early: the text went round in circles")
    return facts + [f"note: {note}" for note in generation.notes]


def _counts(usage: Usage) -> list[str]:
    share = usage.utilization
    counts = [] if share is None else [f"utilization {100 * share:.0f} %"]
    return [*counts, plural(usage.handoffs, "hand-off")]


def _drafts(usage: Usage) -> list[str]:
    """What speculative decoding guessed, for each model that does it and tells."""
    return [
        f"{role}: {plural(model.drafted, 'token')} drafted, {model.accepted} accepted "
        f"({100 * model.acceptance:.0f} %)"
        for role, model in (("large", usage.large), ("small", usage.small))
        if model.drafted and model.acceptance is not None
    ]


def _speed(usage: Usage) -> list[str]:
    speed = [f"{plural(usage.completion_tokens, 'token')} in {seconds_text(usage.seconds)}"]
    if usage.ms_per_token is not None:
        speed.append(f"{_ms(usage.ms_per_token)} per token")
    if usage.first_token_seconds is not None:
        speed.append(f"first token after {seconds_text(usage.first_token_seconds)}")
    return speed


def _estimate(usage: Usage, *, devices: int) -> list[str]:
    if not usage.small_tokens:
        return []  # the large model alone is what it was
    alone, ratio = large_alone_seconds(usage), speedup(usage)
    if alone is None or ratio is None:
        facts = ["estimate for the large model alone: not enough large tokens to estimate"]
    else:
        said = _ratio(ratio)
        than = "as" if said.endswith("fast") else "than"
        facts = [f"estimate: {said} {than} the large model alone ({seconds_text(alone)})"]
    costs, share = measured_costs(usage), usage.utilization
    if costs is not None and share is not None:
        best = ceiling(costs, share, devices=devices)
        where = "one device" if devices == 1 else "two devices"
        facts.append(f"ceiling at this utilization on {where}: {best:.2f}x")
    return facts


def _ratio(ratio: float) -> str:
    shown = round(ratio, 2)
    return f"{ratio:.2f}x, {'slower' if shown < 1 else 'faster' if shown > 1 else 'as fast'}"


def _money(usage: Usage, prices: tuple[float, float]) -> str:
    saved, share = money_saved(usage, large_price=prices[0], small_price=prices[1])
    amount = f"{abs(saved):.6f} ({abs(100 * share):.0f} %)"
    said = f"saved {amount}" if saved >= 0 else f"paid {amount} more"
    return f"{said} against the large model alone, at these prices"


def _why_no_handoff(generation: Generation, shown: Shown) -> list[str]:
    """Why the small model wrote nothing, or the answer only, and what to try."""
    usage, name = generation.usage, shown.policy.name
    if len(shown.policy.roles) < 2 or generation.finish == "cancelled" or usage.fallbacks:
        return []
    if name not in ("relay", "margin", "one-shot"):
        if usage.handoffs:
            return []
        if shown.policy.first == "small":
            return ["the small model wrote everything"]
        return ["no sentence was handed to the small model"]
    if any(segment.cue for segment in generation.segments):
        return []
    if usage.handoffs and not usage.small_tokens:
        return [
            "cues fired, but the small model ended its turn at once each time: try relaygen doctor"
        ]
    wrote = "the small model wrote in the answer only"
    if not usage.handoffs:
        wrote = "the large model wrote everything"
    another = "relay" if name == "one-shot" else "one-shot"
    return [
        f"no cue fired: {wrote}; try --policy random:0.3, --policy {another} or another profile; "
        f"relaygen profile show {shown.profile} lists the cues"
    ]


def short_summary(generation: Generation, *, width: int) -> list[Line]:
    """One line (more on a narrow terminal) after a turn of a chat."""
    usage = generation.usage
    parts = [f"{usage.large_tokens} large + {usage.small_tokens} small tokens"]
    if usage.utilization is not None:
        parts.append(f"utilization {100 * usage.utilization:.0f} %")
    parts.append(plural(usage.handoffs, "hand-off"))
    parts.append(seconds_text(usage.seconds))
    ratio = speedup(usage)
    if ratio is not None:
        parts.append(f"estimate {_ratio(ratio)}")
    if usage.fallbacks:
        parts.append(plural(usage.fallbacks, "fallback"))
    lines = _wrapped(" · ".join(parts), width, mark="faint")
    for note in generation.notes:
        lines += _wrapped(f"note: {note}", width)
    return lines


def seconds_text(seconds: float) -> str:
    """Seconds for people: ``0.04 s``, ``8.2 s``, ``123 s``."""
    digits = 2 if seconds < 1 else 1 if seconds < 100 else 0
    return f"{seconds:.{digits}f} s"


def _ms(ms: float) -> str:
    if ms >= 1000:
        return seconds_text(ms / 1000)
    return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"


def _wrapped(text: str, width: int, mark: Mark = "") -> list[Line]:
    # A number and its unit stay together, and no line ends or begins with a separator.
    joined = text.replace(" %", "\u00a0%").replace(" s ", "\u00a0s ").replace(" ms", "\u00a0ms")
    joined = joined.replace(" · ", "\u00a0· ")
    lines = textwrap.wrap(joined, width, subsequent_indent="  ", break_on_hyphens=False)
    return [((line.replace("\u00a0", " ").removesuffix(" ·"), mark),) for line in lines]
