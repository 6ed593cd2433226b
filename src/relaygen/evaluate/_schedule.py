"""Which answers are wanted, in which order and with which seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._arms import Arm, SmallSpeculation, Speculation
from ._results import Key

if TYPE_CHECKING:
    from ._questions import Item

Decoding = tuple[Speculation, SmallSpeculation]
"""How the large and the small model decode."""


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
