"""Who is next: availability, budgets and the hand-offs that follow from them.

Synchronous and without I/O. `Turns` knows nothing of tokens on their way; it looks at what the
ledger has kept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ._contexts import Contexts
from ._errors import ContextLengthError, EngineError, EngineReplyError, PolicyError
from ._events import FellBack, HandedOff
from ._gate import RoundTrip, blocked
from ._ledger import Ledger
from ._opening import Opening
from ._results import Finish
from ._task import Task
from ._types import End, Kind, Role, other
from .policies.base import After

_PATIENCE = 3
"""Failures of the small engine in one generation after which it is not asked again; where there are
gates, a breaker among them decides."""
_OVERRUN = 3
"""Tokens a delegated segment may overrun its limit by, to finish a multi-byte character."""
_LEAST_ROOM = 8
"""Tokens of free context below which a model is not handed the word."""
_FRUITLESS = 16
"""Turns in a row without a token kept after which a policy is taken for broken."""
_FULL = "the small model's context is full; the large one goes on alone"


@dataclass(frozen=True, slots=True)
class Turn:
    """Who writes next and why.

    ``closing``: the end of thinking is inserted first. ``finish``: nobody writes.
    """

    role: Role
    kind: Kind
    after: After
    why: str
    cue: str = ""
    closing: bool = False
    finish: Finish | None = None


class Turns:
    """The turns of one generation.

    Attributes:
        now: who is on duty.
        out: whose engine is out for the rest of this generation.
        calling: a tool call is open, which one model writes to its end.

    Raises:
        ContextLengthError: the prompt does not fit the first engine.
    """

    def __init__(self, task: Task, opening: Opening, ledger: Ledger, contexts: Contexts) -> None:
        self._task = task
        self._opening = opening
        self._ledger = ledger
        self._contexts = contexts
        self._failures = 0
        self._fruitless = 0  # turns in a row that kept nothing
        self._handoff: tuple[HandedOff, float] | None = None  # shown with its first token
        self._trip: tuple[float, int] | None = None  # of the delegation: decided, small tokens then
        self.out: Role | None = None if "small" in opening.infos else "small"
        self.calling = False
        first = task.policy.first
        self.now = Turn(first if first in opening.infos else other(first), "lead", "start", "")
        ledger.usage.prompt_tokens = contexts.size(self.now.role)
        if self._room(self.now.role) < 1:
            raise ContextLengthError(
                f"the prompt has {contexts.size(self.now.role)} tokens, the context holds "
                f"{opening.infos[self.now.role].context}",
                role=self.now.role,
                hint="start the engine with a larger context (--ctx), or shorten the prompt",
            )

    def _room(self, role: Role) -> int:
        return self._opening.infos[role].context - self._contexts.size(role) - 1

    @property
    def solo(self) -> bool:
        """One model goes on alone."""
        return self.out is not None

    @property
    def paused(self) -> bool:
        """The large model is on duty and a gate lets no delegation through."""
        return self.now.role == "large" and bool(blocked(self._task.gates, "delegate"))

    @property
    def allowance(self) -> int:
        """Tokens that the engine on duty may generate."""
        limits, usage = self._task.limits, self._ledger.usage
        left = min(limits.max_tokens - usage.completion_tokens, self._room(self.now.role))
        if self._ledger.stage == "reasoning" and limits.max_reasoning_tokens is not None:
            left = min(left, limits.max_reasoning_tokens - usage.reasoning_tokens)
        if self.now.kind == "delegate" and self._task.calls is None:  # a call may be longer
            left = min(left, limits.max_segment_tokens + _OVERRUN)
        return left

    @property
    def least(self) -> int:
        """Tokens before which the engine on duty may not end its turn."""
        if self.now.kind == "delegate":  # its end of turn ends nothing
            return 0
        least = self._task.limits.min_tokens - self._ledger.usage.completion_tokens
        return max(0, min(least, self.allowance))

    def available(self, role: Role) -> bool:
        """Whether this role can be handed the word."""
        if role not in self._task.policy.roles or role == self.out:
            return False
        if self._room(role) >= _LEAST_ROOM:
            return True
        if role == "small":
            self._leave_out("small", _FULL)
        return False

    def admits(self, role: Role, kind: Kind) -> bool:
        """Whether a hand-off that the policy wants takes place; the gates are asked."""
        if not self.available(role):
            return False
        if role == "large":
            return True
        reason = blocked(self._task.gates, kind)
        self._ledger.usage.paused = reason
        if reason:
            for gate in self._task.gates:
                gate.refused()
        return not reason

    def _leave_out(self, role: Role, note: str) -> None:
        self.out = role
        self._ledger.note(note)

    # What may come next.

    def finish(self, finish: Finish) -> Turn:
        """Nobody writes any more."""
        return Turn(self.now.role, "lead", "stage", finish, finish=finish)

    def closing(self, why: str) -> Turn:
        """The loop closes the thinking."""
        return Turn(self.now.role, "lead", "stage", why, closing=True)

    def hand_back(self, after: After) -> Turn:
        """A delegated segment ended without the policy's word."""
        role = other(self.now.role)
        return Turn(role if self.available(role) else self.now.role, "lead", after, after)

    def looping(self) -> Turn:
        """The text repeats itself: the large model goes on, else the stage closes."""
        if self.now.role == "small" and self.available("large"):
            return Turn("large", "lead", "loop", "loop")
        if self._ledger.stage == "reasoning":
            return self.closing("repetition")
        return self.finish("repetition")

    def after_end(self, end: End, *, wrote: bool) -> Turn:
        """The engine ended its stream."""
        if self.now.kind == "delegate":
            return self.hand_back("turn" if end == "turn" else "limit")
        if end == "turn":
            thinking = self._ledger.stage == "reasoning"
            return self.closing("turn") if thinking else self.finish("stop")
        if end == "context" or not wrote:
            return self._out_of_room(self.now)
        return Turn(self.now.role, self.now.kind, "limit", "limit")

    def can_stand_in(self, role: Role) -> bool:
        """Whether this role may carry on where the other one's engine failed."""
        if role == "small" and not self._task.rescue:
            return False
        return self.available(role)

    def after_failure(self, error: EngineError) -> Turn:
        """The engine on duty failed; the other one carries on."""
        failed, rescuer = self.now.role, other(self.now.role)
        self._ledger.usage.fallbacks += 1
        kept = self._ledger.usage.completion_tokens
        self._ledger.events.append(FellBack(failed, str(error), kept))
        self._trip = None
        note = f"the {failed} model failed, the {rescuer} one went on alone: {error}"
        if failed == "large":
            self._leave_out(failed, note)
        else:
            self._failures += 1
            refused = isinstance(error, EngineReplyError) and error.refused
            unfit = refused or isinstance(error, ContextLengthError)
            if not unfit:  # a request that it does not take says nothing of the engine
                for gate in self._task.gates:
                    gate.failed()
            hopeless = not error.retryable or self._failures >= _PATIENCE
            if unfit or (hopeless and not self._task.gates):
                self._leave_out(failed, note)
            elif self._failures == 1 and self._task.gates:
                self._ledger.note(f"the small model failed, the large one carried on: {error}")
        return Turn(rescuer, "lead", "failure", "failure")

    def _out_of_room(self, turn: Turn) -> Turn:
        if turn.role == "small" and self.available("large"):
            self._leave_out("small", _FULL)
            return Turn("large", "lead", "limit", "context")
        return self.finish("length")

    def _within_budget(self, turn: Turn) -> Turn:
        limits, usage = self._task.limits, self._ledger.usage
        if turn.finish is not None:
            return turn
        inserting = len(self._opening.insertion) if turn.closing else 0
        if usage.completion_tokens + inserting >= limits.max_tokens:
            return self.finish("length")
        if turn.closing:
            return turn
        budget = limits.max_reasoning_tokens
        thought = usage.reasoning_tokens if self._ledger.stage == "reasoning" else 0
        if budget is not None and thought >= budget:
            return self._within_budget(self.closing("budget"))
        return self._out_of_room(turn) if self._room(turn.role) < 1 else turn

    # The change.

    def proceed(self, turn: Turn, decided: float, discarded: int, *, wrote: bool) -> None:
        """Make this turn the current one, unless a budget decides otherwise.

        Args:
            turn: what was decided.
            decided: when (perf_counter seconds).
            discarded: tokens received beyond the point.
            wrote: whether the turn that ends kept a token.

        Raises:
            PolicyError: the policy makes turn after turn without one.
        """
        previous, self.now = self.now, self._within_budget(turn)
        self._fruitless = 0 if wrote else self._fruitless + 1
        if self._fruitless > _FRUITLESS:
            raise PolicyError(
                f"policy {self._task.policy.name!r} hands over and over without a token kept",
                hint="a hand-off should keep something, or let the receiver write",
            )
        usage = self._ledger.usage
        if previous.role == "small" and turn.after != "failure" and wrote:
            for gate in self._task.gates:
                gate.succeeded()
        if self.now.finish is None and self.now.role != previous.role:
            if self.now.role == "small":
                for gate in self._task.gates:
                    gate.began()
                self._trip = (decided, usage.small_tokens) if turn.kind == "delegate" else None
            usage.handoffs += 1
            event = HandedOff(
                previous.role,
                self.now.role,
                self.now.kind,
                self.now.why,
                self.now.cue,
                usage.completion_tokens,
                discarded,
                0.0,
            )
            self._handoff = (event, decided)

    def arrived(self) -> None:
        """The engine on duty sent something: now its hand-off is known in full."""
        if self._handoff is not None:
            event, decided = self._handoff
            self._handoff = None
            now = time.perf_counter()
            self._ledger.events.append(replace(event, seconds=now - decided))
            if event.target == "large":
                self._returned(now)

    def _returned(self, now: float) -> None:
        """The large model goes on: what the delegation took is known."""
        trip, self._trip = self._trip, None
        usage = self._ledger.usage
        if trip is None or usage.large.decode_ms is None:
            return
        begun, tokens = trip
        measured = RoundTrip(
            usage.small_tokens - tokens, now - begun, usage.large.decode_ms / 1000.0
        )
        for gate in self._task.gates:
            gate.returned(measured)
