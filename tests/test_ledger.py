"""The ledger: append-only records, channels, stops."""

from __future__ import annotations

from relaygen import StageChanged, Text
from relaygen._ledger import Ledger
from relaygen._types import Piece, Stage
from relaygen.policies import Token


def ledger(*stops: str) -> Ledger:
    ticks = iter(range(1, 1000))
    return Ledger(stops=stops, elapsed=lambda: float(next(ticks)))


def keep(book: Ledger, *texts: str) -> None:
    for number, text in enumerate(texts):
        book.keep(Token(number, text, True, Piece(number, text.encode()), book.stage))


def shown(book: Ledger, stage: Stage) -> str:
    return "".join(e.text for e in book.events if isinstance(e, Text) and e.stage == stage)


def test_segments_and_counts() -> None:
    book = ledger()
    book.begin("large")
    keep(book, "a", "b")
    book.end(1.5)
    book.begin("small", cue="Thus", why="cue")
    book.end(0.1)
    book.begin("small", cue="Now", why="cue")
    keep(book, "c")
    book.end(0.5)
    book.insert("end_of_thinking", "X", (7, 8), "budget")
    book.finish("stop", "")
    generation = book.generation()
    assert [(s.role, s.text, s.cue, s.seconds) for s in generation.segments] == [
        ("large", "ab", "", 1.5),
        ("small", "c", "Now", 0.5),
        ("inserted", "X", "", 0.0),
    ]
    usage = generation.usage
    assert (usage.large_tokens, usage.small_tokens, usage.inserted_tokens) == (2, 1, 2)
    assert usage.completion_tokens == 5
    assert usage.utilization == 2 / 3
    assert generation.ids == (0, 1, 0, 7, 8)


def test_channels_begin_without_white_space_only_where_there_is_thinking() -> None:
    book = ledger()
    book.start("reasoning", thinking=True)
    book.begin("large")
    keep(book, "\n", " a", " b")
    book.change_stage("answer")
    keep(book, "\n\n", "c")
    assert (shown(book, "reasoning"), shown(book, "answer")) == ("a b", "c")
    plain = ledger()
    plain.begin("large")
    keep(plain, "\n", "a")
    assert shown(plain, "answer") == "\na"


def test_first_texts_are_timed_by_channel() -> None:
    book = ledger()
    book.start("reasoning", thinking=True)
    book.begin("large")
    keep(book, "a", "b")
    assert (book.usage.first_token_seconds, book.usage.first_answer_seconds) == (1.0, None)
    book.change_stage("answer")
    keep(book, "c")
    assert book.usage.first_answer_seconds == 2.0
    assert any(isinstance(event, StageChanged) for event in book.events)


def test_stops_act_on_the_answer() -> None:
    book = ledger("b")
    book.start("reasoning", thinking=True)
    book.begin("large")
    keep(book, "abc")
    before = book.stopped
    book.change_stage("answer")
    keep(book, "abc")
    assert (before, book.stopped) == (False, True)
    assert shown(book, "answer") == "a"


def test_what_a_stop_filter_held_back_is_shown_at_the_end() -> None:
    book = ledger("end")
    book.begin("large")
    keep(book, "the en")
    assert shown(book, "answer") == "the "
    book.end(0.0)
    book.finish("stop", "")
    assert book.generation().answer == "the en"


def test_an_incomplete_last_character_is_part_of_the_text() -> None:
    book = ledger()
    book.begin("large")
    keep(book, "a", "")
    book.end(0.0)
    book.finish("length", "�")
    generation = book.generation()
    assert generation.text == generation.answer == "a�"
    assert generation.segments[-1].text == "a�"


def test_a_snapshot_holds_the_open_segment() -> None:
    book = ledger()
    book.begin("large")
    keep(book, "a")
    first = book.generation()
    keep(book, "b")
    assert (first.text, book.generation().text, first.finish) == ("a", "ab", "cancelled")


def test_notes_are_said_once() -> None:
    book = ledger()
    book.note("x")
    book.note("x")
    assert book.generation().notes == ("x",)


def test_a_result_does_not_change_afterwards() -> None:
    book = ledger()
    book.begin("large")
    keep(book, "a")
    early = book.generation()
    keep(book, "b")
    book.end(1.0)
    book.finish("stop", "")
    result = book.generation()
    assert (early.usage.large_tokens, result.usage.large_tokens) == (1, 2)
    assert book.generation().usage.seconds == result.usage.seconds > early.usage.seconds
