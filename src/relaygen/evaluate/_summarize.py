"""From results to their summary. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .._results import Usage
from ..costs import ceiling, measured_costs, pooled
from ._arms import ANSWER_STAGE, source
from ._grade import Near, agree, lexical_similarity
from ._paired import paired, ratio, shares_of, usages_of
from ._results import Result, settled
from ._statistics import share_interval, wilson
from ._summary import Agreement, ArmSummary, Summary

if TYPE_CHECKING:
    from ..grading._mathematics import Mathematics
    from ._arms import Arm
    from ._questions import Item, Kind

    Same = Callable[[str, str, Kind], bool | None]


def summarize(
    items: Sequence[Item],
    results: Iterable[Result],
    arms: Sequence[Arm],
    *,
    runs: int = 1,
    devices: int = 1,
    mathematics: Mathematics | None = None,
    near: Near | None = None,
) -> Summary:
    """Summarize the results of these items, arms and runs; others do not count.

    Args:
        items: that were asked.
        results: in any order.
        arms: that were asked.
        runs: that were asked.
        devices: 1 where both models compute on one, else 2; for the ceiling.
        mathematics: see `grade`; answers without a gold one are compared by it.
        near: also compares those, by what they mean; None to leave it out.

    Raises:
        MissingExtraError: math-verify is needed to compare answers without gold.
    """
    known = {item.id: item for item in items}
    by_arm: dict[str, list[Result]] = {arm.name: [] for arm in arms}
    for result in settled(results).values():
        if result.item in known and result.run < runs and result.arm in by_arm:
            by_arm[result.arm].append(result)
    place = {item.id: number for number, item in enumerate(items)}
    for found in by_arm.values():
        found.sort(key=lambda result: (place[result.item], result.run))
    good = {name: [one for one in found if one.error is None] for name, found in by_arm.items()}
    large = next((arm.name for arm in arms if arm.name == "large"), None)
    base = good[large] if large else []
    same = partial(agree, mathematics=mathematics)
    told = tuple(
        _arm(
            arm,
            by_arm[arm.name],
            base,
            known,
            same,
            near,
            follows=_followed(arm, arms),
            asked=len(items) * runs,
            devices=devices,
        )
        for arm in arms
    )
    whole = [arm for arm in arms if arm.policy != ANSWER_STAGE]
    against = [arm.name for arm in whole if arm.name == "large"]
    against += [arm.name for arm in whole if arm.base == "random"]
    pairs = [(arm.name, other) for other in against for arm in whole if arm.name != other]
    return Summary(
        len(items),
        runs,
        all(arm.answers == arm.asked for arm in told),
        told,
        tuple(filter(None, (paired(a, b, good[a], good[b]) for a, b in pairs))),
        tuple(filter(None, (ratio(a, b, good[a], good[b]) for a, b in pairs if b == large))),
        _agreement(arms, good, known, same),
    )


def _followed(arm: Arm, arms: Sequence[Arm]) -> str:
    first = source(arm, arms) if arm.base == "random" else None
    return "" if first is None else first.name


def _arm(
    arm: Arm,
    found: Sequence[Result],
    base: Sequence[Result],
    items: Mapping[str, Item],
    same: Same,
    near: Near | None,
    *,
    follows: str,
    asked: int,
    devices: int,
) -> ArmSummary:
    good = [result for result in found if result.error is None]
    usages = usages_of(good)
    total = pooled(usages)
    by_question = list(shares_of(good).values())
    low, high = _accuracy_interval(by_question)
    agreement, similarity, nearness = _beside_large(good, base, items, same, near)
    at_once = max((result.at_once for result in good), default=1)
    whole = arm.policy != ANSWER_STAGE  # else it is a part of an answer
    timed = at_once == 1 and whole
    pace = _median(usage.ms_per_token for usage in usages) if timed else None
    reference = _pace(base)
    speedup = reference / pace if reference and pace else None
    used = total.utilization if whole else None
    best = _ceiling(arm, total, base, devices) if timed else None
    return ArmSummary(
        name=arm.name,
        asked=asked,
        answers=len(good),
        n=len({result.item for result in good}),
        errors=len(found) - len(good),
        graded=sum(result.correct is not None for result in good),
        correct=sum(result.correct is True for result in good),
        accuracy=statistics.fmean(by_question) if by_question else None,
        low=low,
        high=high,
        agreement=agreement,
        similarity=similarity,
        nearness=nearness,
        utilization=used,
        small_share=None if used is None else 1.0 - used,
        follows=follows,
        handoffs=total.handoffs,
        tokens=total.completion_tokens,
        discarded=total.discarded_tokens,
        acceptance=_acceptance(total),
        finishes=dict(Counter(str(result.finish) for result in good)),
        at_once=at_once,
        ms_per_token=pace,
        seconds=_median(usage.seconds for usage in usages) if timed else None,
        first_answer_seconds=_median(each.first_answer_seconds for each in usages)
        if timed
        else None,
        speedup=speedup,
        ceiling=best,
        reached=speedup / best if speedup and best else None,
    )


def _ceiling(arm: Arm, total: Usage, base: Sequence[Result], devices: int) -> float | None:
    """The speed-up over a plain large model if hand-offs cost nothing; None where costs lack."""
    costs, used = measured_costs(total), total.utilization
    if costs is None or used is None:
        return None
    own = ceiling(costs, used, devices=devices)
    if arm.large == "none":
        return own
    plain = pooled(usages_of(base)).large.decode_ms if _pace(base) is not None else None
    return own * plain / costs.large_decode if plain else None


def _acceptance(usage: Usage) -> float | None:
    drafted = (usage.large.drafted or 0) + (usage.small.drafted or 0)
    return (
        ((usage.large.accepted or 0) + (usage.small.accepted or 0)) / drafted if drafted else None
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _pace(results: Sequence[Result]) -> float | None:
    """The median ms per token; None where answers were generated beside others."""
    if any(result.at_once > 1 for result in results):
        return None
    return _median(usage.ms_per_token for usage in usages_of(results))


def _accuracy_interval(shares: Sequence[float]) -> tuple[float | None, float | None]:
    if not shares:
        return None, None
    if all(share in (0.0, 1.0) for share in shares):
        return wilson(sum(share == 1.0 for share in shares), len(shares))
    return share_interval(shares)


def _beside_large(
    results: Sequence[Result],
    base: Sequence[Result],
    items: Mapping[str, Item],
    same: Same,
    near: Near | None,
) -> tuple[float | None, float | None, float | None]:
    """Agreement with the large model's answers and both similarities, where there is no gold."""
    large = {(result.item, result.run): result.answer for result in base}
    pairs = [
        (large[result.item, result.run], result.answer, items[result.item].kind)
        for result in results
        if result.correct is None and (result.item, result.run) in large
    ]
    if not pairs:
        return None, None, None
    said = [each for each in (same(*pair) for pair in pairs) if each is not None]
    alike = statistics.fmean(lexical_similarity(one, two) for one, two, _ in pairs)
    meant = statistics.fmean(near([(one, two) for one, two, _ in pairs])) if near else None
    return statistics.fmean(said) if said else None, alike, meant


def _agreement(
    arms: Sequence[Arm],
    good: Mapping[str, Sequence[Result]],
    items: Mapping[str, Item],
    same: Same,
) -> Agreement | None:
    stage = next((arm for arm in arms if arm.policy == ANSWER_STAGE), None)
    first = stage and source(stage, arms)
    if stage is None or first is None:
        return None
    large = {(result.item, result.run): result for result in good[first.name]}
    pairs = [
        (large[result.item, result.run], result)
        for result in good[stage.name]
        if result.usage is not None and (result.item, result.run) in large
    ]
    said = [same(one.answer, two.answer, items[two.item].kind) for one, two in pairs]
    graded = [pair for pair in pairs if pair[1].correct is not None]

    def right(which: Callable[[tuple[Result, Result]], Result]) -> int | None:
        return sum(which(pair).correct is True for pair in graded) if graded else None

    return Agreement(
        len(pairs),
        sum(each is True for each in said),
        right(lambda pair: pair[0]),
        right(lambda pair: pair[1]),
    )
