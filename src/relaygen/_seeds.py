"""One seed a segment: the same seed on every segment would restart the same random stream."""

from __future__ import annotations

import hashlib


def segment_seed(seed: int | None, choice: int, segment: int) -> int | None:
    """The seed of one engine request.

    Segment 0 of choice 0 uses `seed` itself, so that one model alone draws what it draws without
    a relay; the others use 31 bits of a hash of all three. None stays None.
    """
    if seed is None or (choice == 0 and segment == 0):
        return seed
    digest = hashlib.sha256(f"{seed}:{choice}:{segment}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFF_FFFF
