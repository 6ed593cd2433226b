"""From what was measured to findings. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .._checks import DIFFERENT_TEMPLATES, Finding, Level
from .._flags import RAW, SPECULATION, TEMPLATE, longer_context
from .._profile import Profile
from .._results import Generation
from .._task import Limits
from .._types import EngineInfo, Role
from ..costs import Costs, pays
from ..forecast import Forecast, Setup, forecast
from ._report import Rollback, Sample, Speed

LEAST_CEILING = 1.05
"""Below it even a relay whose hand-offs cost nothing is not worth a second engine."""
SHORT = 50
"""Tokens of an answer below which there is hardly a sentence to hand over."""
_SHOWN = 8
_LONGEST_SEGMENT = Limits().max_segment_tokens
_SWAPPED = 1.5
"""So much slower no small model is by chance."""
_LITTLE = "delegate more (another level or policy), or take a pair further apart in speed"
_CHEAPER = (
    "cheaper hand-offs (prefix caches, engines close by) or longer segments (another level or "
    "policy)"
)

OWN_TEMPLATES = Finding(
    "note", "", "each model gets the conversation in its own chat template", check="templates"
)


def templates(same: bool, small: EngineInfo) -> Finding:
    """Whether both models' templates make the same prompt of the same ids."""
    if same:
        return Finding("ok", "", "equal chat templates", check="templates")
    hint = TEMPLATE.get(small.kind)
    if hint is None:
        return DIFFERENT_TEMPLATES
    return replace(DIFFERENT_TEMPLATES, hint=f"small engine: {hint}, the large one's")


def capabilities(role: Role, info: EngineInfo, *, drafted: bool) -> list[Finding]:
    """What an engine can do, and what would unlock the rest."""
    able = ["hides token ids" if info.text_only else "takes and gives token ids"]
    able.append("stops at given ids" if info.stop_ids else "cannot stop at given ids")
    if info.slots > 1:
        able.append(f"caches {info.slots} conversations at once")
    check = "capabilities"
    level: Level = "note" if info.text_only or not info.stop_ids else "ok"
    findings = [Finding(level, role, ", ".join(able), check=check)]
    if drafted or info.drafts:
        text = "decodes speculatively: policies that read margins cannot use it"
        hint = f"only for those: {SPECULATION[info.kind]}" if info.kind in SPECULATION else ""
        findings.append(Finding("note", role, text, hint, check))
    return findings


def margins(role: Role, info: EngineInfo, raw: bool | None, *, needed: bool) -> Finding:
    """Whether log-probabilities can be read.

    Args:
        role: whose they are.
        info: of that engine.
        raw: see `margins_are_raw`.
        needed: the policy reads them.
    """
    check = "margins"
    if raw:
        return Finding("ok", role, "its log-probabilities are the model's own", check=check)
    if raw is None:
        text = "gives no log-probabilities of two candidates, which margin and entropy read"
        hint = SPECULATION.get(info.kind, "") if info.drafts else ""
        return Finding("error" if needed else "note", role, text, hint, check)
    text = "its log-probabilities are scaled by temperature: margin and entropy refuse it"
    hint = RAW.get(info.kind, "have it give those at temperature 1")
    return Finding("error" if needed else "warning", role, text, hint, check)


def rollback(role: Role, found: Rollback) -> Finding:
    """Whether tokens behind a hand-off point can be dropped cheaply."""
    check = "rollback"
    counts = f"{found.extended} prompt tokens computed where the text grew, {found.dropped} where"
    if found.cost == "free":
        return Finding("ok", role, f"roll-back is free: {counts} tokens were dropped", check=check)
    if found.cost == "unknown":
        text = "roll-back unknown: its counts do not show it"
        return Finding("note", role, text, check=check)
    text = f"roll-back is costly: {counts} tokens were dropped, of {found.text_tokens}"
    hint = "sliding-window, hybrid and recurrent models are so; full attention rolls back freely"
    return Finding("warning", role, text, hint, check)


def thinking(profile: Profile, info: EngineInfo, assistant: str, begun: str) -> Finding:
    """Whether the large model thinks as the profile says.

    Args:
        profile: says it.
        info: of the large engine.
        assistant: what its template opens the turn with.
        begun: how the large model goes on.
    """
    check, tags = "thinking", profile.tags
    opened, closed = assistant.rfind(tags.opening), assistant.rfind(tags.closing)
    opens = opened > closed or begun.lstrip().startswith(tags.opening)
    if profile.marks is None:
        if not opens:
            text = "no thinking in tags, as the profile says"
            return Finding("ok", "large", text, check=check)
        text = f"it thinks in {tags.opening}, which profile {profile.name} does not look for"
        hint = 'name a profile with thinking = "tags" by --profile (`relaygen profile list`)'
        return Finding("error", "large", text, hint, check)
    if opens:
        return Finding("ok", "large", f"thinking takes place: {tags.opening} opens", check=check)
    text = f"no thinking takes place, but profile {profile.name} says it does: " + (
        f"the chat template closes {tags.closing} at once"
        if closed >= 0
        else f"neither template nor model opens {tags.opening}"
    )
    other = 'or take a profile with thinking = "none"'
    template = TEMPLATE.get(info.kind)
    hint = f"{template} of a template that thinks, {other}" if template else other[3:]
    return Finding("error", "large", text, hint, check)


def speed(role: Role, found: Speed) -> Finding:
    """The measured times."""
    what = "the whole text each time" if found.rereads else "catch-up"
    text = (
        f"{found.decode_ms:.1f} ms per token, {found.read_ms:.2f} ms per prompt token ({what}), "
        f"{found.request_ms:.1f} ms more a request"
    )
    return Finding("ok", role, text, check="speed")


def held_back(role: Role) -> Finding:
    """Of a stream that arrives as a whole."""
    text = "its tokens come all at once: a hand-off waits for what will be thrown away"
    hint = "let nothing before the engine buffer its replies (nginx: proxy_buffering off)"
    return Finding("warning", role, text, hint, "speed")


def handoff_costs(speeds: Mapping[Role, Speed], text_tokens: float) -> tuple[Costs, float]:
    """Milliseconds per token, and those that a change of role takes beside catching up.

    An engine without a prefix cache has no catch-up of its own: it reads the whole text at each
    change to it, which is every other one.

    Args:
        speeds: of both engines.
        text_tokens: of the text at a change of role.
    """
    reads = {role: 0.0 if each.rereads else each.read_ms for role, each in speeds.items()}
    change = sum(
        (each.request_ms + (text_tokens * each.read_ms if each.rereads else 0.0)) / 2
        for each in speeds.values()
    )
    large, small = speeds["large"].decode_ms, speeds["small"].decode_ms
    return Costs(large, small, reads["large"], reads["small"]), change


def cues(sample: Sample, policy: str) -> list[Finding]:
    """Which cues handed over in the sample, and which never."""
    check, counts = "cues", sample.cues
    written = sample.written
    if not counts:
        text = f"not applicable: policy {policy} has no cues"
        return [Finding("note", "", text, check=check)]
    fired = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])
    if not fired:
        text = f"no cue fired in {written} tokens: the relay would hardly hand over"
        hint = (
            "find this pair's cues with `relaygen calibrate`, or try another profile; if none "
            "fires then, the texts have no phases to share"
        )
        return [Finding("against", "", text, hint, check)]
    shown = ", ".join(f"{name!r} {counts[name]}" for name in fired[:_SHOWN])
    more = f" and {len(fired) - _SHOWN} more" if len(fired) > _SHOWN else ""
    text = f"{len(fired)} of {len(counts)} cues fired in {written} tokens: {shown}{more}"
    findings = [Finding("ok", "", text, check=check)]
    never = [name for name in counts if not counts[name]]
    if never:
        text = f"never fired in this small sample: {', '.join(map(repr, never))}"
        hint = "`relaygen calibrate` keeps the cues with evidence on your own questions"
        findings.append(Finding("note", "", text, hint, check))
    return findings


def answers(sample: Sample, profile: Profile) -> Finding:
    """Whether the small model may answer."""
    check = "answers"
    if profile.marks is None:
        text = "not applicable: answers by the small model, as the profile has no answer stage"
        return Finding("note", "", text, check=check)
    if profile.answer_role != "small":
        text = "not applicable: by the profile the small model does not answer alone"
        return Finding("note", "", text, check=check)
    asked = [each.same for each in sample.answers if each.same is not None]
    if not asked:
        return Finding("note", "", "unknown: no answer of the sample was complete", check=check)
    text = (
        f"from the same thinking the small model gave the large one's answer in {sum(asked)} of "
        f"{len(asked)}"
    )
    if 2 * sum(asked) > len(asked):
        return Finding("ok", "small", text, check=check)
    hint = 'set answer_role = "large" in the profile'
    return Finding("warning", "small", f"a weak answerer: {text}", hint, check)


def room(sample: Sample, infos: dict[Role, EngineInfo]) -> list[Finding]:
    """Whether the sample's texts fit the small model."""
    small = infos["small"]
    needed = max(each.prompt_tokens + each.tokens for each in sample.answers)
    if needed <= small.context:
        return []
    text = (
        f"a text of the sample has {needed} tokens, {needed - small.context} more than its context"
    )
    hint = longer_context(small.kind, max(needed, infos["large"].context))
    return [Finding("warning", "small", text, hint, "context")]


def cut(generations: Sequence[Generation], profile: Profile) -> list[Finding]:
    """Texts that a limit ended."""
    ended = sum(each.finish == "length" for each in generations)
    if not ended:
        return []
    what = "its thinking was not over" if profile.marks else "it was not over"
    text = f"{ended} of {len(generations)} answers reached the sample's limit: {what}"
    return [Finding("note", "large", text, check="sample")]


def one_model(info: EngineInfo, place: object) -> Finding:
    """Both roles are played by the same model at the same place."""
    text = f"both roles are played by one model, {info.model} ({place}): there is nothing to gain"
    hint = "name another model by --small, or by --small-model where one server has both"
    return Finding("against", "", text, hint, "gain")


def worth(costs: Costs) -> list[Finding]:
    """Whether a delegated token can be cheaper than a large one at all."""
    large, small, read = costs.large_decode, costs.small_decode, costs.large_catch_up
    if small >= large:
        text = f"the small model is not faster: {small:.1f} ms per token, the large one {large:.1f}"
        hint = "take a smaller small model, or give it a faster place"
        if small > _SWAPPED * large:
            hint += "; or --large and --small are the wrong way round"
        return [Finding("against", "", text, hint, "gain")]
    if not pays(costs, devices=1):
        text = (
            f"catch-up eats the gain: a delegated token takes {small:.1f} ms to write and "
            f"{read:.1f} ms to be read, {large:.1f} ms by the large model alone"
        )
        hint = "let the large model read faster: its prompt processing, or a GPU"
        return [Finding("against", "", text, hint, "gain")]
    return []


def gain(setup: Setup, sample: Sample) -> tuple[Forecast, list[Finding]]:
    """What the relay would gain on texts like the sample's."""
    made, check = forecast(setup), "gain"
    shared = (
        f"at {100 * setup.utilization:.0f} % utilization and {setup.handoffs_per_1000:.0f} "
        "hand-offs per 1,000 tokens"
    )
    told = f"{made.speedup:.2f}x the large model's speed expected, ceiling {made.ceiling:.2f}x"
    if made.ceiling < LEAST_CEILING:
        found = Finding("against", "", f"little to gain: {told}, {shared}", _LITTLE, check)
    elif made.speedup < 1.0:
        terms = made.terms
        text = (
            f"slower as it stands: {told}, {shared}; a token takes {terms['overhead']:.1f} ms of "
            f"hand-offs and {terms['catch-up']:.1f} ms of catch-up, and {made.alone_ms:.1f} ms by "
            "the large model alone"
        )
        found = Finding("against", "", text, _CHEAPER, check)
    elif made.speedup < LEAST_CEILING:
        found = Finding("warning", "", f"hardly faster: {told}, {shared}", _CHEAPER, check)
    else:
        found = Finding("ok", "", f"{told}, {shared}", check=check)
    return made, [found, *_segments(made, sample), *_length(setup, made, sample)]


def _segments(made: Forecast, sample: Sample) -> list[Finding]:
    mean = sample.segment_tokens
    if made.break_even is None:
        text = "break-even: a delegated segment of no length would pay"
        return [Finding("note", "", text, check="gain")]
    text = f"break-even: a delegated segment pays from {made.break_even:.1f} tokens on"
    if mean is None:
        return [Finding("note", "", f"{text}; the sample has none", check="gain")]
    text += f"; in the sample it has {mean:.1f}"
    if mean < made.break_even:
        return [Finding("warning", "", text, _CHEAPER, "gain")]
    return [Finding("ok", "", text, check="gain")]


def _length(setup: Setup, made: Forecast, sample: Sample) -> list[Finding]:
    """The small model has to read the question, which the large one alone spares it."""
    saved = made.alone_ms - made.ms_per_token
    prompt = statistics.median(each.prompt_tokens for each in sample.answers)
    written = statistics.median(each.tokens for each in sample.answers)
    least = prompt * setup.costs.small_catch_up / saved if saved > 0.0 else 0.0
    if written >= max(least, SHORT):
        if saved <= 0.0:
            return []
        earned = f"after {least:.0f} tokens" if least >= 1.0 else "at once"
        text = (
            f"the small model's reading of the question is earned {earned}; an answer of the "
            f"sample has {written:.0f} tokens"
        )
        return [Finding("ok", "", text, check="length")]
    text = f"answers are short: {written:.0f} tokens in the sample, below {max(least, SHORT):.0f}"
    hint = "ask the large model alone; a relay is for long texts"
    return [Finding("against", "", text, hint, "length")]


def nothing_delegated(sample: Sample) -> Finding:
    """The small model would write nothing."""
    text = (
        f"nothing is handed over in the sample's {sample.written} tokens: the relay is the large "
        "model alone"
    )
    return Finding("against", "", text, "another policy, level or profile", "gain")


def unsampled(
    costs: Costs, handoff_ms: float, utilization: float | None, devices: int, why: str
) -> Finding:
    """Ceiling and break-even where no answers were sampled.

    Args:
        costs: of the pair.
        handoff_ms: that a change of role takes beside catching up.
        utilization: that the profile expects; None where it does not say.
        devices: that the models compute on.
        why: there is no sample.
    """
    share = 0.5 if utilization is None else utilization
    made = forecast(Setup(costs, share, handoff_ms=handoff_ms, devices=devices))
    whose = "assumed" if utilization is None else "the profile's"
    text = f"ceiling {made.ceiling:.2f}x at a utilization of {100 * share:.0f} % ({whose})"
    even = made.break_even
    if even is None or even > _LONGEST_SEGMENT:
        text += ", where no length of a delegated segment pays"
    else:
        text += f", where a delegated segment pays from {even:.1f} tokens on"
    text += f"; {why}"
    if made.ceiling < LEAST_CEILING:
        return Finding("against", "", text, _LITTLE, "gain")
    if even is None or even > _LONGEST_SEGMENT:
        return Finding("against", "", text, _CHEAPER, "gain")
    return Finding("note", "", text, check="gain")
