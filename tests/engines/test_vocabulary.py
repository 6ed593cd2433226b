from __future__ import annotations

import pytest

from relaygen.engines._vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
)


def test_byte_level_tokens() -> None:
    # GPT-2's stand-ins: Ġ is a space, Ċ a line feed, ð Ł ĺ bytes of an emoji.
    tokens = ["Ġhi", "Ċ", "ðŁĺ", "é", "Ã©", "<|im_end|>", "<think>", "▁x", "[PAD1]", "é漢"]
    types = [NORMAL] * 5 + [CONTROL, USER_DEFINED, CONTROL, UNUSED, NORMAL]
    vocabulary = Vocabulary("gpt2", [token.encode() for token in tokens], types)
    assert [vocabulary.data(id) for id in range(len(tokens))] == [
        b" hi",
        b"\n",
        b"\xf0\x9f\x98",
        b"\xe9",
        "é".encode(),
        b"<|im_end|>",
        b"<think>",
        "▁x".encode(),
        b"",
        "é漢".encode(),  # no stand-in: literal
    ]


def test_every_byte_has_a_stand_in() -> None:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    tokens = [chr(byte) if byte in plain else chr(256 + others.index(byte)) for byte in range(256)]
    vocabulary = Vocabulary("gpt2", [token.encode() for token in tokens], [NORMAL] * 256)
    assert [vocabulary.data(id) for id in range(256)] == [bytes([byte]) for byte in range(256)]


def test_sentencepiece_tokens() -> None:
    tokens = ["<unk>", "</s>", "<0xF0>", "<0x0A>", "▁the", "▁▁", "Ġ", "▁user"]
    types = [UNKNOWN, CONTROL, BYTE, BYTE, NORMAL, NORMAL, NORMAL, USER_DEFINED]
    vocabulary = Vocabulary("llama", [token.encode() for token in tokens], types)
    assert [vocabulary.data(id) for id in range(len(tokens))] == [
        b"<unk>",
        b"</s>",
        b"\xf0",
        b"\n",
        b" the",
        b"  ",
        "Ġ".encode(),
        "▁user".encode(),
    ]


def test_ids_by_bytes() -> None:
    tokens = [b"a", b"<0x61>", b"a", b"a", b"a", b"bcd"]
    types = [NORMAL, BYTE, CONTROL, UNUSED, NORMAL, USER_DEFINED]
    vocabulary = Vocabulary("llama", tokens, types, {4})
    assert vocabulary.ids(b"a") == (0, 1)  # neither control nor unused nor the end of the turn
    assert vocabulary.ids(b"bcd") == (5,)
    assert vocabulary.ids(b"x") == ()
    assert vocabulary.longest == 3
    assert [vocabulary.controls(id) for id in range(7)] == [False, False, True, False, True, False, False]  # fmt: skip


@pytest.mark.parametrize("id", [-1, 1, 10**9])
def test_no_such_id(id: int) -> None:
    vocabulary = Vocabulary("gpt2", [b"a"], [NORMAL])
    assert vocabulary.type(id) == UNKNOWN
    with pytest.raises(KeyError):
        vocabulary.data(id)


def test_fingerprint() -> None:
    base = Vocabulary("gpt2", [b"a", b"bc"], [NORMAL, NORMAL]).fingerprint
    assert base.startswith("gguf:")
    assert Vocabulary("gpt2", (b"a", b"bc"), (1, 1), {1}).fingerprint == base
    padded = Vocabulary("gpt2", [b"a", b"bc", b"[PAD]"], [NORMAL, NORMAL, UNUSED])
    assert padded.fingerprint == base
    others = [
        Vocabulary("llama", [b"a", b"bc"], [NORMAL, NORMAL]),
        Vocabulary("gpt2", [b"ab", b"c"], [NORMAL, NORMAL]),
        Vocabulary("gpt2", [b"bc", b"a"], [NORMAL, NORMAL]),
        Vocabulary("gpt2", [b"a", b"bc"], [NORMAL, CONTROL]),
        Vocabulary("gpt2", [b"a", b"bc", b"<think>"], [NORMAL, NORMAL, USER_DEFINED]),
        Vocabulary("gpt2", [b"[PAD]", b"a", b"bc"], [UNUSED, NORMAL, NORMAL]),
    ]
    assert len({base, *(other.fingerprint for other in others)}) == 1 + len(others)
