"""The step ``check``: the live pair on questions that the calibration does not use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._errors import UsageError
from .._files import lines
from .._profile import Profile
from .._progress import Progress
from .._task import Limits
from .._types import ROLES
from ._answers import distinct, known, write_answers
from ._basis import Basis
from ._traces import Question

if TYPE_CHECKING:
    from .._api import Relay
    from ._check import Check
    from ._outcome import Level, Steered


def check_questions(job: Basis) -> None:
    """See that there are as many questions as are asked for.

    Raises:
        UsageError: there are fewer.
    """
    settings, there = job.settings, len(job.questions)
    if settings.n is not None and settings.n > there:
        raise UsageError(
            f"--n {settings.n}: there are only {there} in {settings.questions}",
            hint=f"--n {there} or fewer, or more questions with --data",
        )
    if not job.check_n:
        return
    left = len(fresh(job))
    if job.check_n > left:
        raise UsageError(
            f"--check {job.check_n}: only {left} of the {there} in {settings.questions} are not "
            "used by the calibration",
            hint="a smaller --check or --n, or more questions with --data",
        )


def fresh(job: Basis) -> Sequence[Question]:
    """The questions that the calibration does not use, in the file's order.

    Raises:
        UsageError: the file of imported traces cannot be read.
    """
    if job.imported is None:
        asked = {one.question for one in job.asked}
        return [one for one in job.questions[len(job.asked) :] if one.question not in asked]
    values = [value for _, value in lines(job.imported, foreign=True)]
    used = {value.get(key) for value in values for key in ("question", "prompt")}
    return [
        one
        for one in job.questions
        if not {one.question, job.template.replace("{question}", one.question)} & used
    ]


async def ask(job: Basis, relay: Relay, progress: Progress) -> None:
    """See `Job.check`."""
    profile = job.made()
    models = [(await job.folder.introduce(role, relay.engines[role]))["model"] for role in ROLES]
    await write_answers(
        relay,
        distinct(profile, models),
        fresh(job)[: job.check_n],
        job.folder.checks,
        seed=job.settings.seed,
        limits=Limits(max_tokens=job.settings.max_tokens),
        prompt_template=job.template,
        progress=progress,
    )


def compared(job: Basis) -> Check | None:
    """See `Job.checked`."""
    found = known(job.folder.checks)
    if not found:
        return None
    from ._check import check

    models = [job.folder.engines().get(role, {}).get("model", "") for role in ROLES]
    levels = {level.name: level for level in job.folder.read_calibration().levels}
    asked = fresh(job)[: job.check_n or None]
    groups = [
        (
            one.names,
            _told(levels[one.names[0]], one.profile),
            [found[one.key, each.id] for each in asked if (one.key, each.id) in found],
        )
        for one in distinct(job.made(), models)
        if one.names[0] in levels
    ]
    result = check(groups, seed=job.settings.seed)
    return result if result.levels else None


def _told(level: Level, profile: Profile) -> Level | Steered:
    """What was predicted of the policy that a profile has at this level."""
    return level.under(profile.in_force.policy if profile.in_force is not None else "relay")
