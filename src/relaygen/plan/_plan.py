"""The plan that ``relaygen plan`` shows: its inputs, where they are from, and what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .._errors import UsageError
from ..costs import Costs
from ..forecast import Crowd, Forecast, Setup, crowd, delegated_cost, forecast, handoffs
from ._files import Facts, Physics, contents, measured_facts, trace_facts

Inputs = Mapping[str, tuple[float, str]]
"""Values and where they are from, by name: those of `Asked`, ``handoffs`` per 1,000 tokens."""

GIVEN, UNIT, SOLVED, INSIDE, DEFAULT = "given", "unit", "solved", "in the small model's", "default"

_DEFAULTS: Facts = {
    "large_spec_speedup": 1.0,
    "small_spec_speedup": 1.0,
    "large_catch_up_ms": 0.0,
    "small_catch_up_ms": 0.0,
    "overhead_ms": 0.0,
    "handoffs": 0.0,
    "prompt_tokens": 0.0,
    "tokens": 1.0,
    "large_skips": 0.0,
    "small_skips": 0.0,
    "large_spec_catch_up_ms": 0.0,
}
_SOLVED_AWAY = ("small_ms", "large_catch_up_ms", "small_catch_up_ms", "overhead_ms")


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options, as the user gave them."""

    large_ms: float | None
    small_ms: float | None
    large_catch_up_ms: float | None
    small_catch_up_ms: float | None
    overhead_ms: float | None
    large_spec_speedup: float | None
    small_spec_speedup: float | None
    relay_speedup: float | None
    costs: Path | None
    context: int
    utilization: float | None
    segment_tokens: float | None
    handoffs: float | None
    prompt_tokens: float | None
    tokens: float | None
    trace: Path | None
    arm: str
    devices: int
    hidden_catch_up: bool
    batch: int | None
    concurrency: tuple[int, ...]
    measured_speedup: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is shown.

    Attributes:
        inputs: what the setup was made of.
        setup: as the model takes it.
        forecast: of one stream.
        product: the relay's speed-up without drafting times the large model's by drafting; None
            where nothing drafts.
        crowds: of the numbers of streams that were asked for.
        measured: the speed-up that was observed, if any.
        unmeasured: what the costs leave out, as their file says.
    """

    inputs: Inputs
    setup: Setup
    forecast: Forecast
    product: float | None
    crowds: tuple[Crowd, ...]
    measured: float | None
    unmeasured: tuple[str, ...] = ()

    @property
    def timed(self) -> bool:
        """Whether times are milliseconds; else their unit is a token of the large model alone."""
        return self.inputs["large_ms"][1] != UNIT

    @property
    def solved(self) -> bool:
        """Whether the cost of a delegated token is known as a whole only."""
        return self.inputs["small_ms"][1] == SOLVED

    def error(self, speedup: float) -> float | None:
        """How far this speed-up is off the measured one, relative to it."""
        return None if self.measured is None else speedup / self.measured - 1.0


def planned(asked: Asked) -> Plan:
    """The plan for these options.

    Raises:
        UsageError: something is missing, or makes no sense.
    """
    inputs, physics = _inputs(asked)
    values = {name: value for name, (value, _) in inputs.items()}
    setup = Setup(
        Costs(
            values["large_ms"],
            values["small_ms"],
            values["large_catch_up_ms"],
            values["small_catch_up_ms"],
        ),
        values["utilization"],
        handoffs_per_1000=values["handoffs"],
        handoff_ms=values["overhead_ms"],
        large_spec=values["large_spec_speedup"],
        small_spec=values["small_spec_speedup"],
        devices=asked.devices,
        hidden=asked.hidden_catch_up,
        prompt_per_token=values["prompt_tokens"] / values["tokens"],
        large_skips=min(values["large_skips"], 1.0 - values["utilization"]),
        small_skips=min(values["small_skips"], values["utilization"]),
        large_spec_catch_up=values["large_spec_catch_up_ms"],
    )
    product = None
    if (setup.large_spec, setup.small_spec) != (1.0, 1.0):
        plain = replace(setup, large_spec=1.0, small_spec=1.0)
        product = forecast(plain).speedup * setup.large_spec
    speeds = _speeds(asked, physics)
    return Plan(
        inputs,
        setup,
        _forecast(setup, solved=asked.relay_speedup is not None),
        product,
        tuple(crowd(setup, streams, **speeds) for streams in asked.concurrency),
        asked.measured_speedup,
        physics.unmeasured if physics is not None else (),
    )


def _forecast(setup: Setup, *, solved: bool) -> Forecast:
    """Where all costs of a delegated token are one, only a free small model bounds the speed-up."""
    made = forecast(setup)
    if not solved:
        return made
    free = replace(setup, costs=replace(setup.costs, small_decode=0.0))
    return replace(made, ceiling=forecast(free).ceiling, break_even=None)


def _speeds(asked: Asked, physics: Physics | None) -> dict[str, Sequence[float]]:
    if asked.batch is None and physics is not None:
        return {f"{role}_speeds": physics.speeds(role) for role in ("large", "small")}
    alike = range(1, (asked.batch or 1) + 1)
    return {"large_speeds": alike, "small_speeds": alike}


def _inputs(asked: Asked) -> tuple[Inputs, Physics | None]:
    """An option goes before the trace, the trace before the costs, and these before defaults."""
    if asked.segment_tokens is not None and asked.handoffs is not None:
        raise UsageError("--segment-tokens and --handoffs say the same: give one of them")
    names = {*_DEFAULTS, "large_ms", "small_ms", "utilization"}
    given = {
        name: value for name, value in asdict(asked).items() if name in names and value is not None
    }
    found = _more({}, given, GIVEN)
    if asked.trace is not None:
        found = _more(found, trace_facts(asked.trace, asked.arm), asked.trace.name)
    physics = None
    if asked.costs is not None:
        values = contents(asked.costs)
        if Physics.wrote(values[0]):
            physics = Physics(values[0], asked.context, asked.costs)
        else:
            facts = measured_facts(asked.costs, values, asked.arm)
            found = _more(found, facts, asked.costs.name)
    if "utilization" not in found:
        raise UsageError("how is the text shared?", hint="give --utilization or --trace FILE")
    share = found["utilization"][0]
    if asked.segment_tokens is not None:
        found["handoffs"] = (handoffs(share, asked.segment_tokens), GIVEN)
    if asked.relay_speedup is not None:
        found = _solved(found, share, asked.relay_speedup)
    elif physics is not None:
        found = _more(found, physics.facts(**_lengths(found, share)), physics.path.name)
    for role in ("large", "small"):
        if f"{role}_ms" not in found:
            raise UsageError(
                f"what does a token of the {role} model cost?",
                hint=f"give --{role}-ms, --costs FILE or --relay-speedup",
            )
    if "prompt_tokens" in found and "tokens" not in found:
        raise UsageError("--prompt-tokens says nothing without --tokens")
    return _more(found, _DEFAULTS, DEFAULT), physics


def _more(found: Inputs, facts: Facts, source: str) -> dict[str, tuple[float, str]]:
    """What was found, and of `facts` what was not."""
    return {**{name: (value, source) for name, value in facts.items()}, **found}


def _solved(found: Inputs, share: float, speedup: float) -> dict[str, tuple[float, str]]:
    """All that a delegated token costs goes into the small model's decoding."""
    for name in _SOLVED_AWAY:
        if found.get(name, (0.0, ""))[1] == GIVEN:
            raise UsageError(f"--relay-speedup stands for --{name.replace('_', '-')}: give one")
    large = found.get("large_ms", (1.0, UNIT))
    cost = delegated_cost(share, speedup) * large[0]
    inside = dict.fromkeys(_SOLVED_AWAY, (0.0, INSIDE))
    solved = {"relay_speedup": (speedup, GIVEN), "large_ms": large, "small_ms": (cost, SOLVED)}
    return {**found, **inside, **solved}


def _lengths(found: Inputs, share: float) -> dict[str, float]:
    """Tokens that each model reads at a time."""
    changes = found.get("handoffs", (0.0, ""))[0]
    if not changes:
        raise UsageError(
            "these costs depend on how long segments are",
            hint="give --segment-tokens, --handoffs or --trace FILE",
        )
    return {
        "large_reads": 2000.0 * (1.0 - share) / changes,
        "small_reads": 2000.0 * share / changes,
    }


def plan_dict(plan: Plan) -> dict[str, Any]:
    """For JSON; times are milliseconds where ``unit`` is ``ms``."""
    setup, made = plan.setup, plan.forecast
    return {
        "unit": "ms" if plan.timed else "tokens of the large model alone",
        "inputs": {
            name: {"value": value, "from": source} for name, (value, source) in plan.inputs.items()
        },
        "devices": setup.devices,
        "hidden_catch_up": setup.hidden,
        "segment_tokens": setup.segment_tokens,
        "terms": dict(made.terms),
        "per_token": made.ms_per_token,
        "large_alone_per_token": made.alone_ms,
        "speedup": made.speedup,
        "speedup_over_drafting": made.speedup_over_drafting,
        "ceiling": made.ceiling,
        "share_of_ceiling": made.share,
        "break_even_tokens": made.break_even,
        "limit": made.limit,
        "plain_product": plan.product,
        "measured_speedup": plan.measured,
        "error": plan.error(made.speedup),
        "plain_product_error": None if plan.product is None else plan.error(plan.product),
        "concurrency": [asdict(each) for each in plan.crowds],
        "not_measured": list(plan.unmeasured),
    }
