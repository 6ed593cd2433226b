"""The desk: one generation's tokens on their way from an engine to the ledger.

Synchronous and without I/O. Each received piece becomes a token, passes the stage detector (which
may hold it as part of a marker) and the policy (which may take the last ones back), and is kept.
The answer to every step is None (go on), a `Turn` (who is next) or an `Ask` (probe first).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from ._contexts import Contexts
from ._errors import EngineError, EngineReplyError, PolicyError, RelayGenError
from ._ledger import Ledger
from ._meter import Meter
from ._opening import Opening
from ._own import shown
from ._sessions import broken, check_decision, check_hints, started
from ._task import Task
from ._turns import Turn, Turns
from ._types import ROLES, Constraint, End, Piece, Role, other
from .policies.base import STAY, Decision, HandOff, Hinting, Probe, Session, Start, Stay, Token
from .text.calls import CallSpan
from .text.repetition import RepetitionGuard
from .text.stages import Found, StageDetector
from .text.utf8 import Utf8


@dataclass(frozen=True, slots=True)
class Ask:
    """Probe this role before anything else is decided."""

    role: Role
    candidates: int = 2


Said = Turn | Ask | None


class Desk:
    """The tokens of one generation.

    Attributes:
        turns: who is on duty and who may be.
        written: tokens kept from the current engine request.
        surplus: tokens that the engine sent behind the last one that got here.
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
        self._half = b""  # of the kept text: the bytes of an incomplete last character
        self._loops = False
        self._guard = RepetitionGuard(task.limits.max_repeats)
        self._call = CallSpan(*task.calls) if task.calls else None
        self._formless = False  # the answer's form was lost with an engine
        self.turns = Turns(task, opening, ledger, contexts)
        self._detector = StageDetector(*opening.markers[self.turns.now.role], opening.phase)
        thinking = opening.phase != "answer"
        ledger.start("reasoning" if thinking else "answer", thinking=thinking)
        for note in (*task.notes, *opening.notes):
            ledger.note(note)
        self._session = self._start_session(thinking)

    def _start_session(self, thinking: bool) -> Session:
        wish = self._task.answer_role
        if self._task.thinking is not None and not thinking:
            wish = "relay"  # the thinking is closed or switched off: there is only an answer
        return started(self._task.policy, Start(self._seed, thinking, wish))

    def _asked(self, method: str, *said: Any) -> Any:
        """What the session answers; for all but `feed`, which is asked with every token.

        Raises:
            PolicyError: it raised something.
        """
        try:
            return getattr(self._session, method)(*said)
        except RelayGenError:
            raise
        except Exception as error:
            raise broken(self._task.policy, method, error) from error

    @property
    def constraint(self) -> Constraint | None:
        """What the next engine request must keep to."""
        if self._ledger.stage == "answer" and not self._formless:
            return self._task.constraint
        return None

    @property
    def hints(self) -> tuple[str, ...]:
        """Texts at which, where one is a token, the engine on duty may stop by itself."""
        steady = self.turns.solo or self.turns.calling or self.turns.paused
        if steady or self.constraint is not None or not isinstance(self._session, Hinting):
            return ()
        return check_hints(self._task.policy, self._asked("hints"))

    def begin(self, meter: Meter) -> None:
        """An engine request begins."""
        self._meter = meter
        self.written = self.surplus = 0
        self._detector.use(*self._opening.markers[self.turns.now.role])
        self._restart()

    def _restart(self) -> None:
        """A segment begins, with a request or, at a change of stage, inside one."""
        turn = self.turns.now
        self._tokens: list[Token] = []
        self._released = self._fed = self._kept = 0
        self._found = Found(0)
        self._deferred: HandOff | None = None
        self._ledger.begin(turn.role, cue=turn.cue, why=turn.why)
        self._asked("begin", turn.role, turn.kind, self._ledger.stage, turn.after)

    @property
    def received(self) -> int:
        """Tokens of the current engine request that got here."""
        return self.written + len(self._tokens) - self._kept

    # One piece.

    def receive(self, piece: Piece) -> Said:
        """One piece from the engine on duty.

        Raises:
            EngineReplyError: the engine hides its token ids, or this is none.
        """
        self.turns.arrived()
        try:
            if piece.id is None:
                if not self._opening.infos[self.turns.now.role].text_only:
                    raise EngineReplyError("the engine does not return token ids")
            elif piece.id < 0:
                raise TypeError
            text = self._utf8.feed(piece.data)
        except (AttributeError, TypeError):  # else the engine that is sent it next is blamed
            what = f"its stream brought what is no piece: {shown(piece)}"
            raise EngineReplyError(what, hint="its id is 0 or more, its data bytes") from None
        token = Token(len(self._tokens), text, self._utf8.whole, piece, self._ledger.stage)
        self._tokens.append(token)
        self._found = self._detector.feed(text, piece)
        self._released += self._found.released
        if not self._found.marker and self._detector.phase != self._ledger.stage == "reasoning":
            self._check_thinking()
            if self.constraint is not None:
                return self._formed()
        return self._advance()

    def answered(self, piece: Piece | None) -> Said:
        """The probe that was asked for, or None where it failed."""
        said = self._obey(self._unbroken(self._asked("probed", piece)), "probed")
        return said if said is not None else self._advance()

    def _advance(self) -> Said:
        """Feed what the stage detector released, then see to a marker and to the limit."""
        while self._fed < self._released:
            said = self._obey(self._decide())
            if said is not None:
                return said
        if self._found.marker:
            found, self._found = self._found, Found(0)
            return self._marker(found)
        full = self._fed >= self._task.limits.max_segment_tokens and not self.turns.calling
        if full and self._call is not None and self._call.opening:
            return None
        if self.turns.now.kind == "delegate" and full and self._tokens[self._fed - 1].whole:
            return self._keep(self._fed) or self.turns.hand_back("limit")
        return None

    def _decide(self) -> Decision:
        """Feed the policy one token; a hand-off waits for the end of a character."""
        token = self._tokens[self._fed]
        self._fed += 1
        if self._call is not None and self._ledger.stage == "answer":
            inside = self.turns.calling
            self.turns.calling = self._call.feed(token.text)
            if inside or self.turns.calling:
                return STAY
        if self.turns.solo or self.constraint is not None:
            return STAY
        if token.stage != self._ledger.stage:  # it changed while the token waited
            token = replace(token, stage=self._ledger.stage)
        try:
            decision = self._session.feed(token)
        except RelayGenError:
            raise
        except Exception as error:
            raise broken(self._task.policy, "feed", error) from error
        return self._unbroken(decision)

    def _unbroken(self, decision: Decision) -> Decision:
        """A hand-off at the last token fed waits until that ends a character."""
        token, waiting = self._tokens[self._fed - 1], self._deferred
        if waiting is None and isinstance(decision, HandOff) and decision.k == token.index:
            waiting = decision
        if waiting is None:
            return decision
        self._deferred = None if token.whole else waiting
        return replace(waiting, k=token.index) if token.whole else STAY

    def _obey(self, decision: Decision, method: str = "feed") -> Said:
        if decision is not STAY:
            check_decision(self._task.policy, method, decision)
        if isinstance(decision, Stay):
            return self._keep(self._whole(self._fed - decision.held))
        if isinstance(decision, HandOff):
            if not -1 <= decision.k < self._fed:
                raise PolicyError(
                    f"policy {self._task.policy.name!r} handed off at piece {decision.k} "
                    f"of {self._fed} that it was fed",
                    hint="k is the index of the last piece to keep, -1 for none",
                )
            role = other(self.turns.now.role)
            if not self.turns.admits(role, decision.kind):
                return self._keep(self._fed)
            turn = Turn(role, decision.kind, "handoff", decision.why, decision.cue)
            return self._keep(decision.k + 1) or turn
        said: Said = self._keep(self._fed)
        if said is not None:
            return said
        if isinstance(decision, Probe):
            ask = Ask(decision.role, decision.candidates)
            return ask if self.turns.available(ask.role) else self.answered(None)
        return self.turns.closing("policy") if self._ledger.stage == "reasoning" else None

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
        self._half = b"" if token.whole else self._half + token.piece.data
        self._ledger.keep(token, shown="" if marker else None)
        self._contexts.write(self.turns.now.role, token.piece, token.text, special=marker)
        if self._ledger.stopped:
            return self.turns.finish("stop")
        self._loops |= self._guard.feed(token.text if token.piece.id is None else token.piece.id)
        if self._loops and token.whole:
            self._loops = False
            self._guard.reset()
            return self.turns.looping()
        return None

    # Stages.

    def _marker(self, found: Found) -> Said:
        """A marker of thinking. A delegate's is discarded: only a lead closes the thinking."""
        said = self._keep(len(self._tokens) - found.size)
        if said is None and self.turns.now.kind == "delegate":
            return self.turns.hand_back("marker")
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
        if turn.role != self.turns.now.role or self._task.constraint is not None:
            return turn
        self.turns.now = turn
        self._restart()
        return None

    def _check_thinking(self) -> None:
        """Where the model answers without opening its thinking there is only an answer."""
        if self._detector.phase == "unopened":
            return
        self._ledger.no_thinking()
        self._session = self._start_session(thinking=False)
        now = self.turns.now
        self._asked("begin", now.role, now.kind, "answer", now.after)

    def _formed(self) -> Turn:
        """What came was written without its form: once more."""
        return Turn(self.turns.now.role, "lead", "stage", "stage")

    def _answering(self) -> Role:
        now = self.turns.now.role
        role: Role = self._asked("answer", now)
        if role not in ROLES:
            raise PolicyError(
                f"policy {self._task.policy.name!r}: answer must return 'large' or 'small', "
                f"not {shown(role)}"
            )
        return role if role == now or self.turns.admits(role, "lead") else now

    def insert(self, marker: str, text: str, ids: tuple[int, ...], why: str) -> None:
        """The loop writes the end of thinking: on to the answer."""
        self._ledger.complete(self._utf8.finish())
        self._half = b""
        self._contexts.insert(text, ids)
        self._ledger.insert(marker, text, ids, why)
        self._detector.close()
        self._ledger.change_stage("answer")
        self._proceed(Turn(self._answering(), "lead", "stage", "stage"), time.perf_counter(), 0)

    # The end of a request.

    def ended(self) -> Said:
        """The stream is over: nothing that waits for more text waits any longer."""
        self.turns.arrived()
        self._released += self._detector.flush().released
        if self._detector.phase == "unopened":
            self._detector.close()
            self._check_thinking()
            if self.constraint is not None:
                return self._formed()
        return self._advance()

    def close(self, end: End) -> Turn:
        """The stream ended and the policy had nothing to say to it."""
        said = self._keep(len(self._tokens))
        return said or self.turns.after_end(end, wrote=self.written > 0)

    def failed(self, error: EngineError) -> Turn:
        """The engine on duty failed: what it wrote stays, the other one carries on if it may.

        Raises:
            EngineError: nobody can stand in.
        """
        self.turns.arrived()
        rescued = self.turns.can_stand_in(other(self.turns.now.role))
        if not rescued:  # else half a marker is discarded: its rest would not be found
            self._released = len(self._tokens)
            self._detector.flush()
        self._found = Found(0)
        if not self._contexts.shared:  # half a character cannot cross as text
            self._released = self._whole(self._released)
        said = self._advance()
        if not isinstance(said, Turn):
            said = self._keep(self._released)
        if not rescued:
            self.end(said or self.turns.finish("cancelled"), time.perf_counter())
            raise error
        if self.constraint is not None and self.written:
            self._formless = True  # a form cannot be entered in its middle
            self._ledger.note("an engine failed in the answer, whose form is not certain any more")
        turn = self.turns.after_failure(error)
        return said or turn

    def end(self, following: Turn, decided: float) -> None:
        """The engine request is over; `following` was decided at `decided` (perf_counter)."""
        discarded = self._discard()
        if discarded:
            self._utf8.reset()
            self._utf8.feed(self._half)
        self._detector.restore(self._ledger.stage)
        self._ledger.end(self._meter.stop())
        self._proceed(following, decided, discarded)

    def abandon(self) -> None:
        """The caller gave up in the middle of a request."""
        self._discard()
        self._ledger.end(self._meter.stop())

    def _discard(self) -> int:
        """Count what the engine sent and the text does not hold."""
        discarded = self.received - self.written + self.surplus
        self._ledger.usage.of(self.turns.now.role).discarded += discarded
        return discarded

    def _proceed(self, turn: Turn, decided: float, discarded: int) -> None:
        self.turns.proceed(turn, decided, discarded, wrote=self.written > 0)
        finish = self.turns.now.finish
        if finish is None:
            return
        self._ledger.finish(finish, self._utf8.finish())
        silent = self._ledger.usage.first_answer_seconds is None and not self._ledger.stopped
        if finish == "stop" and silent:
            role = self.turns.now.role
            self._ledger.note(f"the answer is empty: the {role} model ended its turn before it")
