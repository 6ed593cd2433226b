from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from relaygen.mock import Trace, Vocabulary, load_trace
from relaygen.mock._vocabulary import EOS, SIZE, SPECIAL, START, byte_level

TRACE = load_trace("short")
VOCABULARY = Vocabulary(TRACE)


@given(st.text())
def test_text_survives_its_ids(text: str) -> None:
    for special in (False, True):
        ids = VOCABULARY.encode(text, special=special)
        assert VOCABULARY.decode(ids) == text.encode(errors="replace")


@given(st.binary())
def test_bytes_survive_their_ids(data: bytes) -> None:
    assert VOCABULARY.decode(VOCABULARY.encode(data)) == data


def test_every_token_of_the_trace_has_an_id_of_its_own() -> None:
    ids = {VOCABULARY.trace_id(token) for token in TRACE.tokens}
    assert len(ids) == len(set(TRACE.tokens))
    for token in TRACE.tokens:
        assert VOCABULARY.data(VOCABULARY.trace_id(token)) == token
    assert VOCABULARY.trace_id(b"<think>") == SPECIAL["<think>"]


def test_ids_are_as_long_as_real_ones() -> None:
    words = [VOCABULARY.trace_id(token) for token in TRACE.tokens if len(token) > 1]
    assert all(10_000 <= id < SIZE for id in words)


def test_the_longest_word_wins() -> None:
    vocabulary = Vocabulary(Trace.of(["an", "and", "d"]))
    assert vocabulary.encode("and") == [vocabulary.trace_id(b"and")]
    assert vocabulary.encode("an!") == [vocabulary.trace_id(b"an"), ord("!")]


def test_markers_are_parsed_only_when_asked() -> None:
    text = "a</think><|im_end|>"
    assert VOCABULARY.encode(text, special=True) == [ord("a"), SPECIAL["</think>"], EOS]
    assert not {SPECIAL["</think>"], EOS} & set(VOCABULARY.encode(text))


def test_the_opening_of_a_turn_is_the_same_whatever_follows() -> None:
    vocabulary = Vocabulary(Trace.of(["\nOkay", "assistant\n", "assistant"]))
    head = vocabulary.head("assistant")
    assert head[0] == START
    assert vocabulary.encode("<|im_start|>assistant\nOkay", special=True)[: len(head)] == head


def test_other_processes_have_the_same_ids() -> None:
    code = (
        "from relaygen.mock import *; t = load_trace('short'); v = Vocabulary(t)\n"
        "print([v.trace_id(token) for token in t.tokens])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == str([VOCABULARY.trace_id(token) for token in TRACE.tokens])


def test_a_split_trace_has_another_vocabulary() -> None:
    other = Vocabulary(TRACE.split())
    text = "we need the sum"
    assert other.encode(text) != VOCABULARY.encode(text)
    assert other.decode(other.encode(text)) == VOCABULARY.decode(VOCABULARY.encode(text))


def test_an_unknown_id_is_nothing() -> None:
    assert VOCABULARY.data(151_900) == b""


@given(st.binary())
def test_the_byte_level_alphabet_loses_nothing(data: bytes) -> None:
    shown = byte_level(data)
    assert len(shown) == len(data)
    assert not any(character.isspace() for character in shown)


def test_the_byte_level_alphabet_is_the_known_one() -> None:
    assert byte_level(b" hello\n") == "ĠhelloĊ"
    assert byte_level(bytes(range(256))).isprintable()
