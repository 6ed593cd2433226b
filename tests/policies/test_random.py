"""Random delegation at a given share."""

from __future__ import annotations

import random

import pytest

from relaygen import UsageError
from relaygen.policies import HandOff, RandomPolicy, Stay
from relaygen.policies.base import STAY

from .support import Segment, begun, candidates, feed, plan, play, words, written


def essay(seed: int, sentences: int = 150) -> list[str]:
    """Sentences of very different lengths."""
    generator = random.Random(seed)
    tokens: list[str] = []
    for _ in range(sentences):
        tokens += [f" w{n}" for n in range(generator.choice((2, 5, 12, 30, 60)))]
        tokens += [generator.choice((".", "!", "?")), generator.choice(("", "\n", "\n\n"))]
    return [token for token in tokens if token]


def share(segments: list[Segment]) -> float:
    small = sum(s.size for s in segments if s.role == "small")
    return small / sum(s.size for s in segments)


TEXT = essay(0)


def test_the_seed_decides() -> None:
    policy = RandomPolicy(0.4)
    runs = [written(play(policy, TEXT, start=plan(seed=seed))) for seed in (1, 1, 2, 3)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2] != runs[3] != runs[0]


@pytest.mark.parametrize("target", [0.2, 0.3, 0.5])
def test_the_share_is_the_target_in_the_mean(target: float) -> None:
    policy = RandomPolicy(target)
    shares = [share(play(policy, essay(n), start=plan(seed=n))) for n in range(20)]
    assert sum(shares) / len(shares) == pytest.approx(target, abs=0.02)


@pytest.mark.parametrize("target", [0.2, 0.5])
def test_short_texts_are_not_biased_either(target: float) -> None:
    """The first sentence is always the large model's; later ones make up for it."""
    policy = RandomPolicy(target)
    shares = [share(play(policy, essay(n, 12), start=plan(seed=n))) for n in range(200)]
    assert sum(shares) / len(shares) == pytest.approx(target, abs=0.05)


def test_whole_sentences_only() -> None:
    segments = play(RandomPolicy(0.5), TEXT)
    assert len(segments) > 20
    for segment in segments[:-1]:
        assert segment.text.rstrip()[-1] in ".!?"
        assert segment.why == "random"
    for segment in segments[1:]:
        assert segment.text[0] == " " or segment.text[0] == "w"
        assert segment.text.strip()


def test_the_small_model_delegates_and_the_large_one_leads() -> None:
    segments = play(RandomPolicy(0.5), TEXT)
    kinds = {(segment.role, segment.kind) for segment in segments}
    assert kinds == {("large", "lead"), ("small", "delegate")}


def test_a_delegate_may_write_several_sentences() -> None:
    segments = play(RandomPolicy(0.7), words("One is. " * 200))
    assert any(s.text.count(".") > 1 for s in segments if s.role == "small")


def test_nothing_and_everything() -> None:
    assert written(play(RandomPolicy(0.0), words("One. Two. Three."))) == [
        ("large", "One. Two. Three.")
    ]
    assert written(play(RandomPolicy(1.0), words("One. Two. Three. Four."))) == [
        ("large", "One."),  # the first sentence has no end before it
        ("small", " Two. Three. Four."),
    ]


def test_what_is_read_ahead_is_held_and_then_discarded() -> None:
    session = begun(RandomPolicy(1.0))
    half = "😀".encode()[:2]
    assert feed(session, ["One", ".", b"", b" " + half]) == [
        STAY,
        STAY,
        Stay(1),
        HandOff(1, "delegate", "random"),
    ]
    session = begun(RandomPolicy(0.0))
    assert feed(session, ["One", ".", " Two", "."]) == [STAY] * 4


def test_no_delegation_starts_in_a_boxed_result_or_on_a_result_line() -> None:
    session = begun(RandomPolicy(1.0))
    assert feed(session, ["\\boxed{", "Yes", ".", " No", ".", " }"]) == [STAY] * 6
    assert feed(session, [".\n"], first=6) == [HandOff(6, "delegate", "random")]
    session = begun(RandomPolicy(1.0))
    assert feed(session, ["#### ", "Yes", ".", " No", ".", " \nSo"]) == [STAY] * 6
    assert feed(session, [".\n"], first=6) == [HandOff(6, "delegate", "random")]


def test_only_kept_tokens_count() -> None:
    """What was read ahead and discarded belongs to the next segment."""
    session = RandomPolicy(1.0).start(plan())
    session.begin("large", "lead", "reasoning", "start")
    assert feed(session, ["One", ".", b"", b"", " Two"])[-1] == HandOff(1, "delegate", "random")
    session.begin("small", "delegate", "reasoning", "handoff")
    assert session._tokens == {"large": 2, "small": 0}
    assert feed(session, [" Two", " three"]) == [STAY, STAY]
    session.begin("large", "lead", "reasoning", "turn")
    session.begin("large", "lead", "reasoning", "limit")  # nothing was written in between
    assert session._tokens == {"large": 2, "small": 2}


def test_what_was_read_ahead_is_forgotten() -> None:
    session = begun(RandomPolicy(1.0))
    assert feed(session, ["One", ".", " ```"])[-1] == HandOff(1, "delegate", "random")
    session.begin("large", "lead", "reasoning", "failure")
    assert feed(session, [" Two", ".\n"])[-1] == HandOff(1, "delegate", "random")


def test_a_terminator_of_the_segment_before_is_over() -> None:
    session = begun(RandomPolicy(1.0))
    assert feed(session, ["One", "."]) == [STAY, STAY]
    session.begin("large", "lead", "reasoning", "limit")
    assert feed(session, [" Two"]) == [STAY]


def test_tokens_of_a_segment_that_ended_otherwise_count_too() -> None:
    """Half a sentence without end is paid back by the large model."""
    session = begun(RandomPolicy(0.5))
    assert feed(session, ["One", ".\n"])
    session.begin("small", "delegate", "reasoning", "handoff")
    feed(session, [" x"] * 1000)
    session.begin("large", "lead", "reasoning", "turn")
    assert feed(session, [" y", ".\n"] * 50) == [STAY] * 100


def test_the_answer_is_another_text() -> None:
    session = begun(RandomPolicy(1.0))
    feed(session, ["```", "\n"])
    session.begin("large", "lead", "answer", "stage")
    assert feed(session, ["One", ".\n"], stage="answer")[1] == HandOff(1, "delegate", "random")


def test_the_large_model_leads_the_answer() -> None:
    session = begun(RandomPolicy(0.5))
    assert session.answer("small") == "large"
    assert session.answer("large") == "large"


def test_it_asks_for_no_probe() -> None:
    assert begun(RandomPolicy(0.5)).probed(candidates(1.0)) == STAY


@pytest.mark.parametrize("target", [-0.1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(target: float) -> None:
    with pytest.raises(UsageError):
        RandomPolicy(target)
