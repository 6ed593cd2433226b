"""The record of what was asked and written, and when: the basis of every measurement."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_ENTRIES = 16_384


@dataclass(slots=True)
class Entry:
    """One generation request. Times are seconds of `time.monotonic`.

    Attributes:
        number: counted from 0 since the engine's start.
        id: the reply's id.
        session: the ``x-session-id`` header.
        path: the route.
        received_bytes: of the request's body.
        started: when it arrived.
        start: the trace position at which it began; None where the ids sent fit no position.
        prompt_tokens, cached_tokens: of the prompt, and of these the cached ones.
        prefill_s: what it takes before the first token is begun: the uncached tokens' prefill
            and the time that every request takes.
        token_s: what each token takes.
        tokens: written so far.
        ids: the same.
        emitted: when each was sent.
        finish: the finish reason; None while it runs, and where it did not come to one.
        ended: when it was over; None while it runs.
        aborted: the client went away.
        failure: the kind of what befell it, or ``off trace``; "" for nothing.
        request: the body without its prompt or messages.
        headers: of the request.
    """

    number: int
    id: str
    session: str
    path: str
    received_bytes: int
    started: float
    start: int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_s: float = 0.0
    token_s: float = 0.0
    tokens: int = 0
    ids: list[int] = field(default_factory=list)
    emitted: list[float] = field(default_factory=list)
    finish: str | None = None
    ended: float | None = None
    aborted: bool = False
    failure: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class Log:
    """The latest requests, and counters over all.

    Attributes:
        running: requests under way.
        prompt_tokens, generation_tokens: over all requests.
        finished: requests by finish reason (``abort`` for those that did not come to one).
    """

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=_ENTRIES)
        self._number = 0
        self.running = 0
        self.prompt_tokens = self.generation_tokens = 0
        self.finished: Counter[str] = Counter()

    def open(self, **values: Any) -> Entry:
        """A request arrived."""
        entry = Entry(number=self._number, **values)
        self._number += 1
        self._entries.append(entry)
        return entry

    def clear(self) -> None:
        """Forget the entries; the counters stay."""
        self._entries.clear()

    def entries(self, session: str | None = None) -> list[dict[str, Any]]:
        """As JSON values, the oldest first."""
        return [asdict(e) for e in self._entries if session is None or e.session == session]


def own_time(entries: Iterable[Mapping[str, Any]], kept: int | None = None) -> float:
    """The seconds that one engine itself needs for these requests: prefill and decode.

    A relayed generation's own time is this sum over both engines, each with the tokens that were
    kept of it: what a perfect relay would take.

    Args:
        entries: of the engine's log.
        kept: how many tokens count; None: all that it wrote.
    """
    entries = list(entries)
    prefill = sum(float(entry["prefill_s"]) for entry in entries)
    if kept is None:
        return prefill + sum(float(e["token_s"]) * int(e["tokens"]) for e in entries)
    return prefill + kept * max((float(e["token_s"]) for e in entries), default=0.0)
