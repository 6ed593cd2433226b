"""What ``relaygen plan`` reads: generations of this package, and ``benchmarks/gpu_physics.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from .._errors import UsageError
from .._files import read
from .._jsonable import usage_from
from .._results import Usage
from .._types import Role
from ..costs import handoff_ms, measured_costs, pooled

Facts = Mapping[str, float]
"""Values by the names of `relaygen.plan.Inputs`: only those that a file tells."""

PHYSICS = "relaygen gpu_physics 1"
"""The ``kind`` of what ``benchmarks/gpu_physics.py`` writes, and its version."""


@dataclass(frozen=True, slots=True)
class _Written:
    """One generation: arm "" where it belongs to no evaluation."""

    arm: str
    runs: tuple[tuple[str, int], ...]  # (writer, tokens)
    usage: Usage | None
    alone: bool  # no other generation ran at the same time
    ordered: bool  # the runs are in the order in which they were written


def contents(path: Path) -> list[dict[str, Any]]:
    """The objects of a file that is one JSON value, or one in each line.

    Raises:
        UsageError: it cannot be read, or holds something else.
    """
    text = read(path)
    try:
        values = [json.loads(text)]
    except ValueError:
        values = []
        for number, line in enumerate(text.splitlines(), 1):
            try:
                values += [json.loads(line)] if line.strip() else []
            except ValueError:
                raise UsageError(f"{path}, line {number}: this is not JSON") from None
    if not values or not all(isinstance(value, dict) for value in values):
        raise UsageError(f"{path} holds no JSON objects")
    return values


def trace_facts(path: Path, arm: str) -> Facts:
    """Utilization, hand-offs and lengths of the generations in a file.

    Args:
        path: lines of ``relaygen run --json`` or ``--trace``, or the results of an evaluation.
        arm: of an evaluation; generations of no arm always count.

    Raises:
        UsageError: there is none of these.
    """
    ours = _of_arm(list(_written(contents(path), path)), arm, path)
    facts: dict[str, float] = {}
    large = sum(tokens for each in ours for role, tokens in each.runs if role == "large")
    small = sum(tokens for each in ours for role, tokens in each.runs if role == "small")
    if not large + small:
        raise UsageError(f"{path} holds no token of either model")
    facts["utilization"] = large / (large + small)
    changes = sum(_changes(each) for each in ours)
    facts["handoffs"] = 1000.0 * changes / (large + small)
    if all(each.ordered for each in ours):
        tails = [_tail(each.runs) for each in ours]
        for reader, writer in (("large", "small"), ("small", "large")):
            unread = sum(tokens for role, tokens in tails if role == writer)
            facts[f"{reader}_skips"] = unread / (large + small)
    told = [each.usage for each in ours if each.usage is not None]
    if len(told) == len(ours):
        facts["prompt_tokens"] = sum(usage.prompt_tokens for usage in told) / len(told)
        facts["tokens"] = sum(usage.completion_tokens for usage in told) / len(told)
    return facts


def measured_facts(path: Path, values: Sequence[Mapping[str, Any]], arm: str) -> Facts:
    """Costs as generations showed them, those with drafting left out, and what `trace_facts` says.

    What ran beside another generation is left out. In an evaluation's results the arms without
    drafting (``+…``) give the costs; where `arm` drafts, the arm of that model alone with the same
    drafting gives its speed-up and what it adds to reading (``large+draft``,
    ``small+small-ngram``). What a hand-off costs is that of `arm` itself where it is there, else of
    the same arm without drafting.

    Raises:
        UsageError: no generation without drafting ran alone, or they are too short to tell.
    """
    found = list(_written(values, path))
    timed = [each for each in found if each.alone and each.usage is not None]
    plain = pooled(each.usage for each in timed if "+" not in each.arm and each.usage is not None)
    costs = measured_costs(plain)
    if costs is None:
        raise UsageError(
            f"{path} does not tell what a token of each model costs",
            hint="it takes generations of both models with their usage, one at a time",
        )
    same = [each.usage for each in timed if each.arm in ("", arm)]
    ours = same or [each.usage for each in timed if each.arm == arm.split("+")[0]]
    facts = {
        "large_ms": costs.large_decode,
        "small_ms": costs.small_decode,
        "large_catch_up_ms": costs.large_catch_up,
        "small_catch_up_ms": costs.small_catch_up,
        "overhead_ms": handoff_ms(pooled(usage for usage in ours if usage is not None)),
    }
    for drafting in arm.split("+")[1:]:
        role: Role = "small" if drafting.startswith("small-") else "large"
        alone = [each for each in timed if each.arm == f"{role}+{drafting}"]
        drafted = pooled(each.usage for each in alone if each.usage is not None).of(role)
        if drafted.decode_ms:
            facts[f"{role}_spec_speedup"] = facts[f"{role}_ms"] / drafted.decode_ms
        if role == "large" and drafted.catch_up_ms is not None:
            more = drafted.catch_up_ms - costs.large_catch_up
            facts["large_spec_catch_up_ms"] = max(0.0, more)
    return {**trace_facts(path, arm), **facts} if _any_of(found, arm) else facts


def _any_of(found: Sequence[_Written], arm: str) -> bool:
    return any(each.arm in ("", arm) for each in found)


def _of_arm(found: Sequence[_Written], arm: str, path: Path) -> list[_Written]:
    ours = [each for each in found if each.arm in ("", arm)]
    if not ours:
        arms = ", ".join(sorted({each.arm for each in found}))
        hint = f"choose one with --arm: {arms}" if arms else "see relaygen run --json"
        raise UsageError(f"{path} holds no generation of arm {arm!r}", hint=hint)
    return ours


def _written(values: Sequence[Mapping[str, Any]], path: Path) -> Iterator[_Written]:
    for value in values:
        if value.get("type") == "done":  # of a recorded stream of events
            value = value.get("generation", {})
        if value.get("error") or ("segments" not in value and "usage" not in value):
            continue
        try:
            usage = usage_from(value["usage"]) if value.get("usage") else None
            runs = tuple(map(_run, value.get("segments") or ()))
        except (UsageError, KeyError, TypeError, ValueError, IndexError) as error:
            raise UsageError(f"{path} holds a generation that is not readable: {error}") from None
        ordered = bool(runs)
        if not runs and usage is not None:
            runs = (("large", usage.large_tokens), ("small", usage.small_tokens))
        alone = value.get("at_once", 1) == 1
        yield _Written(str(value.get("arm", "")), runs, usage, alone, ordered)


def _run(segment: Any) -> tuple[str, int]:
    """Writer and tokens: of a generation's segment, or of one in an evaluation's results."""
    if isinstance(segment, Mapping):
        return str(segment["role"]), int(segment["tokens"])
    return str(segment[0]), int(segment[5])


def _tail(runs: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """Who wrote last, and how many tokens behind the other model's last one."""
    last, tokens = "", 0
    for role, count in reversed(runs):
        if role == "inserted" or not count:
            continue
        if last not in ("", role):
            break
        last, tokens = role, tokens + count
    return last, tokens


def _changes(written: _Written) -> int:
    if written.usage is not None:
        return written.usage.handoffs
    roles = [role for role, tokens in written.runs if role != "inserted" and tokens]
    return len(list(groupby(roles))) - 1 if roles else 0


@dataclass(frozen=True, slots=True)
class Physics:
    """Measured times of random-weight models.

    Args:
        value: what ``benchmarks/gpu_physics.py`` wrote.
        context: tokens; the nearest measured length counts.
        path: for errors.

    Raises:
        UsageError: something is missing in it.
    """

    value: Mapping[str, Any]
    context: int
    path: Path

    @staticmethod
    def wrote(value: Mapping[str, Any]) -> bool:
        """Whether a file with this value is one of these."""
        return value.get("kind") == PHYSICS

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """What the figures leave out."""
        return tuple(map(str, self.value.get("not_measured", ())))

    def facts(self, *, large_reads: float, small_reads: float) -> Facts:
        """Costs where each model reads so many tokens at a time.

        Catch-up is what reading takes beyond the decode step that comes with it; the overhead is
        what a hand-off takes beyond both.
        """
        large, small = self._decode("large", 1), self._decode("small", 1)
        extra = [max(0.0, row["ms"] - row["reading_ms"]) for row in self._rows("handoff", batch=1)]
        return {
            "large_ms": large,
            "small_ms": small,
            "large_catch_up_ms": self._reading("large", large_reads, large),
            "small_catch_up_ms": self._reading("small", small_reads, small),
            "overhead_ms": sum(extra) / len(extra),
        }

    def speeds(self, role: str) -> tuple[float, ...]:
        """Tokens per time with 1, 2, … requests at once, in those with one."""
        batches = sorted({row["batch"] for row in self._rows("decode", role=role)})
        times = [(batch, self._decode(role, batch)) for batch in batches]
        one = _between(times, 1)
        return tuple(n * one / _between(times, n) for n in range(1, batches[-1] + 1))

    def _decode(self, role: str, batch: int) -> float:
        return float(self._rows("decode", role=role, batch=batch)[0]["ms"])

    def _reading(self, role: str, tokens: float, decode: float) -> float:
        """Per token; what is longer than anything measured costs as much per token as that."""
        rows = self._rows("catch_up", role=role, batch=1)
        points = sorted((int(row["tokens"]), float(row["ms"])) for row in rows)
        tokens = min(max(tokens, points[0][0]), points[-1][0])
        return max(0.0, _between(points, tokens) - decode) / tokens

    def _rows(self, table: str, **wanted: Any) -> list[Mapping[str, Any]]:
        """The rows at the measured context that is nearest to the one asked for."""
        try:
            rows = [
                row
                for row in self.value[table]
                if all(row[name] == value for name, value in wanted.items())
            ]
            away = [abs(row["context"] - self.context) for row in rows]
            rows = [row for row, far in zip(rows, away, strict=True) if far == min(away)]
            rows = [row for row in rows if float(row["ms"]) > 0.0]
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{self.path}: {table} is not readable: {error}") from None
        if not rows:
            sought = ", ".join(f"{name} {value}" for name, value in wanted.items())
            raise UsageError(f"{self.path}: {table} was not measured at {sought}")
        return rows


def _between(points: Sequence[tuple[int, float]], at: float) -> float:
    """Linear between neighbours, and level outside."""
    for (left, low), (right, high) in pairwise(points):
        if left <= at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return points[0][1] if at < points[0][0] else points[-1][1]
