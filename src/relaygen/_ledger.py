"""The record of a generation: kept tokens, segments, channels, events and counts.

Append-only: what was written down once is never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

from ._events import Event, Inserted, StageChanged, Text
from ._results import Finish, Generation, Segment, Usage
from ._types import Stage, Writer
from .policies.base import Token
from .text.stops import StopFilter


class Ledger:
    """Writes down what was kept and queues the events that show it.

    Args:
        stops: the client's stop strings, which act on the answer.
        elapsed: seconds since the request.

    Attributes:
        stage: the current stage.
        finished: why the generation ended; None while it runs.
    """

    def __init__(self, *, stops: tuple[str, ...], elapsed: Callable[[], float]) -> None:
        self.stage: Stage = "answer"
        self.finished: Finish | None = None
        self.events: list[Event] = []
        self.usage = Usage()
        self.notes: list[str] = []
        self._thinking = False
        self._stops = StopFilter(stops)
        self._elapsed = elapsed
        self._segments: list[Segment] = []
        self._channels: dict[Stage, list[str]] = {"reasoning": [], "answer": []}
        self._begun: set[Stage] = set()  # channels that hold or hold back more than white space
        self._writer: Writer = "large"
        self._cue = self._why = ""
        self._texts: list[str] = []
        self._ids: list[int | None] = []

    def start(self, stage: Stage, *, thinking: bool) -> None:
        """The stage at the start, and whether reasoning and answer are separate channels."""
        self.stage = stage
        self._thinking = thinking

    def take_events(self) -> list[Event]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    @property
    def stopped(self) -> bool:
        """A stop string is complete."""
        return self._stops.stopped

    def begin(self, writer: Writer, *, cue: str = "", why: str = "") -> None:
        """A segment begins; the one before must have been ended."""
        self._writer, self._cue, self._why = writer, cue, why

    def keep(self, token: Token, *, shown: str | None = None) -> None:
        """A token is final. `shown` is its text without a marker's part."""
        self._texts.append(token.text)
        self._ids.append(token.piece.id)
        self.usage.of("large" if self._writer == "large" else "small").tokens += 1
        if self.stage == "reasoning":
            self.usage.reasoning_tokens += 1
        self.show(token.text if shown is None else shown)

    def show(self, text: str) -> None:
        """Text of the current channel becomes visible."""
        if self._thinking and self.stage not in self._begun:
            text = text.lstrip()
            if text:
                self._begun.add(self.stage)
        if self.stage == "answer":
            text = self._stops.feed(text)
        self._emit(text)

    def _emit(self, text: str) -> None:
        if not text:
            return
        usage = self.usage
        if usage.first_token_seconds is None:
            usage.first_token_seconds = self._elapsed()
        if self.stage == "answer" and usage.first_answer_seconds is None:
            usage.first_answer_seconds = self._elapsed()
        self._channels[self.stage].append(text)
        self.events.append(Text(text, self._writer, self.stage))

    def end(self, seconds: float) -> None:
        """The segment ends; an empty one leaves no record."""
        if self._ids:
            self._segments.append(self._open_segment(seconds))
        self._texts, self._ids = [], []

    def _open_segment(self, seconds: float = 0.0) -> Segment:
        text = "".join(self._texts)
        return Segment(
            self._writer, self.stage, text, tuple(self._ids), self._cue, self._why, seconds
        )

    def insert(self, marker: str, text: str, ids: tuple[int, ...], why: str) -> None:
        """The loop wrote a marker: a segment of its own, in neither model's share."""
        self._segments.append(Segment("inserted", self.stage, text, ids, "", why))
        self.usage.inserted_tokens += len(ids)
        if self.stage == "reasoning":
            self.usage.reasoning_tokens += len(ids)
        self.events.append(Inserted(marker, text, len(ids), why))

    def change_stage(self, stage: Stage) -> None:
        """From here on everything belongs to `stage`."""
        self.stage = stage
        self.events.append(StageChanged(stage, self.usage.completion_tokens))

    def no_thinking(self) -> None:
        """The model answers at once: one channel, shown as it is."""
        self._thinking = False
        self.change_stage("answer")

    def note(self, line: str) -> None:
        """Something the user should know; said once."""
        if line not in self.notes:
            self.notes.append(line)

    def finish(self, finish: Finish, rest: str) -> None:
        """The text is over: show what was held back. `rest` is an incomplete last character."""
        self.finished = finish
        self.complete(rest)
        if self.stage == "answer" and not self.stopped:
            self._emit(self._stops.flush())
        self.usage.seconds = self._elapsed()

    def complete(self, rest: str) -> None:
        """Nobody completes the last segment's last character: `rest` stands for it."""
        if rest and self._segments:
            last = self._segments[-1]
            self._segments[-1] = replace(last, text=last.text + rest)
            self.show(rest)

    def generation(self) -> Generation:
        """Everything so far; valid at any time."""
        segments = list(self._segments)
        if self._ids:
            segments.append(self._open_segment())
        if self.finished is None:
            self.usage.seconds = self._elapsed()
        return Generation(
            text="".join(segment.text for segment in segments),
            reasoning="".join(self._channels["reasoning"]),
            answer="".join(self._channels["answer"]),
            segments=tuple(segments),
            usage=deepcopy(self.usage),  # a result does not change while others go on
            finish=self.finished or "cancelled",
            notes=tuple(self.notes),
        )
