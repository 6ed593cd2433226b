"""Asking: which answers are wanted, in which order, and each of them kept as it comes."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .._errors import ContextLengthError, EngineError, EngineStartError, EngineUnreachableError
from .._files import append
from .._jsonable import usage_dict
from .._progress import Clock, Progress, Step
from .._results import Generation
from .._task import Limits
from .._types import Conversation, Message
from ..policies import LargeOnly, SmallOnly
from ._arms import ANSWER_STAGE, Arm, SmallSpeculation, Speculation, source
from ._grade import grade
from ._results import Key, Result, parts, settled

if TYPE_CHECKING:
    from .._api import Relay
    from .._mathematics import Mathematics
    from ._job import Evaluation
    from ._questions import Item

Decoding = tuple[Speculation, SmallSpeculation]
"""How the large and the small model decode."""

PLAIN: Decoding = ("none", "none")

AGAIN = "run the same command again to go on"
_RETRIES = 2
"""Tries more of one answer where its engine failed before a first token."""
_IN_A_ROW = 3
"""Failures of one arm in a row after which nothing better is to be expected."""


def item_seed(seed: int, run: int, item: str) -> int:
    """The seed of one answer, whatever the arm: 31 bits of a hash of all three."""
    digest = hashlib.sha256("\0".join(("item", str(seed), str(run), item)).encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Unit:
    """One answer to be given."""

    item: Item
    run: int
    arm: Arm

    @property
    def key(self) -> Key:
        """What its result has."""
        return self.item.id, self.run, self.arm.name


def schedule(items: Sequence[Item], runs: int, arms: Sequence[Arm]) -> list[Unit]:
    """Question by question; each time another arm begins."""
    units = []
    for run in range(runs):
        for number, item in enumerate(items):
            first = (number + run) % len(arms) if arms else 0
            units += [Unit(item, run, arm) for arm in (*arms[first:], *arms[:first])]
    return units


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
        self.found = settled(before)
        self._order = max((result.order for result in before), default=-1) + 1
        self._units = schedule(job.items, job.settings.runs, job.arms)
        self._done = sum(self.is_there(unit.key) for unit in self._units)
        self._clock = Clock(len(self._units) - self._done)
        self._failed: Counter[str] = Counter()  # in a row, by arm
        self.too_long: set[Key] = set()  # that no context of these engines has room for
        self._writing = asyncio.Lock()

    def is_there(self, key: Key) -> bool:
        """Whether it has an answer."""
        return key in self.found and self.found[key].error is None

    def has_begun(self, arm: str) -> bool:
        """Whether the arm has an answer, to whatever question."""
        return any(key[2] == arm and self.is_there(key) for key in self.found)

    def note(self, text: str) -> None:
        """One line for the user."""
        self._tell(note=text)

    def _tell(self, work: float = 0.0, note: str = "") -> None:
        left = self._clock.left(work)
        self._progress(Step("answers", self._done, len(self._units), left, note))

    async def warm_up(self) -> None:
        """A few tokens from each engine, whose first request takes longer than any later one."""
        self._tell()
        if self._done == len(self._units):
            return
        for decoding, relay in self._relays.items():
            for role in self._job.roles(decoding):
                policy = LargeOnly() if role == "large" else SmallOnly()
                await relay.agenerate("Say hi.", policy=policy, limits=Limits(max_tokens=4))

    async def ask(self, arms: Sequence[Arm]) -> None:
        """Everything of these arms that is not there, as many at once as the evaluation says."""
        units = schedule(self._job.items, self._job.settings.runs, arms)
        todo = iter([unit for unit in units if not self.is_there(unit.key)])
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
            self.found[unit.key] = result
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
            self.too_long.add(unit.key)
            return
        self._failed[name] += 1
        if self._failed[name] >= _IN_A_ROW:
            raise EngineError(
                f"arm {name} failed {_IN_A_ROW} times in a row: {trouble}", hint=AGAIN
            )

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
        large = self.found[unit.item.id, unit.run, first.name]
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
