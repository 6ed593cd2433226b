from __future__ import annotations

from relaygen.engines._slots import ANY, Slots


def test_leases() -> None:
    slots = Slots(2)
    assert [slots.lease(session, [1]) for session in "abab"] == [0, 1, 0, 1]
    assert [slots.lease("c", [1]) for _ in range(3)] == [ANY] * 3
    assert slots.slotless == 1  # conversations, not requests
    slots.release("b")
    slots.release("b")
    assert slots.lease("c", [1]) == 1
    assert slots.lease("d", [1]) == ANY
    assert slots.slotless == 2
    slots.release("d")
    assert slots.lease("d", [1]) == ANY
    assert slots.slotless == 3


def test_the_next_turn_of_a_chat_finds_its_slot() -> None:
    slots = Slots(3)
    for session, ids in (("a", [1, 2, 3]), ("b", [1, 2, 9]), ("c", [])):
        slots.lease(session, ids)
    slots.lease("b", [1, 2, 9, 10])
    for session in "abc":
        slots.release(session)
    assert slots.lease("again", [1, 2, 9, 10, 11]) == 1
    assert slots.lease("other", [1, 2, 4]) == 0


def test_else_the_longest_free_slot_is_leased() -> None:
    slots = Slots(2)
    for session in "ab":
        slots.lease(session, [5])
    slots.release("b")
    slots.release("a")
    assert slots.lease("c", [7]) == 1


def test_no_slots() -> None:
    assert Slots(0).lease("a", [1]) == ANY
