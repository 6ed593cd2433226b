from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen.evaluate._results import Part
from relaygen.evaluate._views import Stretch, _limit, cut, state, stretches, views

from .answering import items
from .test_summary import result

parts = st.lists(
    st.builds(
        Part,
        st.sampled_from(["large", "small", "inserted"]),
        st.sampled_from(["reasoning", "answer"]),
        st.just("sentence"),
        st.sampled_from(["", "Thus"]),
        st.text(max_size=20),
        st.integers(0, 9),
        st.just(0.1),
    ),
    max_size=8,
)


def joined(found: list[Stretch]) -> str:
    return "".join(part.text for part in found)


@settings(deadline=None)
@given(parts)
def test_stretches_are_the_text_and_change_their_writer(given_: list[Part]) -> None:
    found = stretches(given_)
    assert joined(found) == "".join(part.text for part in given_)
    assert all(part.text and part.told for part in found)


@settings(deadline=None)
@given(parts, st.integers(3, 60))
def test_a_cut_text_is_its_beginning_and_its_end(given_: list[Part], limit: int) -> None:
    whole = joined(stretches(given_))
    shown = list(cut(stretches(given_), limit))
    gone = sum(part.left_out for part in shown)
    assert len(joined(shown)) + gone == len(whole)
    if len(whole) <= limit:
        assert (joined(shown), gone) == (whole, 0)
        return
    assert len(joined(shown)) == limit
    head = 2 * limit // 3
    assert joined(shown) == whole[:head] + whole[len(whole) - (limit - head) :]
    (place,) = [number for number, part in enumerate(shown) if part.left_out]
    assert len(joined(shown[: place + 1])) == head


@settings(deadline=None)
@given(st.lists(st.integers(0, 100_000), max_size=30), st.integers(30_000, 300_000))
def test_the_limit_uses_the_room_there_is(sizes: list[int], most: int) -> None:
    limit = _limit(sizes, most)
    shown = sum(min(size, limit) for size in sizes)
    assert shown <= most
    assert shown == sum(sizes) or shown > most - len(sizes)


def test_states() -> None:
    right, wrong = result(0, "relay", True), result(0, "relay", False, run=1)
    failed, unknown = result(0, "relay", error="gone"), result(0, "relay", None)
    assert [state(each) for each in ([], [failed], [unknown], [right], [wrong])] == list("-eu10")
    assert state([right, wrong]) == "m"
    assert state([right, failed]) == "1"


def test_questions_have_their_answers_in_the_order_of_the_arms() -> None:
    results = [result(1, "relay", False), result(1, "large", True), result(0, "large", True)]
    first, second = views(items(2), results, ["large", "relay"])
    assert (first.states, first.differ) == (("1", "-"), False)
    assert (second.states, second.differ) == (("1", "0"), True)
    assert [one.result.arm for one in second.answers] == ["large", "relay"]
    assert (second.answers[0].large, second.answers[0].tokens) == (0.6, 100)
    assert second.answers[0].seconds == 2.0
    assert second.answers[0].shown == len("4")


def test_runs_of_an_arm_stand_together() -> None:
    results = [
        result(0, arm, arm == "large", run=run) for run in (1, 0) for arm in ("small", "large")
    ]
    (one,) = views(items(1), results, ["large", "small"])
    assert [(each.result.arm, each.result.run) for each in one.answers] == [
        *(("large", 0), ("large", 1), ("small", 0), ("small", 1))
    ]
    assert one.states == ("1", "0")


def test_arms_that_nobody_graded_differ_by_their_results() -> None:
    results = [
        result(0, arm, None, extracted=said) for arm, said in (("large", "4"), ("small", "5"))
    ]
    (one,) = views(items(1), results, ["large", "small"])
    assert one.differ
    (one,) = views(items(1), [replace(each, extracted="4") for each in results], ["large", "small"])
    assert not one.differ


def test_arms_whose_runs_differ_are_no_agreement() -> None:
    results = [
        result(0, arm, right, run=run)
        for arm in ("large", "small")
        for run, right in enumerate((True, False))
    ]
    (one,) = views(items(1), results, ["large", "small"])
    assert (one.states, one.differ) == (("m", "m"), True)


def test_a_long_question_has_a_short_heading() -> None:
    item = replace(items(1)[0], question="one\n two " * 100)
    (one,) = views([item], [], ["large"])
    assert one.heading.startswith("one two one")
    assert one.heading.endswith("…")
    assert len(one.heading) <= 160
