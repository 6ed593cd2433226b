from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relaygen.mock._stops import Text


def play(
    pieces: list[bytes], stops: list[str], *, include: bool = False
) -> tuple[list[str], str | None]:
    text = Text(stops, include=include)
    sent = []
    for piece in pieces:
        found = text.feed(piece)
        sent.append(text.take(last=found is not None))
        if found is not None:
            return sent, found
    return [*sent, text.take(last=True)], None


def test_characters_come_when_they_are_whole() -> None:
    assert play([b"a\xf0\x9f", b"\x98", b"\x80b"], [])[0] == ["", "", "a😀b", ""]


def test_text_is_held_back_for_a_stop_string() -> None:
    assert play([b"ab", b"c", b"d"], ["xyz"])[0] == ["", "a", "b", "cd"]


def test_nothing_is_held_back_where_the_stop_string_stays() -> None:
    assert play([b"ab", b"c", b"d"], ["xyz"], include=True)[0] == ["ab", "c", "d", ""]
    assert play([b"ab", b"xyzq"], ["xyz"], include=True) == (["ab", "xyz"], "xyz")


def test_a_stop_string_over_tokens_is_cut_off() -> None:
    assert play([b"ab", b"x", b"y", b"zq"], ["xyz"]) == (["", "a", "b", ""], "xyz")


def test_the_one_that_is_complete_first_wins() -> None:
    assert play([b"abcd"], ["bcd", "c"]) == (["ab"], "c")


def test_before_the_least_tokens_nothing_stops() -> None:
    text = Text(["a"], include=False)
    assert text.feed(b"a", stoppable=False) is None
    assert text.feed(b"b") is None
    assert text.feed(b"a") == "a"
    assert text.take(last=True) == "ab"


@given(
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
    st.booleans(),
)
def test_any_pieces_give_the_same_text(pieces: list[str], stops: list[str], include: bool) -> None:
    whole = "".join(pieces)
    ends = [at + len(stop) for stop in stops if (at := whole.find(stop)) >= 0]
    sent, found = play([piece.encode() for piece in pieces], stops, include=include)
    text = "".join(sent)
    if not ends:
        assert (text, found) == (whole, None)
        return
    assert found in stops
    if include:
        assert text == whole[: min(ends)]
    else:
        assert text + found == whole[: min(ends)]
