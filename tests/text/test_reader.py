"""Cues and sentence ends token by token: what is kept, what is taken back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen.text.cues import CueSet
from relaygen.text.reader import Reader, Reading

from .support import cut, decoded, read, state, texts, tokenised, words


def kept(tokens: list[bytes]) -> list[bytes]:
    """The tokens of the first sentence, as a delegate's hand-off keeps them; all if none ends."""
    reader = Reader()
    for index, (text, whole) in enumerate(decoded(tokens)):
        reading = reader.feed(text, whole)
        if reading.end:
            return tokens[: index + 1 - (reading.held if reading.end == "before" else 0)]
    return tokens


HALVES = "😀".encode()
WIDE_SPACE = "\u3000".encode()


@pytest.mark.parametrize(
    ("tokens", "count"),
    [
        ([b"It", b" is", b".", b" Then"], 3),  # the next word is discarded
        ([b"It", b" is", b".", b" ", b"Then"], 4),  # white space alone is kept
        ([b"It", b" is", b".", b"\n", b"Then"], 4),
        ([b"It", b" is", b".", b"\n\n", b"Then"], 4),
        ([b"It", b" is", b".", b"\r\n", b"Then"], 4),
        ([b"It", b" is", b".", b"\t", b"Then"], 4),
        ([b"It", b" is", b".", b"\n\nThen"], 3),
        ([b"It", b" is", b".\n", b"Then"], 3),  # decides at once
        ([b"It", b" is", b".\n\n", b"Then"], 3),
        ([b"It", b" is", b". ", b"Then"], 3),
        ([b"It", b" is", b". Then"], 3),  # one token: nothing could be taken back
        ([b"It", b" is", b"\n", b"\n", b"Then"], 4),
        ([b"It", b" is", b"\n", b"\nThen"], 4),
        ([b"It", b".", b"5", b"\n", b"\nThen"], 5),
        ([b"It", b" is", b"!", b" Then"], 3),
        ([b"It", b" is", b"?", b" Then"], 3),
        ([b"It", b" is", b'."', b" Then"], 3),
        ([b"It", b" is", b".", b'"', b" Then"], 4),  # closing marks belong to the sentence
        ([b"It", b" is", b".", b")", b"\n", b"Then"], 5),
        ([b"It", b" is", b".", b"**", b" Then"], 4),
        ([b"It", b" is", b".", b") Then"], 4),
        ([b"It", b" is", b".", b" So. On"], 3),  # its own end is for the next reader
        ([b"It", b" is", b".", b".", b".", b" Then"], 5),
        ([b"It", b" is", b"...", b" Then"], 3),
        ([b"It", b" is", b"3", b".", b"14", b".", b" Then"], 6),
        ([b"It", b" is", b"3", b".", b" ", b"14"], 5),
        (["好".encode(), "。".encode(), "对".encode()], 2),
        (["好".encode(), "。对".encode(), b"."], 2),
        ([b"It", b"?", "。".encode(), b" Then"], 3),  # the full stop itself belongs to it
        ([b"It", b".", HALVES, b" Then"], 4),  # no end at all
        ([b"It", b".", HALVES[:2], HALVES[2:], b" Then"], 5),
        ([b"It", b".", b" " + HALVES[:1], HALVES[1:]], 2),  # half a character is not white space
        ([b"It", b".", b"", b" Then"], 2),  # an empty token looks ahead as well
        ([b"It", b".", WIDE_SPACE[:1], WIDE_SPACE[1:], b"Then"], 4),
        ([b"It", b".", WIDE_SPACE[:1], WIDE_SPACE[1:] + b"Then"], 2),
        ([b"It", b"." + WIDE_SPACE[:1], WIDE_SPACE[1:] + b"Then"], 3),  # shares the token
        ([b"It", b".", b"\xff", b" Then"], 4),  # what is no UTF-8 is a character of its own
    ],
)
def test_what_a_sentence_keeps(tokens: list[bytes], count: int) -> None:
    assert kept(tokens) == tokens[:count]


def test_held_counts_what_may_be_taken_back() -> None:
    tokens = [b"It", b".", HALVES[:1], HALVES[1:2], HALVES[2:], b".", b"", b" No"]
    reader = Reader()
    readings = [reader.feed(text, whole) for text, whole in decoded(tokens)]
    assert [r.held for r in readings] == [0, 0, 1, 2, 0, 0, 1, 2]
    assert [r.end for r in readings] == ["", "", "", "", "", "", "", "before"]


def test_a_closing_mark_is_no_longer_held() -> None:
    readings = read(Reader(), ["It", ".", "", ")", "", " No"])
    assert [r.held for r in readings] == [0, 0, 1, 0, 1, 2]


def test_an_end_that_nobody_acts_on_leaves_nothing_held() -> None:
    """A large lead reads on over its own sentence ends."""
    reader = Reader()
    tokens = [b"A", b".", b" b.", WIDE_SPACE[:1], WIDE_SPACE[1:] + b"C"]
    readings = [reader.feed(text, whole) for text, whole in decoded(tokens)]
    assert [(r.end, r.held) for r in readings] == [
        ("", 0),
        ("", 0),
        ("before", 1),
        ("", 1),
        ("before", 2),
    ]


def test_cut_makes_a_pending_terminator_an_end() -> None:
    reader = Reader()
    fresh = [reader.fresh]
    for token in ("It", " is", "."):
        reader.feed(token)
        fresh.append(reader.fresh)
    reader.cut()
    fresh.append(reader.fresh)
    assert [r.end for r in read(reader, [" Then", " x"])] == ["", ""]
    fresh.append(reader.fresh)
    assert fresh == [True, False, False, False, True, False]


@pytest.mark.parametrize("pending", ["e.g", "5!", "3"])
def test_cut_does_so_even_for_an_exception(pending: str) -> None:
    reader = Reader()
    read(reader, [pending, "."])
    reader.cut()
    assert reader.fresh


def test_cut_in_mid_sentence_changes_nothing() -> None:
    reader, other = Reader(), Reader()
    read(reader, ["It", " is `"])
    read(other, ["It", " is `"])
    reader.cut()
    assert state(reader) == state(other)


def test_rewind_takes_back_what_was_read_ahead() -> None:
    reader = Reader(CueSet(["Then", "is"]))
    assert read(reader, ["It", " is", ".", " `Then"])[-1] == Reading(None, "before", 1)
    reader.rewind()
    assert reader.fresh
    assert read(reader, [" Then"]) == [Reading("Then", "", 0)]  # no span was opened


def test_rewinding_with_nothing_to_take_back_ends_the_sentence_here() -> None:
    reader = Reader()
    read(reader, ["It", " is", " `"])
    reader.rewind()
    assert reader.fresh
    assert read(reader, ["a", ".", " b"])[-1].end == ""  # the span is still open


def test_a_cue_may_begin_in_one_segment_and_end_in_the_next() -> None:
    reader = Reader(CueSet(["in conclusion"]))
    read(reader, ["So", " in"])
    reader.cut()
    assert read(reader, [" conclusion"])[0].cue == "in conclusion"


def test_the_longest_cue_of_a_token() -> None:
    reader = Reader(CueSet(["So", "Now,", "Thus"]))
    assert reader.feed("So Now, Thus").cue == "Now,"
    assert reader.feed(" Thus So").cue == "Thus"


def test_cue_and_end_in_one_token() -> None:
    reader = Reader(CueSet(["Then"]))
    assert read(reader, ["It", ".", " Then"])[-1] == Reading("Then", "before", 1)


def test_markers_are_found_where_no_cue_is() -> None:
    reader = Reader(CueSet(["boxed", "="]), CueSet(["\\boxed{", "####", "Final answer"]))
    readings = read(reader, ["$x", " =", " \\", "boxed", "{", "5", "}$", "\n", "####", " 5", "\n"])
    assert [r.marker for r in readings] == [
        *(None, None, None, None, "\\boxed{"),
        *(None, None, None, "####", None, None),
    ]
    assert [r.cue for r in readings if r.cue is not None] == ["="]
    assert [r.sealed for r in readings] == [
        *(False, False, False, False, True),
        *(True, False, False, True, True, False),
    ]
    assert read(reader, ["Final", " answer"])[1].marker == "Final answer"


@pytest.mark.parametrize(
    ("tokens", "sealed"),
    [
        (["####", " yes", ".", " \nThus"], True),  # kept through ".", still on that line
        (["####", " yes", ".", " \n", "Thus"], False),
        (["It", " is", ".", "\n####"], False),
        (["\\boxed{", "a", ".", " } b"], True),
        (["\\boxed{", "a", "}", ".", " b"], False),
    ],
)
def test_sealed_is_asked_at_the_place_that_is_kept(tokens: list[str], sealed: bool) -> None:
    reading = next(r for r in read(Reader(), tokens) if r.end)
    assert reading.sealed is sealed


def test_sealed_of_the_reader_is_that_of_its_last_character() -> None:
    reader = Reader()
    reader.feed("\\boxed{")
    assert reader.sealed
    read(reader, ["5}", "."])
    assert not reader.sealed


def test_long_cues_are_found_whole() -> None:
    """The scanner keeps as much as the longest cue or marker and its left bound need."""
    long = "x" * 300
    for reader in (Reader(CueSet([long])), Reader(None, CueSet([long]))):
        reading = read(reader, ["a ", long])[1]
        assert long in (reading.cue, reading.marker)
    for reader in (Reader(CueSet([long])), Reader(None, CueSet([long]))):
        reading = read(reader, ["a", long])[1]
        assert (reading.cue, reading.marker) == (None, None)


def ends_by_character(text: str) -> list[int]:
    """The characters that decide an end."""
    reader = Reader()
    return [index for index, char in enumerate(text) if reader.feed(char).end]


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_all_tokenisations_agree_on_the_sentences(data: st.DataObject) -> None:
    text = data.draw(texts())
    tokens = data.draw(cut(text.encode()))
    deciding = set(ends_by_character(text))
    reader, place = Reader(), 0
    for part, whole in decoded(tokens):
        end = reader.feed(part, whole).end
        here = {index - place for index in deciding if place <= index < place + len(part)}
        assert bool(end) == bool(here)
        if end == "before":
            assert min(here) == 0
            assert part[0].isspace()
            assert not (whole and part.isspace())
        place += len(part)
    assert place == len(text)


@settings(deadline=None, max_examples=300)
@given(tokenised())
def test_no_token_of_the_sentence_is_excluded_and_none_of_the_next_is_kept(
    tokens: list[bytes],
) -> None:
    """With `before`, the kept tokens are whole characters up to the terminator."""
    reader = Reader()
    texts_ = decoded(tokens)
    for index, (text, whole) in enumerate(texts_):
        reading = reader.feed(text, whole)
        assert 0 <= reading.held <= index
        if reading.end != "before":
            continue
        last = index - reading.held
        assert texts_[last][1]  # never inside a character
        assert b"".join(tokens[: last + 1]).decode().rstrip("\"'”’»)]}*_")[-1] in ".!?"
        excluded = b"".join(tokens[last + 1 : index + 1])
        assert excluded.decode(errors="ignore")[:1].isspace()


@settings(deadline=None, max_examples=300)
@given(tokenised())
def test_rewinding_is_as_never_having_looked_ahead(tokens: list[bytes]) -> None:
    cues, markers = CueSet(["Thus", "now", "x", "="]), CueSet(["\\boxed{"])
    reader, texts_ = Reader(cues, markers), decoded(tokens)
    fed: list[tuple[str, bool]] = []
    index = 0
    rewound = -1
    while index < len(texts_):
        reading = reader.feed(*texts_[index])
        fed.append(texts_[index])
        index += 1
        if reading.end == "before" and index > rewound:
            rewound = index
            reader.rewind()
            index -= reading.held
            del fed[len(fed) - reading.held :]
            innocent = Reader(cues, markers)
            for text, whole in fed:
                innocent.feed(text, whole)
            innocent.cut()
            assert state(reader) == state(innocent)


@settings(deadline=None, max_examples=200)
@given(texts())
def test_hand_offs_at_all_ends_find_the_ends_of_a_text_read_in_one_go(text: str) -> None:
    tokens = re.findall(r" ?\w+|\W", text)  # no token both ends a sentence and holds another end
    ends = [index for index, reading in enumerate(read(Reader(), tokens)) if reading.end]
    reader, found, index = Reader(), [], 0
    while index < len(tokens):
        reading = reader.feed(tokens[index])
        index += 1
        if reading.end:
            found.append(index - 1)
        if reading.end == "here":
            reader.cut()
        elif reading.end == "before":
            reader.rewind()
            again = read(reader, tokens[index - reading.held : index])
            assert not any(r.end for r in again)  # the next sentence has only begun
    assert found == ends


@settings(deadline=None, max_examples=25)
@given(texts())
def test_state_does_not_grow_with_the_text(text: str) -> None:
    reader = Reader(CueSet(["Thus", "So"]))
    for word in words(text) * 40:
        reader.feed(word)
        assert longest(state(reader)) <= 64


def longest(value: object) -> int:
    if isinstance(value, dict):
        return max((longest(part) for part in value.values()), default=0)
    if isinstance(value, tuple):
        return max(map(longest, value), default=0)
    return len(value) if isinstance(value, str | list) else 0
