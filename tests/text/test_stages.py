"""Where thinking opens and closes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen._types import Piece
from relaygen.text.stages import Found, Marker, Phase, StageDetector

from .support import cut, decoded

OPEN, CLOSE = Marker("<think>"), Marker("</think>")
OPEN_ID, CLOSE_ID = Marker("<think>", 7), Marker("</think>", 8)


def piece(id: int | None = None) -> Piece:
    return Piece(id, b"")


def feed(detector: StageDetector, texts: list[str]) -> list[Found]:
    return [detector.feed(text, piece()) for text in texts]


def by_text(phase: Phase) -> StageDetector:
    return StageDetector(OPEN, CLOSE, phase)


def by_id(phase: Phase) -> StageDetector:
    return StageDetector(OPEN_ID, CLOSE_ID, phase)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["a", "b"], [Found(1), Found(1)]),
        (["a", "</think>"], [Found(1), Found(0, "close", 1)]),
        (["a</think>b"], [Found(0, "close", 1, "a", "b")]),
        (["</", "think", ">"], [Found(0), Found(0), Found(0, "close", 3)]),
        (["a</", "think", ">b"], [Found(0), Found(0), Found(0, "close", 3, "a", "b")]),
        (["</", "thin", "g"], [Found(0), Found(0), Found(3)]),
        (["</", "</", "think>"], [Found(0), Found(1), Found(0, "close", 2)]),
        (["<", "<", "/think>"], [Found(0), Found(1), Found(0, "close", 2)]),
        (["<", "</think>"], [Found(0), Found(1, "close", 1)]),
        (["<", "", "x</think>y"], [Found(0), Found(0), Found(2, "close", 1, "x", "y")]),
        (["a<", "", "b"], [Found(0), Found(0), Found(3)]),
        (["", "</think>"], [Found(1), Found(0, "close", 1)]),
        (["a", "", "</", "think>"], [Found(1), Found(1), Found(0), Found(0, "close", 2)]),
        (["<think>", "a"], [Found(1), Found(1)]),  # it is open already
    ],
)
def test_the_end_of_thinking_by_text(texts: list[str], found: list[Found]) -> None:
    detector = by_text("reasoning")
    assert feed(detector, texts) == found
    assert detector.phase == ("answer" if found[-1].marker else "reasoning")


def test_the_end_of_thinking_by_id() -> None:
    detector = by_id("reasoning")
    assert detector.feed("</think>", piece(1)) == Found(1)  # text that merely spells it
    assert detector.feed("", piece(None)) == Found(1)
    assert detector.feed("</think>", piece(8)) == Found(0, "close", 1)
    assert detector.phase == "answer"
    assert detector.feed("</think>", piece(8)) == Found(1)  # there is nothing to close


@pytest.mark.parametrize(
    ("texts", "found", "phase"),
    [
        (["<think>", "a"], [Found(0, "open", 1), Found(1)], "reasoning"),
        (["\n", "<think>"], [Found(0), Found(1, "open", 1)], "reasoning"),
        (["\n<", "think", ">a"], [Found(0), Found(0), Found(0, "open", 3, "\n", "a")], "reasoning"),
        (["<", "think", "ing"], [Found(0), Found(0), Found(3)], "answer"),
        (["<", " "], [Found(0), Found(2)], "answer"),
        (["Hi", " <think>"], [Found(1), Found(1)], "answer"),
        (["", " ", "Hi"], [Found(0), Found(0), Found(3)], "answer"),
        (["</think>"], [Found(1)], "answer"),
        (["<think>a</think>"], [Found(0, "open", 1, "", "a</think>")], "reasoning"),
    ],
)
def test_a_model_that_opens_its_thinking(texts: list[str], found: list[Found], phase: str) -> None:
    detector = by_text("unopened")
    assert feed(detector, texts) == found
    assert detector.phase == phase


def test_a_model_that_opens_its_thinking_by_id() -> None:
    detector = by_id("unopened")
    assert detector.feed("\n", piece(1)) == Found(0)
    assert detector.feed("<think>", piece(7)) == Found(1, "open", 1)
    assert detector.phase == "reasoning"
    assert detector.feed("a", piece(1)) == Found(1)

    detector = by_id("unopened")
    assert detector.feed("", piece(7)) == Found(0, "open", 1)  # an engine that hides its text

    detector = by_id("unopened")
    assert detector.feed("\n", piece(1)) == Found(0)
    assert detector.feed("<think>", piece(1)) == Found(2)  # spelt, not meant
    assert detector.phase == "answer"


@pytest.mark.parametrize("by", [by_text, by_id])
def test_white_space_before_the_thinking_costs_no_memory(
    by: Callable[[Phase], StageDetector],
) -> None:
    detector = by("unopened")
    assert feed(detector, ["\n"] * 1000) == [Found(0)] * 1000
    assert not state_size(detector)
    assert detector.feed("<think>", piece(7)) == Found(1000, "open", 1)

    detector = by("unopened")
    feed(detector, ["\n"] * 10)
    assert detector.feed("Hi", piece()) == Found(11)
    feed(detector := by("unopened"), ["\n"] * 10)
    assert detector.flush() == Found(10)
    assert detector.flush() == Found(0)
    for forget in (StageDetector.close, lambda d: d.restore("reasoning")):
        feed(detector := by("unopened"), ["\n"] * 10)
        forget(detector)
        assert detector.flush() == Found(0)


def state_size(detector: StageDetector) -> int:
    return len(detector._waiting)


def test_an_answer_is_released_at_once() -> None:
    detector = by_text("answer")
    assert feed(detector, ["<", "think>", "</think>"]) == [Found(1)] * 3


def test_flush_releases_what_waits() -> None:
    detector = by_text("reasoning")
    feed(detector, ["a", "<", "/th"])
    assert detector.flush() == Found(2)
    assert detector.flush() == Found(0)
    assert feed(detector, ["ink>"]) == [Found(1)]  # the beginning is gone
    assert detector.phase == "reasoning"


def test_the_next_writer_has_markers_of_its_own() -> None:
    detector = by_id("reasoning")
    detector.use(OPEN, Marker("<|done|>"))
    assert detector.feed("</think>", piece(8)) == Found(1)
    assert detector.feed("<|done|>", piece(8)) == Found(0, "close", 1)


def test_restore_takes_a_marker_back() -> None:
    detector = by_text("reasoning")
    feed(detector, ["a", "</think>"])
    detector.restore("reasoning")
    assert detector.phase == "reasoning"
    assert feed(detector, ["</think>"]) == [Found(0, "close", 1)]
    feed(detector := by_text("reasoning"), ["<"])
    detector.restore("reasoning")
    assert feed(detector, ["/think>"]) == [Found(1)]


def test_restore_leaves_an_unopened_stage_unopened() -> None:
    detector = by_text("unopened")
    feed(detector, ["\n"])
    detector.restore("reasoning")
    assert detector.phase == "unopened"
    assert feed(detector, ["<think>"]) == [Found(0, "open", 1)]


def test_close() -> None:
    detector = by_text("reasoning")
    feed(detector, ["<"])
    detector.close()
    assert detector.phase == "answer"
    assert feed(detector, ["/think>"]) == [Found(1)]


PARTS = ("a", " ", "好", "<", "</", "think", ">", "</thin", "k>", "</think>", "<think>", "\n")


@settings(deadline=None, max_examples=400)
@given(st.data(), st.lists(st.sampled_from(PARTS), max_size=12))
def test_any_tokenisation_finds_the_marker_at_the_same_place(
    data: st.DataObject, parts: list[str]
) -> None:
    text = "".join(parts)
    tokens = decoded(data.draw(cut(text.encode())))
    detector = by_text("reasoning")
    at = text.find("</think>")
    start = 0  # of the oldest token that waits
    waiting: list[str] = []
    for number, (part, _) in enumerate(tokens):
        waiting.append(part)
        found = detector.feed(part, piece())
        released = "".join(waiting[: found.released])
        del waiting[: found.released]
        start += len(released)
        assert at < 0 or start <= at  # never a token of the marker
        if found.marker:
            assert start + len(found.before) == at
            assert found.size == len(waiting)
            assert "".join(waiting) == found.before + "</think>" + found.after
            assert len(waiting[0]) > len(found.before)  # none too many
            rest = [detector.feed(t, piece()) for t, _ in tokens[number + 1 :]]
            assert all(f == Found(1) for f in rest)
            return
        # Nothing waits that could not begin a marker.
        held = "".join(waiting)
        assert any(held.endswith("</think>"[:n]) for n in range(1, 8)) or not waiting
        assert len(waiting[0]) + 8 > len(held) if waiting else True
    assert at < 0


@settings(deadline=None, max_examples=300)
@given(st.data(), st.lists(st.sampled_from(PARTS), max_size=8))
def test_any_tokenisation_opens_at_the_same_place(data: st.DataObject, parts: list[str]) -> None:
    text = "".join(parts)
    detector = by_text("unopened")
    shown = 0
    fed = ""
    opened: int | None = None
    for part, _ in decoded(data.draw(cut(text.encode()))):
        found = detector.feed(part, piece())
        fed += part
        if found.marker == "open":
            opened = len(fed) - len(found.after)
            break
        shown += found.released
    expected = text.lstrip().startswith("<think>")
    assert (opened is not None) == expected
    if opened is not None:
        assert text[:opened].lstrip() == "<think>"
        assert shown == 0
    elif text.strip() and not "<think>".startswith(text.lstrip()):
        assert detector.phase == "answer"
    else:
        assert detector.phase == "unopened"
