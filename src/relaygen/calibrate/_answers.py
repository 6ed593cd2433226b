"""Answers of the live pair to fresh questions, at each level of a profile that was just made."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._api import Relay
from .._errors import UsageError
from .._jsonable import usage_dict, usage_from
from .._profile import Profile
from .._progress import Clock, Progress, Step, silent
from .._questions import PROMPT
from .._results import Usage
from .._task import Limits
from ..profiles import make_policy
from ._records import _text, append, read
from ._traces import RETRIES, Question, trace_seed

_READERS = (
    *("name", "description", "large", "small", "version", "level", "levels", "provenance"),
    *("tools", "one_shot_groups"),
)
"""Fields of a profile on which a relay's answer to a question does not depend."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the pair wrote for one question at one level.

    Attributes:
        id: the question's.
        level: its first name, for the reader.
        key: of the setting, see `Setting`.
        policy: the policy's name.
        finish: why it ended, as `Generation.finish` says it.
        usage: what it cost.
        answer: the answer, without the thinking.
    """

    id: str
    level: str
    key: str
    policy: str
    finish: str
    usage: Usage
    answer: str

    def to_json(self) -> dict[str, Any]:
        """As one line holds it."""
        return {
            "id": self.id,
            "level": self.level,
            "profile": self.key,
            "policy": self.policy,
            "finish": self.finish,
            "usage": usage_dict(self.usage),
            "answer": self.answer,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Answer:
        """The inverse of `to_json`.

        Raises:
            UsageError: a key is missing or a value has another type.
        """
        usage = value.get("usage")
        if not isinstance(usage, Mapping):
            raise UsageError("'usage' is missing")
        text = {name: _text(value, name) for name in ("id", "level", "policy", "finish", "answer")}
        return cls(key=_text(value, "profile"), usage=usage_from(usage), **text)


@dataclass(frozen=True, slots=True)
class Setting:
    """A way to run the pair.

    Attributes:
        names: the levels that are it; more than one where they have equal cues and policy.
        profile: with that level in force.
        key: a hash of all that an answer depends on beside the question, its seed and its budget:
            of the models' names, too.
    """

    names: tuple[str, ...]
    profile: Profile
    key: str


def distinct(profile: Profile, models: Sequence[str]) -> list[Setting]:
    """The levels of a profile; those that would do the same are one."""
    found: dict[str, Setting] = {}
    for name in profile.levels:
        at = profile.at(name)
        key = _key(at, models)
        names = (*found[key].names, name) if key in found else (name,)
        found[key] = Setting(names, found[key].profile if key in found else at, key)
    return list(found.values())


def _key(profile: Profile, models: Sequence[str]) -> str:
    parts = {name: value for name, value in asdict(profile).items() if name not in _READERS}
    level = asdict(profile.in_force) if profile.in_force is not None else {}
    thresholds = ("stay", "leave") if level.get("policy") == "relay" else ()  # not that policy's
    for told in ("cues", "utilization", "unproven", *thresholds):
        level.pop(told, None)
    parts |= {"cues": sorted(profile.cues), "level": level, "models": list(models)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


async def write_answers(
    relay: Relay,
    settings: Sequence[Setting],
    questions: Sequence[Question],
    path: str | os.PathLike[str],
    *,
    seed: int,
    limits: Limits | None = None,
    prompt_template: str = PROMPT,
    progress: Progress = silent,
) -> list[Answer]:
    """Let the pair answer each question in each setting; answers are appended as they come.

    One at a time, so that the measured times are those of a conversation that has the engines for
    itself. What is in the file already is not asked again, but where the small model's engine
    failed in between: such an answer tells little, and is asked again by each later call.

    Args:
        relay: the pair, with the profile that the settings are of.
        settings: see `distinct`.
        questions: what is asked.
        path: of the JSON lines; those of other settings stay there and do not count.
        seed: of the generations; that of a question is the same in each setting.
        limits: token budgets of one generation.
        prompt_template: what the user says, ``{question}`` in it.
        progress: told after each answer.

    Returns:
        All answers that were asked for, those of earlier calls included.

    Raises:
        UsageError: the file is none of such answers.
        EngineError: an engine failed; what was written stays.
    """
    found = known(path)
    wanted = [(one.key, question.id) for question in questions for one in settings]
    sound = {place for place in wanted if place in found and not found[place].usage.fallbacks}
    clock, done = Clock(len(wanted) - len(sound)), len(sound)
    progress(Step("check", done, len(wanted)))
    for question in questions:
        said = prompt_template.replace("{question}", question.question)
        for one in settings:
            if (one.key, question.id) in sound:
                continue
            policy = make_policy("relay", one.profile)
            generation = await relay.agenerate(
                said,
                policy=policy,
                limits=limits,
                seed=trace_seed(seed, question.id, 0),
                retries=RETRIES,
                fresh=True,
            )
            answer = Answer(
                question.id,
                one.names[0],
                one.key,
                policy.name,
                generation.finish,
                generation.usage,
                generation.answer,
            )
            append(path, answer)
            found[one.key, question.id] = answer
            done += 1
            progress(Step("check", done, len(wanted), clock.left(1)))
    return [found[place] for place in wanted]


def known(path: str | os.PathLike[str]) -> dict[tuple[str, str], Answer]:
    """The answers of a file by setting and question; the later of two counts.

    Raises:
        UsageError: the file cannot be read, or a line is no such answer.
    """
    return {(answer.key, answer.id): answer for answer in read(path, Answer)}
