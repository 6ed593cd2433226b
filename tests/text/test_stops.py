"""The client's stop strings over any chunking."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen.text.stops import StopFilter


def filtered(stops: list[str], chunks: list[str]) -> tuple[str, bool]:
    """What comes out in all, and whether a stop string was complete."""
    found = StopFilter(stops)
    shown = "".join(found.feed(chunk) for chunk in chunks)
    return shown + found.flush(), found.stopped


def searched(stops: list[str], text: str) -> tuple[str, bool]:
    """The same by one look at the whole text: the first string to be complete wins."""
    for end in range(len(text) + 1):
        starts = [end - len(s) for s in stops if s and text[:end].endswith(s)]
        if starts:
            return text[: min(starts)], True
    return text, False


@pytest.mark.parametrize(
    ("stops", "chunks", "shown", "stopped"),
    [
        (["END"], ["a END b"], "a ", True),
        (["END"], ["a E", "N", "D b"], "a ", True),
        (["END"], ["a E", "N", "x"], "a ENx", False),
        (["END"], ["a EN"], "a EN", False),
        (["END"], ["EEND"], "E", True),
        (["aab"], ["a", "a", "a", "b"], "a", True),
        (["\n\n", "##"], ["x\n", "#", "#"], "x\n", True),
        (["b", "a"], ["xab"], "x", True),
        (["END"], ["END"], "", True),
        ([], ["a", "b"], "ab", False),
        ([""], ["a", "b"], "ab", False),
        (["", "b"], ["ab"], "a", True),
        # "bc" is complete before "abcd", in one chunk as in four.
        (["abcd", "bc"], ["abcd"], "a", True),
        (["abcd", "bc"], ["a", "b", "c", "d"], "a", True),
        # They end together: neither comes out.
        (["bc", "abc"], ["xabc"], "x", True),
        (["bc", "abc"], ["x", "ab", "c"], "x", True),
    ],
)
def test_what_is_shown(stops: list[str], chunks: list[str], shown: str, stopped: bool) -> None:
    assert filtered(stops, chunks) == (shown, stopped)


def test_text_is_held_back_only_while_it_may_be_a_stop_string() -> None:
    stop = StopFilter(["END", "\n\nQ"])
    assert [stop.feed(c) for c in ("a", " E", "N", "O", "\n", "\n", "q")] == [
        *("a", " ", "", "ENO", "", "", "\n\nq")
    ]
    assert stop.flush() == ""


def test_nothing_comes_out_behind_a_stop_string() -> None:
    stop = StopFilter(["END"])
    assert stop.feed("aENDb") == "a"
    assert stop.stopped
    assert stop.feed("c") == ""
    assert stop.flush() == ""


def test_a_flush_gives_what_was_held_once() -> None:
    stop = StopFilter(["END"])
    assert stop.feed("EN") == ""
    assert (stop.flush(), stop.flush()) == ("EN", "")
    assert not stop.stopped


STOPS = st.lists(st.text(alphabet="ab.", max_size=4), max_size=3)


@settings(deadline=None, max_examples=400)
@given(STOPS, st.lists(st.text(alphabet="ab.", max_size=5), max_size=8))
def test_any_chunking_equals_one_search(stops: list[str], chunks: list[str]) -> None:
    assert filtered(stops, chunks) == searched(stops, "".join(chunks))


@settings(deadline=None, max_examples=100)
@given(STOPS, st.lists(st.text(alphabet="ab.", max_size=5), max_size=8))
def test_what_came_out_is_never_too_much_and_the_rest_is_short(
    stops: list[str], chunks: list[str]
) -> None:
    found, shown, fed = StopFilter(stops), "", ""
    for chunk in chunks:
        shown, fed = shown + found.feed(chunk), fed + chunk
        assert searched(stops, fed)[0].startswith(shown)
        if not found.stopped:
            assert len(fed) - len(shown) < max([len(s) for s in stops if s], default=1)
