"""A pair of live engines on a loop of their own, and one generation at a time on them.

The engines' loop runs in a thread, so that a slow terminal or a paused pager delays nothing that is
measured, and Ctrl-C is heard whatever the engines are doing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from relaygen._api import Relay
from relaygen._errors import EngineError
from relaygen._events import Done, Event
from relaygen._guarded import Guarded
from relaygen._results import Generation
from relaygen._sync import LoopThread
from relaygen._task import Task
from relaygen._types import ROLES
from relaygen.policies import Policy
from relaygen.relay import Generating


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a generation ended.

    Attributes:
        generation: everything that was written, also where it was cut short.
        interrupted: by Ctrl-C.
        error: what failed, where something did.
    """

    generation: Generation
    interrupted: bool = False
    error: Exception | None = None

    @property
    def cut(self) -> Literal["interrupted", "failed"] | None:
        """Why the generation is not all, or None where it is."""
        return "interrupted" if self.interrupted else "failed" if self.error else None


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


class Live:
    """Owns a relay's engines; use it as a context manager, and they are freed at its end."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self._loop = LoopThread()

    def start(self, policy: Policy) -> None:
        """Start the engines that `policy` uses; those that run already are left alone.

        Raises:
            EngineError: one does not start or answer, or has no margins that the policy needs.
        """
        # An iteration rather than a call: Ctrl-C then waits until half-started engines are gone.
        with closing(self._loop.iterate(_started(self.relay, policy))) as steps:
            for _ in steps:
                pass

    def generate(
        self,
        task: Task,
        show: Callable[[Event], None],
        waiting: Callable[[str], None] = lambda what: None,
    ) -> Outcome:
        """Run a task. Starting the engines is in no generation's time.

        Ctrl-C aborts; what was written before it is shown still.

        Args:
            task: what to generate.
            show: gets every event; the last one is a `Done`, whatever happened.
            waiting: is told what is being waited for.

        Raises:
            EngineError: as for `start`. What fails later is in the outcome.
        """
        waiting("starting the engines …")
        try:
            self.start(task.policy)
        except KeyboardInterrupt:
            return self._cut(self.relay.generating(task), show, interrupted=True)
        waiting("reading the question …")
        generating = self.relay.generating(task)
        unseen: deque[Event] = deque()
        error: Exception | None = None
        interrupted = False
        try:
            with closing(self._loop.iterate(_events(generating, unseen))) as steps:
                for step in steps:
                    if isinstance(step, _Failed):
                        error = step.error
                    if isinstance(step, _Failed | Done):
                        break
                    show(unseen.popleft())
        except KeyboardInterrupt:
            interrupted = True
        while unseen:
            event = unseen.popleft()
            show(event)
            if isinstance(event, Done):
                return Outcome(event.generation)
        return self._cut(generating, show, interrupted=interrupted, error=error)

    def _cut(
        self,
        generating: Generating,
        show: Callable[[Event], None],
        *,
        interrupted: bool,
        error: Exception | None = None,
    ) -> Outcome:
        generation = generating.snapshot()
        show(Done(generation))
        return Outcome(generation, interrupted, error)

    def close(self) -> None:
        """Free the engines and the thread."""
        try:
            self._loop.call(self.relay.aclose())
        finally:
            self._loop.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _started(relay: Relay, policy: Policy) -> AsyncGenerator[None, None]:
    """One item, when the engines that the policy uses have started."""
    roles = [role for role in ROLES if role in policy.roles]
    answers = await asyncio.gather(
        *(Guarded(relay.engines[role], role).info() for role in roles), return_exceptions=True
    )
    for role, answer in zip(roles, answers, strict=True):
        if isinstance(answer, EngineError):
            answer.role = answer.role or role
        if isinstance(answer, BaseException):
            raise answer
    await relay.check_margins(policy)
    yield


async def _events(
    generating: Generating, unseen: deque[Event]
) -> AsyncGenerator[Event | _Failed, None]:
    """The events, kept in `unseen` too until they are shown. A failure is the last item."""
    try:
        async with aclosing(generating.events()) as events:
            async for event in events:
                unseen.append(event)
                yield event
    except Exception as error:
        yield _Failed(error)
