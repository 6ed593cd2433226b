"""What the statistics of the calibration find, and what they find where nothing is: synthetic data.

    python benchmarks/calibration_power.py --out docs/results/calibration-power.md

60 traces, 40 candidate cues, each in 20 of the traces, segments of 12 to 18 tokens; the margins
have standard deviation 0.30 per position and 0.10 per trace. The margins of a seed are drawn as one
array and the differences per trace are worked out for all cues at once; `faithful` builds real
traces, scores and sentences from such arrays and has `relaygen.calibrate` do all of it, so that
both can be compared. Tests and selection are the product's own in either case.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relaygen.calibrate import Firing, Scores, Sentence, Trace
from relaygen.calibrate._effects import Observed, stats_of_each, tables
from relaygen.calibrate._select import MIN_EFFECT, calibrate
from relaygen.calibrate._tests import interval, judge, means

Floats = NDArray[np.float64]

TRACES = 60
SHORTEST, LONGEST = 12, 18
PLAIN = 10  # sentences of a trace in which no cue fires
LEVEL = 0.6
PER_POSITION, PER_TRACE = 0.30, 0.10
SHRINK = 8.0  # normal margins leave [0, 1]; real scores may not


@dataclass(frozen=True)
class World:
    """What is true.

    Attributes:
        effects: of each cue on the margins of its own sentences.
        present: traces in which each cue fires.
        repeats: sentences a trace in which it fires then.
        first: place in the sentence of the first token it would delegate.
        inside: for a comma form the number of its bare form, which fires in its sentences too.
        slope: what one place further in any sentence adds to the margin.
        wanted: cues that should be found; others should not, but for `either`.
        varies: standard deviation over traces of an effect.
        shape: of the noise.
    """

    effects: tuple[float, ...]
    present: tuple[int, ...] = (20,) * 40
    repeats: tuple[int, ...] = (1,) * 40
    first: tuple[int, ...] = (2,) * 40
    inside: dict[int, int] = field(default_factory=dict)
    slope: float = 0.0
    wanted: frozenset[int] = frozenset(range(5))
    either: frozenset[int] = frozenset()
    varies: float = 0.0
    shape: Literal["normal", "beta"] = "normal"


@dataclass(frozen=True)
class Drawn:
    """One seed: an axis for traces, one for sentences, one for places; `mask` where a token is."""

    margins: Floats
    expected: Floats  # without the noise
    mask: NDArray[np.bool_]
    member: Floats  # cues x sentences: where a cue fires
    first: NDArray[np.int64]


def draw(world: World, generator: np.random.Generator) -> Drawn:
    cues = len(world.effects)
    slots = [cue for cue in range(cues) for _ in range(world.repeats[cue])]
    width = max(world.first) + LONGEST
    sentences = len(slots) + PLAIN
    member = np.zeros((cues, sentences))
    member[slots, range(len(slots))] = 1.0
    for comma, bare in world.inside.items():
        member[bare] += member[comma]
    fires = np.zeros((TRACES, cues), np.bool_)
    for cue in range(cues):
        fires[generator.permutation(TRACES)[: world.present[cue]], cue] = True
    first = np.array(world.first)
    lengths = np.full((TRACES, sentences), width)
    shape = (TRACES, len(slots))
    lengths[:, : len(slots)] = first[slots] + generator.integers(SHORTEST, LONGEST + 1, shape)
    lengths[:, : len(slots)] *= fires[:, slots]
    places = np.arange(width)
    mask = places < lengths[:, :, None]
    effect = np.zeros((TRACES, sentences))
    effect[:, : len(slots)] = np.array(world.effects)[slots]
    if world.varies:
        own = generator.normal(0.0, world.varies, (TRACES, cues)) * (np.array(world.effects) > 0)
        effect[:, : len(slots)] += own[:, slots]
    start = np.zeros(sentences)
    start[: len(slots)] = first[slots]
    expected = LEVEL + world.slope * places + effect[:, :, None] * (places >= start[:, None])
    trace = generator.normal(0.0, PER_TRACE, (TRACES, 1, 1))
    if world.shape == "normal":
        margins = expected + trace + generator.normal(0.0, PER_POSITION, mask.shape)
    else:
        margins = _beta(expected + trace / 2.0, generator)
    return Drawn(margins, np.broadcast_to(expected, mask.shape), mask, member, first)


def _beta(mean: Floats, generator: np.random.Generator) -> Floats:
    """Margins in [0, 1], most of them near an end, with about the same standard deviation."""
    mean = np.clip(mean, 0.15, 0.85)
    total = np.maximum(mean * (1.0 - mean) / PER_POSITION**2 - 1.0, 0.1)
    return generator.beta(mean * total, (1.0 - mean) * total)


def differences(drawn: Drawn, margins: Floats) -> Floats:
    """Traces x cues, as `_effects` defines them; every place is in some plain sentence."""
    values = np.where(drawn.mask, margins, 0.0)
    there = drawn.mask.astype(np.float64)
    own = np.einsum("cs,nsk->nck", drawn.member, values, optimize=True)
    counts = np.einsum("cs,nsk->nck", drawn.member, there, optimize=True)
    pool = (values.sum(1)[:, None] - own) / (there.sum(1)[:, None] - counts)
    segment = np.arange(margins.shape[2]) >= drawn.first[:, None]
    tokens = (counts * segment).sum(2)
    with np.errstate(invalid="ignore"):
        return np.asarray(((own - counts * pool) * segment).sum(2) / tokens, np.float64)


def unmatched(drawn: Drawn, margins: Floats) -> Floats:
    """The same without matching places: segments minus all other tokens of the trace."""
    values = np.where(drawn.mask, margins, 0.0)
    there = drawn.mask.astype(np.float64)
    segment = np.arange(margins.shape[2]) >= drawn.first[:, None]
    own = np.einsum("cs,nsk,ck->nc", drawn.member, values, segment, optimize=True)
    counts = np.einsum("cs,nsk,ck->nc", drawn.member, there, segment, optimize=True)
    rest = (values.sum((1, 2))[:, None] - own) / (there.sum((1, 2))[:, None] - counts)
    with np.errstate(invalid="ignore"):
        return np.asarray(own / counts - rest, np.float64)


def segments(drawn: Drawn) -> NDArray[np.int64]:
    return np.asarray(drawn.mask.any(2).sum(0) @ drawn.member.T, np.int64)


@dataclass
class Tally:
    seeds: int = 0
    false_seeds: int = 0
    all_found: int = 0
    found: int = 0
    wanted: int = 0
    either: int = 0
    testable: int = 0
    covered: int = 0
    intervals: int = 0

    def row(self, name: str) -> str:
        low, high = wilson(self.false_seeds, self.seeds)
        cells = [
            name,
            f"{self.testable / self.seeds:.1f}",
            f"{100 * self.false_seeds / self.seeds:.1f} ({100 * low:.1f} to {100 * high:.1f})",
            f"{100 * self.found / self.wanted:.1f}" if self.wanted else "–",
            f"{100 * self.all_found / self.seeds:.1f}" if self.wanted else "–",
            f"{100 * self.covered / self.intervals:.1f}" if self.intervals else "",
        ]
        return "| " + " | ".join(cells) + " |"


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z = 1.959964
    middle = (hits + z * z / 2) / (of + z * z)
    half = z / (of + z * z) * math.sqrt(hits * (of - hits) / of + z * z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def run(world: World, seeds: int, *, matched: bool = True, coverage: bool = False) -> Tally:
    tally = Tally()
    for seed in range(seeds):
        drawn = draw(world, np.random.default_rng((seed, 7)))
        compare = differences if matched else unmatched
        table = compare(drawn, drawn.margins)
        verdicts = judge(table, segments(drawn), seed=seed, min_effect=MIN_EFFECT)
        chosen = set(np.flatnonzero(verdicts.proven).tolist())
        tally.seeds += 1
        tally.false_seeds += bool(chosen - world.wanted - world.either)
        tally.all_found += chosen >= world.wanted
        tally.found += len(chosen & world.wanted)
        tally.wanted += len(world.wanted)
        tally.either += len(chosen & world.either)
        tally.testable += int(verdicts.testable.sum())
        if coverage:
            low, high = interval(table, seed=seed, resamples=2000)
            truth = means(differences(drawn, drawn.expected))
            tally.covered += int(((low <= truth) & (truth <= high)).sum())
            tally.intervals += truth.size
    return tally


def planted(effect: float, cues: int = 5, of: int = 40) -> tuple[float, ...]:
    return (effect,) * cues + (0.0,) * (of - cues)


def worlds() -> Iterator[tuple[str, World, bool, bool]]:
    """(name, what is true, whether places are matched, whether intervals are checked)."""
    nothing = World(planted(0.0), wanted=frozenset())
    yield "nothing planted", nothing, True, True
    for effect in (0.03, 0.05, 0.075, 0.10, 0.125, 0.15, 0.20):
        yield f"five of {effect:g}", World(planted(effect)), True, effect == 0.15
    base = World(planted(0.15))
    yield "five of 0.15, bounded margins", replace(base, shape="beta"), True, False
    yield "five of 0.15, each varying by 0.10 over traces", replace(base, varies=0.10), True, False
    rare = World(
        (*planted(0.15, of=30), *(0.3,) * 10),
        present=(*(8, 9, 10, 12, 14) * 6, *(5,) * 10),
        repeats=(*(3, 3, 2, 2, 2) * 6, *(4,) * 10),
        wanted=frozenset((2, 3, 4)),
    )
    yield "rare cues", rare, True, True
    yield "nested cues", nested(), True, False
    late = tuple(1 + cue % 20 for cue in range(40))
    sloped = replace(nothing, slope=0.01, first=late)
    yield "0.01 per place in the sentence, nothing planted", sloped, True, False
    yield "the same, compared without matching places", sloped, False, False
    both = replace(sloped, effects=planted(0.15), wanted=base.wanted)
    yield "0.01 per place in the sentence, five of 0.15", both, True, False


def nested() -> World:
    """Cue 2 i is bare, 2 i + 1 its comma form, for i < 10; 20 others have no relatives.

    Pairs 0 and 1 help in both forms, 2 and 3 only with the comma (what the bare form shows is then
    a mixture, and to find it is not false), 4 and 5 only without, the others not at all.
    """
    effects = [0.0] * 40
    for pair in (0, 1):
        effects[2 * pair] = effects[2 * pair + 1] = 0.15
    for pair in (2, 3):
        effects[2 * pair + 1] = 0.15
    for pair in (4, 5):
        effects[2 * pair] = 0.15
    first = tuple(1 + cue % 2 if cue < 20 else 2 for cue in range(40))
    return World(
        tuple(effects),
        first=first,
        inside={2 * pair + 1: 2 * pair for pair in range(10)},
        wanted=frozenset((0, 1, 2, 3, 5, 7)),
        either=frozenset((4, 6, 8, 10)),
    )


def observed(drawn: Drawn) -> list[Observed]:
    """Real traces, scores and sentences of the same margins, shrunk into [0, 1]."""
    names = [f"cue {number:02}" for number in range(drawn.member.shape[0])]
    found = []
    for number in range(TRACES):
        margins: list[float] = []
        sentences: list[Sentence] = []
        order = np.random.default_rng((number, 9)).permutation(drawn.mask.shape[1])
        for slot in order:
            length = int(drawn.mask[number, slot].sum())
            if not length:
                continue
            start = len(margins)
            margins += (0.5 + (drawn.margins[number, slot, :length] - LEVEL) / SHRINK).tolist()
            firings = [
                Firing(names[cue], at - 1, at, start + length, True)
                for cue in np.flatnonzero(drawn.member[:, slot])
                if (at := start + int(drawn.first[cue]))
            ]
            firings.sort(key=lambda firing: firing.token)
            sentences.append(Sentence(start, start + length, tuple(firings)))
        ids = tuple(range(len(margins)))
        trace = Trace(
            f"t{number}", "?", (), ids, (b"x",) * len(ids), "stop", None, "synthetic", number % 2
        )
        scores = Scores(trace.id, "synthetic", tuple(margins), ids)
        found.append(Observed(trace, scores, tuple(sentences)))
    return found


def faithful(seeds: int) -> tuple[float, int]:
    """(largest gap between both ways to the differences, seeds with another selection)."""
    gap, other = 0.0, 0
    for seed in range(seeds):
        world = (World(planted(0.10)), nested(), World(planted(0.0), wanted=frozenset()))[seed % 3]
        drawn = draw(world, np.random.default_rng((seed, 7)))
        short = differences(drawn, drawn.margins)
        seen = observed(drawn)
        names = [f"cue {number:02}" for number in range(short.shape[1])]
        slow = np.stack([each.differences for each in stats_of_each(tables(seen), names)], axis=1)
        if (np.isnan(short) != np.isnan(slow)).any():
            gap = math.inf
        gap = max(gap, float(np.nanmax(np.abs(slow * SHRINK - short))))
        verdicts = judge(short, segments(drawn), seed=seed, min_effect=MIN_EFFECT)
        result = calibrate(seen, seed=seed, candidates=names, min_effect=MIN_EFFECT / SHRINK)
        other += [cue.proven for cue in result.cues] != verdicts.proven.tolist()
    return gap, other


HEAD = """# What the calibration's statistics find

Synthetic margins with known effects: {traces} traces and 40 candidate cues, each in 20 of the
traces with one segment of {shortest} to {longest} tokens; {plain} more sentences in every trace;
standard deviation {position} per position and {trace} per trace (of the trace's whole level).
{seeds} seeds a row. Holm's correction at 0.05 over all testable cues, `min_effect` {least}.

    {command}

"""

COLUMNS = (
    "what is true",
    "testable",
    "false selections, % of seeds (95 % interval)",
    "planted cues found, %",
    "all found, % of seeds",
    "intervals that cover, %",
)

FOOT = """
- *False selections*: seeds in which at least one cue was selected that has no effect. The test is
  two-sided at 0.05 and only positive effects are selected, so about 2.5 % are due where nothing is
  planted. Fewer where something is: a cue without effect is then compared with planted sentences.
- *Intervals that cover*: of all cues, the 95 % bootstrap intervals that hold the true difference.
- *Bounded margins* lie in [0, 1] and mostly near its ends (beta distributions).
- *Varying over traces* is harder than the standard deviations above: the effect itself differs from
  trace to trace, and 20 traces tell 0.15 ± 0.10 from nothing less surely.
- *Rare cues*: 30 cues in 8, 9, 10, 12 or 14 traces, 20 to 28 segments each, the first five of them
  planted with 0.15, and ten cues of 0.3 in five traces, 20 segments each. With fewer than 10 traces
  nothing could be significant among so many tests, so those in 5, 8 and 9 traces are not tested,
  and the planted cues to be found are the three in 10, 12 and 14 traces.
- *Nested cues*: ten bare cues, each with a comma form on whose sentences it is tested too. Of the
  pairs two have an effect of 0.15 in both forms, two with the comma only, two without only, four
  none. A bare form of which only one kind of sentence is easy shows a mixture; to find it counts
  neither way. A comma form whose bare form alone has an effect must not be found.
- *Per place in the sentence*: margins grow by 0.01 with every token of any sentence, and the cues
  stand at places 0 to 19. *Without matching places* segments are compared with all other tokens.

{faithful_seeds} seeds were also run from end to end, from traces, scores and sentences: the
largest gap between the differences per trace was {gap:.0e}, and {other} selected other cues.

All of it took {minutes:.1f} minutes on one core.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--faithful", type=int, default=50, help="seeds run from end to end")
    parser.add_argument("--out", type=Path, help="a Markdown file")
    chosen = parser.parse_args()
    began = time.perf_counter()
    rows = []
    for name, world, matched, coverage in worlds():
        tally = run(world, chosen.seeds, matched=matched, coverage=coverage)
        rows.append(tally.row(name))
        print(f"{time.perf_counter() - began:6.0f} s {rows[-1]}", flush=True)
    gap, other = faithful(chosen.faithful)
    head = HEAD.format(
        traces=TRACES,
        shortest=SHORTEST,
        longest=LONGEST,
        plain=PLAIN,
        position=PER_POSITION,
        trace=PER_TRACE,
        seeds=chosen.seeds,
        least=MIN_EFFECT,
        command="python benchmarks/calibration_power.py --out docs/results/calibration-power.md",
    )
    foot = FOOT.format(
        faithful_seeds=chosen.faithful,
        gap=gap,
        other=other,
        minutes=(time.perf_counter() - began) / 60,
    )
    table = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|", *rows]
    text = head + "\n".join(table) + "\n" + foot
    print(text)
    if chosen.out:
        chosen.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
