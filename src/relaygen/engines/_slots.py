"""Which conversation holds which cache slot of a llama-server."""

from __future__ import annotations

from collections.abc import Sequence

ANY = -1
"""As a slot: the server chooses, and the conversation's cached prefix may be lost."""


class Slots:
    """Leases slots to sessions, for as long as a session lives.

    Args:
        total: slots that the server has.

    Attributes:
        slotless: conversations that found no free slot when they asked.
    """

    def __init__(self, total: int) -> None:
        self._free = list(range(total))  # longest free first
        self._holds: dict[int, Sequence[int]] = {}
        self._leases: dict[str, int] = {}
        self._waiting: set[str] = set()
        self.slotless = 0

    def lease(self, session: str, ids: Sequence[int]) -> int:
        """The session's slot, `ANY` while there is none for it.

        Args:
            session: the conversation's name.
            ids: what it is about to send. Of the free slots it gets the one that holds the
                longest beginning of that: the next turn of a chat is a session of its own.
        """
        slot = self._leases.get(session)
        if slot is None and self._free:
            slot = max(self._free, key=lambda each: _common(self._holds.get(each, ()), ids))
            self._free.remove(slot)
            self._leases[session] = slot
            self._waiting.discard(session)
        if slot is None:
            self.slotless += session not in self._waiting
            self._waiting.add(session)
            return ANY
        self._holds[slot] = ids
        return slot

    def held(self, session: str) -> int | None:
        """The session's slot, None where it has none."""
        return self._leases.get(session)

    def release(self, session: str) -> None:
        """The session is over."""
        self._waiting.discard(session)
        if session in self._leases:
            self._free.append(self._leases.pop(session))


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the common beginning."""
    pairs = zip(left, right, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
