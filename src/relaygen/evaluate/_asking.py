"""Asking: every answer that is wanted and not there, each of them kept as it comes.

A run that is stopped at any moment and started again goes on where it was. Arms take turns question
by question, so that whatever changes on the machine meanwhile changes for all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .._errors import ContextLengthError, EngineError, EngineStartError, EngineUnreachableError
from .._files import append
from .._jsonable import usage_dict, usage_from
from .._progress import Clock, Progress, Step, silent
from .._results import Generation
from .._task import Limits
from .._types import Conversation, Message
from ..costs import pooled
from ..policies import LargeOnly, SmallOnly
from ._arms import ANSWER_STAGE, Arm, source
from ._grade import comparing, grade
from ._results import Key, Result, parts, settled
from ._schedule import Decoding, Unit, item_seed, schedule

if TYPE_CHECKING:
    from .._api import Relay
    from ..grading._mathematics import Mathematics
    from ._job import Evaluation

AGAIN = "run the same command again to go on"
_RETRIES = 2
"""Tries more of one answer where its engine failed before a first token."""
_IN_A_ROW = 3
"""Failures of one arm in a row after which nothing better is to be expected."""
_DRIFT = 0.001
"""Shares that differ by less are told as the same."""


async def ask(
    job: Evaluation, relays: Mapping[Decoding, Relay], progress: Progress = silent
) -> None:
    """Ask for every answer of an evaluation that is not there.

    Args:
        job: it has its folder; see `Evaluation.claim`.
        relays: for each of its `decodings`.
        progress: told after each answer.

    Raises:
        UsageError: an engine serves another model than before.
        EngineError: an engine is gone, or an arm fails again and again; results stay.
    """
    for decoding, relay in relays.items():
        await job.introduce(relay, job.roles(decoding))
    with comparing(item.kind == "math" for item in job.items) as mathematics:
        await Asking(job, relays, progress, mathematics).run()


class Asking:
    """One run's state: what is there, what was started, what failed."""

    def __init__(
        self,
        job: Evaluation,
        relays: Mapping[Decoding, Relay],
        progress: Progress,
        mathematics: Mathematics | None,
    ) -> None:
        self._job = job
        self._mathematics = mathematics
        self._relays = relays
        self._progress = progress
        before = job.results()
        self._found = settled(before)
        self._order = max((result.order for result in before), default=-1) + 1
        self._units = schedule(job.items, job.settings.runs, job.arms)
        self._done = sum(self._is_there(unit.key) for unit in self._units)
        self._clock = Clock(len(self._units) - self._done)
        self._failed: Counter[str] = Counter()  # in a row, by arm
        self._too_long: set[Key] = set()  # that no context of these engines has room for
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Everything that is not there; an arm that waits for another one comes behind it."""
        await self._warm_up()
        arms = self._job.arms
        later = [arm for arm in arms if source(arm, arms)]
        await self._ask([arm for arm in arms if arm not in later])
        await self._ask([arm for arm in later if self._ready(arm)])

    def _is_there(self, key: Key) -> bool:
        """Whether it has an answer."""
        return key in self._found and self._found[key].error is None

    def _has_begun(self, arm: str) -> bool:
        """Whether the arm has an answer, to whatever question."""
        return any(key[2] == arm and self._is_there(key) for key in self._found)

    def _note(self, text: str) -> None:
        """One line for the user."""
        self._tell(note=text)

    def _tell(self, work: float = 0.0, note: str = "") -> None:
        left = self._clock.left(work)
        self._progress(Step("answers", self._done, len(self._units), left, note))

    async def _warm_up(self) -> None:
        """A few tokens from each engine, whose first request takes longer than any later one."""
        self._tell()
        if self._done == len(self._units):
            return
        for decoding, relay in self._relays.items():
            for role in self._job.roles(decoding):
                policy = LargeOnly() if role == "large" else SmallOnly()
                await relay.agenerate("Say hi.", policy=policy, limits=Limits(max_tokens=4))

    async def _ask(self, arms: Sequence[Arm]) -> None:
        """Everything of these arms that is not there, as many at once as the evaluation says."""
        units = schedule(self._job.items, self._job.settings.runs, arms)
        todo = iter([unit for unit in units if not self._is_there(unit.key)])
        workers = [asyncio.ensure_future(self._work(todo)) for _ in range(self._job.at_once)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)

    async def _work(self, todo: Iterator[Unit]) -> None:
        for unit in todo:
            order, self._order = self._order, self._order + 1
            try:
                result = await self._result(unit, order)
                trouble = None
            except EngineError as error:
                result, trouble = self._blank(unit, order, error=str(error)), error
            async with self._writing:
                result = await self._graded(unit, result)
                append(self._job.folder.results, result.to_json(), durable=True)
            self._found[unit.key] = result
            self._done += result.error is None
            self._tell(1.0)
            self._judge(unit, trouble)

    def _judge(self, unit: Unit, trouble: EngineError | None) -> None:
        """Go on after a failure, but not where all that follows would fail.

        Raises:
            EngineError: it would.
        """
        name = unit.arm.name
        if trouble is None:
            self._failed[name] = 0
            return
        if isinstance(trouble, EngineUnreachableError | EngineStartError):
            trouble.hint = f"{trouble.hint}; {AGAIN}" if trouble.hint else AGAIN
            raise trouble
        if isinstance(trouble, ContextLengthError):  # the question's fault
            self._too_long.add(unit.key)
            return
        self._failed[name] += 1
        if self._failed[name] >= _IN_A_ROW:
            raise EngineError(
                f"arm {name} failed {_IN_A_ROW} times in a row: {trouble}", hint=AGAIN
            )

    def _ready(self, arm: Arm) -> bool:
        """Whether the arm that `arm` waits for has all its results; if so a share is pinned."""
        first = source(arm, self._job.arms)
        if first is None:
            return True
        keys = [unit.key for unit in schedule(self._job.items, self._job.settings.runs, [first])]
        missing = sum(not self._is_there(key) and key not in self._too_long for key in keys)
        if missing:
            what = "answer of {} is" if missing == 1 else "answers of {} are"
            self._note(f"{arm.name} waits: {missing} {what.format(first.name)} missing")
            return False
        if arm.base == "random":
            usage = pooled(
                usage_from(found.usage)
                for found in map(self._found.__getitem__, keys)
                if found.usage is not None
            )
            kept = 1.0 if usage.utilization is None else usage.utilization
            self._pin(arm, first, 1.0 - kept)
        return True

    def _pin(self, arm: Arm, first: Arm, share: float) -> None:
        """Keep the share at which `arm` runs: that of `first` when `arm` began, and no later one.

        Answers at two shares would be two arms. So an arm that has answers keeps its share, also
        where `first` has answered more questions since.
        """
        before = self._job.settings.shares.get(arm.name)
        if before is not None and self._has_begun(arm.name):
            if abs(before - share) >= _DRIFT:
                self._note(
                    f"{arm.name} keeps its share of {before:.1%}, at which it began; "
                    f"{first.name} delegates {share:.1%} by now"
                )
            return
        self._job.update(shares={**self._job.settings.shares, arm.name: round(share, 4)})
        self._note(f"{arm.name} delegates {share:.1%}, as {first.name} did")

    async def _result(self, unit: Unit, order: int) -> Result:
        """One answer, not graded yet.

        Raises:
            EngineError: an engine failed, also where the other one stood in for it.
        """
        job, arm = self._job, unit.arm
        relay = self._relays[arm.large, arm.small]
        share = job.settings.shares.get(arm.name)
        setup = arm.setup(job.profile, job.settings.level, share)
        question: Conversation | str = unit.item.prompt
        if arm.policy == ANSWER_STAGE:
            thought = self._thought(unit)
            if thought is None:
                return self._blank(unit, order, finish="length")
            message = Message("user", unit.item.prompt)
            question = Conversation((message,), job.profile.prefill + thought)
        blank = self._blank(unit, order)
        task = relay.task(
            question,
            policy=setup.policy,
            sampling=job.sampling,
            limits=job.limits,
            seed=blank.seed,
            retries=_RETRIES,
            fresh=True,  # or the first arm of a question would compute its prompt for all of them
        )
        if setup.answer_role is not None:
            task = replace(task, answer_role=setup.answer_role)
        await relay.check_margins(task.policy)
        generation = await relay.generating(task).whole()
        _check_whole(generation)
        return replace(
            blank,
            answer=generation.answer,
            reasoning=generation.reasoning,
            finish=generation.finish,
            usage=usage_dict(generation.usage),
            segments=parts(generation),
        )

    def _thought(self, unit: Unit) -> str | None:
        """The large model's thinking with its end; None where it was cut off before.

        Raises:
            ContextLengthError: there is none, for the question is too long.
        """
        marks, arms = self._job.profile.marks, self._job.arms
        first = source(unit.arm, arms)
        assert marks is not None
        assert first is not None
        large = self._found[unit.item.id, unit.run, first.name]
        if large.error is not None:
            raise ContextLengthError(large.error)
        text = "".join(part.text for part in large.segments if part.stage == "reasoning")
        closed, end, _ = text.rpartition(marks.closing)
        return closed + end if end else None

    def _blank(self, unit: Unit, order: int, **known: object) -> Result:
        seed = item_seed(self._job.settings.seed, unit.run, unit.item.id)
        id, run, arm = unit.key
        blank = Result(id, run, arm, order, seed, self._job.at_once)
        return replace(blank, **known)  # type: ignore[arg-type]

    async def _graded(self, unit: Unit, result: Result) -> Result:
        if result.error is not None:
            return result
        found = await asyncio.to_thread(grade, unit.item, result.answer, self._mathematics)
        return replace(result, correct=found.correct, extracted=found.extracted)


def _check_whole(generation: Generation) -> None:
    """An answer that one model had to finish for the other is none of its arm.

    Raises:
        EngineError: it is such an answer.
    """
    if generation.usage.fallbacks:
        why = "; ".join(generation.notes) or "the large model stood in for it"
        raise EngineError(f"the small model failed: {why}")
