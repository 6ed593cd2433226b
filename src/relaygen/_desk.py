"""The desk: one generation's tokens on their way from an engine to the ledger.

Synchronous and without I/O. Each received piece becomes a token, passes the stage detector (which
may hold it as part of a marker) and the policy (which may take the last ones back), and is kept.
The answer to every step is None (go on), a `Turn` (who is next) or an `Ask` (probe first).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ._contexts import Contexts
from ._errors import ContextLengthError, EngineError
from ._events import FellBack, HandedOff
from ._ledger import Ledger
from ._meter import Meter
from ._opening import Opening
from ._results import Finish
from ._task import Task
from ._types import End, Kind, Piece, Role, other
from .policies.base import (
    STAY,
    After,
    Decision,
    HandOff,
    Probe,
    Session,
    Start,
    Stay,
    Token,
)
from .text.repetition import RepetitionGuard
from .text.stages import Found, StageDetector
from .text.utf8 import Utf8

_PATIENCE = 3
"""Failures of the small engine in one generation after which it is not asked again."""
_OVERRUN = 3
"""Tokens a delegated segment may overrun its limit by, to finish a multi-byte character."""
_LEAST_ROOM = 8
"""Tokens of free context below which a model is not handed the word."""


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


@dataclass(frozen=True, slots=True)
class Ask:
    """Probe this role before anything else is decided."""

    role: Role


Said = Turn | Ask | None


class Desk:
    """The state of one generation between two engine requests and within one.

    Attributes:
        turn: who is on duty.
        written: tokens kept from the current engine request.
        surplus: tokens received behind a hand-off point without ever becoming tokens here.
    """

    def __init__(
        self, task: Task, opening: Opening, ledger: Ledger, contexts: Contexts, seed: int
    ) -> None:
        self._task = task
        self._opening = opening
        self._ledger = ledger
        self._contexts = contexts
        self._seed = seed
        self._utf8 = Utf8()
        self._guard = RepetitionGuard(task.limits.max_repeats)
        first = task.policy.first
        self._solo = "small" not in opening.infos  # the small engine is out for this generation
        self.turn = Turn(first if first in opening.infos else other(first), "lead", "start", "")
        self._detector = StageDetector(*opening.markers[self.turn.role], opening.phase)
        thinking = opening.phase != "answer"
        for note in opening.notes:
            ledger.note(note)
        ledger.start("reasoning" if thinking else "answer", thinking=thinking)
        self._session = self._start_session(thinking)
        self._failures = 0
        self._handoff: tuple[HandedOff, float] | None = None  # shown with its first token
        ledger.usage.prompt_tokens = contexts.size(self.turn.role)
        if self._room(self.turn.role) < 1:
            raise ContextLengthError(
                f"the prompt has {contexts.size(self.turn.role)} tokens, the context holds "
                f"{opening.infos[self.turn.role].context}",
                role=self.turn.role,
                hint="start the engine with a larger context (--ctx), or shorten the prompt",
            )

    def _start_session(self, thinking: bool) -> Session:
        wish = self._task.answer_role
        if self._task.thinking is not None and not thinking:
            wish = "relay"  # the thinking is closed or switched off: there is only an answer
        return self._task.policy.start(Start(self._seed, thinking, wish))

    # Before a request.

    def begin(self, meter: Meter) -> None:
        """An engine request begins."""
        self._meter = meter
        self.written = self.surplus = 0
        self._detector.use(*self._opening.markers[self.turn.role])
        self._restart()

    def _restart(self) -> None:
        """A segment begins, with a request or, at a change of stage, inside one."""
        turn = self.turn
        self._tokens: list[Token] = []
        self._released = self._fed = self._kept = 0
        self._found = Found(0)
        self._deferred: HandOff | None = None
        self._ledger.begin(turn.role, cue=turn.cue, why=turn.why)
        self._session.begin(turn.role, turn.kind, self._ledger.stage, turn.after)

    def _room(self, role: Role) -> int:
        return self._opening.infos[role].context - self._contexts.size(role) - 1

    @property
    def allowance(self) -> int:
        """Tokens that the engine on duty may generate."""
        limits, usage = self._task.limits, self._ledger.usage
        left = min(limits.max_tokens - usage.completion_tokens, self._room(self.turn.role))
        if self._ledger.stage == "reasoning" and limits.max_reasoning_tokens is not None:
            left = min(left, limits.max_reasoning_tokens - usage.reasoning_tokens)
        if self.turn.kind == "delegate":
            left = min(left, limits.max_segment_tokens + _OVERRUN)
        return left

    # Within a request.

    def receive(self, piece: Piece) -> Said:
        """One piece from the engine on duty."""
        self._show_handoff()
        text = self._utf8.feed(piece.data)
        token = Token(len(self._tokens), text, self._utf8.whole, piece, self._ledger.stage)
        self._tokens.append(token)
        self._found = self._detector.feed(text, piece)
        self._released += self._found.released
        if self._found.marker == "" and self._thinks_not():
            self._no_thinking()
        return self._advance()

    def answered(self, piece: Piece | None) -> Said:
        """The probe that was asked for, or None where it failed."""
        said = self._obey(self._session.probed(piece))
        return said if said is not None else self._advance()

    def ended(self) -> Said:
        """The stream is over: nothing that waits for more text waits any longer."""
        self._show_handoff()
        self._released += self._detector.flush().released
        if self._detector.phase == "unopened":
            self._detector.close()
            self._no_thinking()
        return self._advance()

    def _advance(self) -> Said:
        while self._fed < self._released:
            said = self._obey(self._decide())
            if said is not None:
                return said
        if self._found.marker:
            found, self._found = self._found, Found(0)
            return self._marker(found)
        full = self._fed >= self._task.limits.max_segment_tokens
        if self.turn.kind == "delegate" and full and self._tokens[self._fed - 1].whole:
            return self._keep(self._fed) or self._hand_back("limit")
        return None

    def _decide(self) -> Decision:
        """Feed the policy one token; a hand-off waits for the end of a character."""
        token = self._tokens[self._fed]
        self._fed += 1
        if self._solo:
            return STAY
        decision = self._session.feed(replace(token, stage=self._ledger.stage))
        waiting = self._deferred
        if waiting is None and isinstance(decision, HandOff) and decision.k == token.index:
            waiting = decision
        if waiting is None:
            return decision
        self._deferred = None if token.whole else waiting
        return replace(waiting, k=token.index) if token.whole else STAY

    def _obey(self, decision: Decision) -> Said:
        if isinstance(decision, Stay):
            return self._keep(self._whole(self._fed - decision.held))
        if isinstance(decision, HandOff):
            role = other(self.turn.role)
            if not self._available(role):
                return self._keep(self._fed)
            turn = Turn(role, decision.kind, "handoff", decision.why, decision.cue)
            return self._keep(decision.k + 1) or turn
        said: Said = self._keep(self._fed)
        if said is not None:
            return said
        if isinstance(decision, Probe):
            return Ask(decision.role) if self._available(decision.role) else self.answered(None)
        return self._closing("policy") if self._ledger.stage == "reasoning" else None

    def _whole(self, count: int) -> int:
        """`count` without the tokens of an incomplete last character."""
        while count > self._kept and not self._tokens[count - 1].whole:
            count -= 1
        return count

    def _keep(self, count: int) -> Turn | None:
        """Keep the first `count` tokens of this segment."""
        while self._kept < count:
            turn = self._keep_one()
            if turn is not None:
                return turn
        return None

    def _keep_one(self, *, marker: bool = False) -> Turn | None:
        token = self._tokens[self._kept]
        self._kept += 1
        self.written += 1
        self._ledger.keep(token, shown="" if marker else None)
        self._contexts.write(self.turn.role, token.piece, token.text, special=marker)
        if self._ledger.stopped:
            return self._finish("stop")
        if self._guard.feed(token.piece.data if token.piece.id is None else token.piece.id):
            self._guard.reset()
            return self._looping()
        return None

    def _marker(self, found: Found) -> Said:
        """A marker of thinking. A delegate's is discarded: only a lead closes the thinking."""
        start = len(self._tokens) - found.size
        if self.turn.kind == "delegate":
            return self._keep(start) or self._hand_back("marker")
        said = self._keep(start)
        if said is not None:
            return said
        self._ledger.show(found.before)
        while self._kept < len(self._tokens):
            said = self._keep_one(marker=True) or said
        self._released = self._fed = self._kept
        if said is not None:
            return said
        if found.marker == "open":
            self._ledger.show(found.after)
            return None
        self._ledger.end(self._meter.split())
        self._ledger.change_stage("answer")
        self._ledger.show(found.after)
        turn = Turn(self._answering(), "lead", "stage", "stage")
        if turn.role != self.turn.role:
            return turn
        self.turn = turn
        self._restart()
        return None

    def _thinks_not(self) -> bool:
        return self._detector.phase == "answer" and self._ledger.stage == "reasoning"

    def _no_thinking(self) -> None:
        """The model answers without opening its thinking."""
        self._ledger.no_thinking()
        self._session = self._start_session(thinking=False)
        self._session.begin(self.turn.role, self.turn.kind, "answer", self.turn.after)

    # Who is next.

    def _available(self, role: Role) -> bool:
        if role not in self._task.policy.roles or (role == "small" and self._solo):
            return False
        if self._room(role) >= _LEAST_ROOM:
            return True
        if role == "small":
            self._go_solo("the small model's context is full; the large one goes on alone")
        return False

    def _go_solo(self, note: str) -> None:
        self._solo = True
        self._ledger.note(note)

    def _finish(self, finish: Finish) -> Turn:
        return Turn(self.turn.role, "lead", "stage", finish, finish=finish)

    def _closing(self, why: str) -> Turn:
        return Turn(self.turn.role, "lead", "stage", why, closing=True)

    def _hand_back(self, after: After) -> Turn:
        role = other(self.turn.role)
        return Turn(role if self._available(role) else self.turn.role, "lead", after, after)

    def _looping(self) -> Turn:
        if self.turn.role == "small" and self._available("large"):
            return Turn("large", "lead", "loop", "loop")
        if self._ledger.stage == "reasoning":
            return self._closing("repetition")
        return self._finish("repetition")

    def close(self, end: End) -> Turn:
        """The stream ended and the policy had nothing to say to it."""
        said = self._keep(len(self._tokens))
        if said is not None:
            return said
        turn = self.turn
        if turn.kind == "delegate":
            return self._hand_back("turn" if end == "turn" else "limit")
        if end == "turn":
            thinking = self._ledger.stage == "reasoning"
            return self._closing("turn") if thinking else self._finish("stop")
        if end == "context" or not self._tokens:
            return self._out_of_room(turn)
        return Turn(turn.role, turn.kind, "limit", "limit")

    def _out_of_room(self, turn: Turn) -> Turn:
        if turn.role == "small" and self._available("large"):
            self._go_solo("the small model's context is full; the large one goes on alone")
            return Turn("large", "lead", "limit", "context")
        return self._finish("length")

    def failed(self, error: EngineError) -> Turn:
        """The engine on duty failed: what it wrote stays, the large one carries on.

        Raises:
            EngineError: nobody can stand in.
        """
        self._show_handoff()
        self._released = len(self._tokens)
        self._detector.flush()
        self._found = Found(0)
        if not self._contexts.shared:  # half a character cannot cross as text
            self._released = self._whole(self._released)
        said = self._advance()
        if not isinstance(said, Turn):
            said = self._keep(self._released)
        if self.turn.role == "large" or not self._available("large"):
            self.end(said or self._finish("cancelled"), time.perf_counter())
            raise error
        self._ledger.usage.fallbacks += 1
        self._ledger.events.append(
            FellBack("small", str(error), self._ledger.usage.completion_tokens)
        )
        self._failures += 1
        if not error.retryable or self._failures >= _PATIENCE:
            self._go_solo(f"the small model failed, the large one went on alone: {error}")
        return said or Turn("large", "lead", "failure", "failure")

    # After a request.

    def end(self, following: Turn, decided: float) -> None:
        """The engine request is over; `following` was decided at `decided` (perf_counter)."""
        discarded = len(self._tokens) - self._kept + self.surplus
        self._ledger.usage.of(self.turn.role).discarded += discarded
        if discarded:
            self._utf8.reset()
        self._detector.restore(self._ledger.stage)
        self._ledger.end(self._meter.stop())
        self._next(self._within_budget(following), decided, discarded)

    def answer(self) -> None:
        """The end of thinking was inserted: on to the answer."""
        self._detector.close()
        self._ledger.change_stage("answer")
        following = self._within_budget(Turn(self._answering(), "lead", "stage", "stage"))
        self._next(following, time.perf_counter(), 0)

    def _answering(self) -> Role:
        role = self._session.answer(self.turn.role)
        return role if role == self.turn.role or self._available(role) else self.turn.role

    def _within_budget(self, turn: Turn) -> Turn:
        limits, usage = self._task.limits, self._ledger.usage
        if turn.finish is not None:
            return turn
        inserting = len(self._opening.insertion) if turn.closing else 0
        if usage.completion_tokens + inserting >= limits.max_tokens:
            return self._finish("length")
        if turn.closing:
            return turn
        budget = limits.max_reasoning_tokens
        thought = usage.reasoning_tokens if self._ledger.stage == "reasoning" else 0
        if budget is not None and thought >= budget:
            return self._within_budget(self._closing("budget"))
        return self._out_of_room(turn) if self._room(turn.role) < 1 else turn

    def _next(self, turn: Turn, decided: float, discarded: int) -> None:
        previous, self.turn = self.turn, turn
        if turn.finish is not None:
            self._ledger.finish(turn.finish, self._utf8.finish())
        elif turn.role != previous.role:
            usage = self._ledger.usage
            usage.handoffs += 1
            event = HandedOff(
                previous.role,
                turn.role,
                turn.kind,
                turn.why,
                turn.cue,
                usage.completion_tokens,
                discarded,
                0.0,
            )
            self._handoff = (event, decided)

    def _show_handoff(self) -> None:
        if self._handoff is not None:
            event, decided = self._handoff
            self._handoff = None
            self._ledger.events.append(replace(event, seconds=time.perf_counter() - decided))
