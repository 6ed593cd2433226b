from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relaygen._profile import Profile
from relaygen._results import Generation, Usage
from relaygen._types import EngineInfo
from relaygen.costs import Costs
from relaygen.doctor import _judge
from relaygen.doctor._report import Answered, Rollback, Sample, Speed
from relaygen.forecast import Setup
from relaygen.profiles import load

VLLM = EngineInfo("m", 4096, "v", stop_ids=True, kind="vllm")
TAGS, NONE = load("qwen3-32b+1.7b"), load("embedded")
COSTS = Costs(40.0, 6.0, 0.3, 0.05)
NAMES = ("Now", "So", "Thus")


def answer(**given: Any) -> Answered:
    plain: dict[str, Any] = {
        "prompt_tokens": 60,
        "tokens": 1000,
        "finish": "stop",
        "large": 700,
        "small": 300,
        "handoffs": 40,
        "segments": (15,) * 20,
        "cues": {"So": 12, "Now": 8},
        "same": True,
    }
    return Answered(**{**plain, **given})


def sample(*answers: Answered, names: tuple[str, ...] = NAMES) -> Sample:
    return Sample(answers or (answer(),), names)


# The sample's own figures.


def test_shares_and_rates_weigh_every_token_alike() -> None:
    long, short = answer(), answer(tokens=100, large=100, small=0, handoffs=4, segments=())
    both = sample(long, short)
    assert both.utilization == pytest.approx(800 / 1100)
    assert both.handoffs_per_1000 == pytest.approx(44 / 1.1)
    assert both.cues == {"Now": 16, "So": 24, "Thus": 0}


def test_a_sample_of_nothing_has_no_shares() -> None:
    none = sample(answer(tokens=0, large=0, small=0, handoffs=0))
    assert (none.utilization, none.handoffs_per_1000) == (0.0, 0.0)


# Engines.


def test_capabilities_name_what_an_engine_can_do() -> None:
    (told,) = _judge.capabilities("large", VLLM, drafted=False)
    assert told.text == "takes and gives token ids, stops at given ids"
    assert told.level == "ok"
    info = replace(VLLM, text_only=True, stop_ids=False, slots=4)
    (told,) = _judge.capabilities("small", info, drafted=False)
    assert told.level == "note"
    assert "hides token ids, cannot stop at given ids, caches 4" in told.text


@pytest.mark.parametrize("info", [replace(VLLM, drafts=True), VLLM])
def test_drafting_is_named_with_the_flag_that_ends_it(info: EngineInfo) -> None:
    _, told = _judge.capabilities("small", info, drafted=not info.drafts)
    assert told.level == "note"
    assert "--speculative-config" in told.hint


@pytest.mark.parametrize(
    ("raw", "needed", "level"),
    [
        (True, True, "ok"),
        (False, False, "warning"),
        (False, True, "error"),
        (None, False, "note"),
        (None, True, "error"),
    ],
)
def test_margins(raw: bool | None, needed: bool, level: str) -> None:
    told = _judge.margins("small", VLLM, raw, needed=needed)
    assert told.level == level
    assert told.hint == ("start vLLM with --logprobs-mode raw_logprobs" if raw is False else "")


@pytest.mark.parametrize(
    ("kind", "part"),
    [("sglang", "SGLANG_RETURN_ORIGINAL_LOGPROB=1"), ("scripted", "at temperature 1")],
)
def test_every_engine_has_its_own_remedy(kind: str, part: str) -> None:
    assert part in _judge.margins("small", replace(VLLM, kind=kind), False, needed=False).hint


def test_no_margins_since_tokens_are_drafted() -> None:
    info = replace(VLLM, drafts=True, kind="llama-server")
    assert "--spec-type" in _judge.margins("small", info, None, needed=True).hint


@pytest.mark.parametrize(
    ("cost", "level"), [("free", "ok"), ("costly", "warning"), ("unknown", "note")]
)
def test_roll_back(cost: Any, level: str) -> None:
    assert _judge.rollback("large", Rollback(cost, 1, 700, 700)).level == level


# The pair.


def test_templates() -> None:
    assert _judge.templates(True, VLLM).level == "ok"
    different = _judge.templates(False, VLLM)
    assert different.level == "warning"
    assert "--chat-template" in different.hint
    assert _judge.templates(False, replace(VLLM, kind="embedded")).hint == ""


@pytest.mark.parametrize(
    ("profile", "assistant", "begun", "level", "part"),
    [
        (TAGS, "<|assistant|>", "<think>\nLet", "ok", "takes place"),
        (TAGS, "<|assistant|>", "\n<think>", "ok", "takes place"),
        (TAGS, "<|assistant|><think>\n", "Let me", "ok", "takes place"),
        (TAGS, "<|assistant|>", "The answer", "error", "neither template nor model"),
        (TAGS, "<|assistant|><think>\n\n</think>\n\n", "The", "error", "closes </think> at once"),
        (NONE, "<|assistant|>", "First, we", "ok", "as the profile says"),
        (NONE, "<|assistant|>", "<think>", "error", "does not look for"),
        (NONE, "<|assistant|><think>\n", "Let", "error", "does not look for"),
        (NONE, "<|assistant|><think>\n\n</think>\n\n", "The", "ok", "as the profile says"),
    ],
)
def test_thinking(profile: Profile, assistant: str, begun: str, level: str, part: str) -> None:
    told = _judge.thinking(profile, VLLM, assistant, begun)
    assert told.level == level
    assert part in told.text
    assert bool(told.hint) == (level == "error")


def test_the_remedy_for_no_thinking_names_the_flag_where_there_is_one() -> None:
    told = _judge.thinking(TAGS, VLLM, "", "The answer")
    assert "--chat-template FILE" in told.hint
    told = _judge.thinking(TAGS, replace(VLLM, kind="embedded"), "", "The answer")
    assert told.hint == 'take a profile with thinking = "none"'


# The sample.


def test_cues_are_counted_and_those_that_never_fired_are_named() -> None:
    fired, never = _judge.cues(sample(), "relay")
    assert "2 of 3 cues fired in 1000 tokens: 'So' 12, 'Now' 8" in fired.text
    assert never.text.endswith("'Thus'")
    assert "relaygen calibrate" in never.hint


def test_many_cues_are_cut_short() -> None:
    names = tuple("abcdefghij")
    told = _judge.cues(sample(answer(cues=dict.fromkeys(names, 1)), names=names), "relay")
    assert [each.level for each in told] == ["ok"]
    assert "and 2 more" in told[0].text


def test_without_a_cue_a_relay_is_of_no_use() -> None:
    (told,) = _judge.cues(sample(answer(cues={})), "relay")
    assert told.level == "against"
    assert "relaygen calibrate" in told.hint


def test_policies_without_cues() -> None:
    (told,) = _judge.cues(sample(answer(cues={}), names=()), "random")
    assert told.text == "not applicable: policy random has no cues"


@pytest.mark.parametrize(
    ("same", "level"),
    [
        ((True, True, True), "ok"),
        ((True, True, False), "ok"),
        ((True, False, None), "warning"),
        ((False, False, False), "warning"),
        ((None, None, None), "note"),
    ],
)
def test_the_small_answerer(same: tuple[bool | None, ...], level: str) -> None:
    told = _judge.answers(sample(*(answer(same=each) for each in same)), TAGS)
    assert told.level == level
    assert ('answer_role = "large"' in told.hint) == (level == "warning")


@pytest.mark.parametrize("profile", [NONE, replace(TAGS, answer_role="large")])
def test_nobody_answers_alone(profile: Profile) -> None:
    told = _judge.answers(sample(answer(same=False)), profile)
    assert told.level == "note"
    assert told.text.startswith("not applicable")


def test_a_context_that_the_sample_does_not_fit() -> None:
    large, small = replace(VLLM, context=40_000), replace(VLLM, context=1000)
    (told,) = _judge.room(sample(), {"large": large, "small": small})
    assert "1060 tokens, 60 more than its context" in told.text
    assert told.hint == "start it with --max-model-len 40000"
    assert not _judge.room(sample(), {"large": large, "small": replace(small, context=1060)})


def test_texts_that_were_cut() -> None:
    whole = Generation("", "", "", (), Usage(), "stop")
    assert not _judge.cut([whole], TAGS)
    (told,) = _judge.cut([whole, replace(whole, finish="length")], TAGS)
    assert "1 of 2 answers" in told.text
    assert "thinking" in told.text


# Gain.


@pytest.mark.parametrize(
    ("costs", "part"),
    [
        (Costs(40.0, 6.0, 0.3, 0.05), ""),
        (Costs(40.0, 40.0), "not faster"),
        (Costs(40.0, 50.0), "not faster"),
        (Costs(40.0, 20.0, 19.0), ""),
        (Costs(40.0, 20.0, 20.0), "catch-up eats the gain"),
        (Costs(40.0, 20.0, 30.0), "catch-up eats the gain"),
    ],
)
def test_whether_a_delegated_token_can_pay(costs: Costs, part: str) -> None:
    told = _judge.worth(costs)
    assert [each.level for each in told] == ["against"] * bool(part)
    assert all(part in each.text and each.hint for each in told)


def test_models_that_are_the_wrong_way_round() -> None:
    assert "the wrong way round" in _judge.worth(Costs(6.0, 40.0))[0].hint
    assert "the wrong way round" not in _judge.worth(Costs(40.0, 41.0))[0].hint


def gain(costs: Costs = COSTS, *, answers: Sample | None = None, **given: Any) -> dict[str, Any]:
    answers = answers or sample()
    setup = Setup(costs, **{"utilization": 0.7, "handoffs_per_1000": 40.0, **given})
    made, told = _judge.gain(setup, answers)
    return {"made": made, "told": told, "levels": [(each.check, each.level) for each in told]}


def test_a_pair_that_gains() -> None:
    good = gain(handoff_ms=5.0)
    assert good["levels"] == [("gain", "ok"), ("gain", "ok"), ("length", "ok")]
    first, even, _ = good["told"]
    assert f"{good['made'].speedup:.2f}x the large model's speed" in first.text
    assert "at 70 % utilization and 40 hand-offs per 1,000 tokens" in first.text
    assert (
        f"pays from {good['made'].break_even:.1f} tokens on; in the sample it has 15.0" in even.text
    )


def test_a_ceiling_that_is_too_low() -> None:
    # 126 and 55 ms to decode, 29 and 15 to read: a pair that shares one CPU.
    made = gain(Costs(126.0, 55.0, 29.0, 15.0), devices=1)
    assert made["levels"][0] == ("gain", "against")
    assert "little to gain" in made["told"][0].text
    assert made["made"].ceiling < _judge.LEAST_CEILING


def test_a_relay_that_is_slower_as_it_stands() -> None:
    made = gain(handoff_ms=400.0)
    assert made["levels"][0] == ("gain", "against")
    assert "slower as it stands" in made["told"][0].text
    # 40 hand-offs of 400 ms in 1,000 tokens; 0.7 of the tokens read at 0.05 ms and 0.3 at 0.3 ms.
    assert "takes 16.0 ms of hand-offs and 0.1 ms of catch-up, and 40.0 ms by" in (
        made["told"][0].text
    )
    assert made["levels"][1] == ("gain", "warning")  # and its segments are too short
    assert all("prefix caches" in each.hint for each in made["told"][:2])


def test_a_relay_that_is_hardly_faster_is_no_reason_to_use_one() -> None:
    made = gain(handoff_ms=230.0)
    assert 1.0 < made["made"].speedup < 1.05
    assert made["levels"][0] == ("gain", "warning")
    assert made["told"][0].text.startswith("hardly faster: 1.0")


def test_the_parts_of_a_gain_add_up() -> None:
    # L 40, S 6, l 0.3, s 0.05, u 0.7, 40 changes of 5 ms in 1,000 tokens:
    # 28 + 1.8 + (0.3 * 0.3 + 0.7 * 0.05) + 0.2 = 30.125 ms for a token, and 40 alone.
    made = gain(handoff_ms=5.0)["made"]
    assert made.speedup == pytest.approx(40 / 30.125)
    assert made.ceiling == pytest.approx(40 / 29.8)
    # A delegated token saves 34 - 0.125 / 0.3 ms, a segment costs two changes.
    assert made.break_even == pytest.approx(10 / (34 - 0.125 / 0.3))


def test_a_sample_without_segments_has_no_length_to_compare() -> None:
    even = gain(answers=sample(answer(segments=())))["told"][1]
    assert (even.level, even.text.endswith("; the sample has none")) == ("note", True)


def test_segments_are_counted_in_words_and_told_in_tokens() -> None:
    twice = sample(answer(large=350, small=150))  # 500 words of 1000 tokens
    assert twice.segment_tokens == pytest.approx(30.0)
    assert gain(answers=twice)["told"][1].text.endswith("it has 30.0")


def test_nothing_is_handed_over() -> None:
    told = _judge.nothing_delegated(sample(answer(large=1000, small=0)))
    assert told.level == "against"
    assert "1000 tokens" in told.text


def test_both_roles_are_one_model() -> None:
    told = _judge.one_model(VLLM, "http://gpu:1")
    assert (told.level, told.check) == ("against", "gain")
    assert "m (http://gpu:1)" in told.text
    assert "--small-model" in told.hint


# What a change of role costs.


def test_a_change_of_role_is_a_request_to_the_one_or_the_other() -> None:
    speeds: dict[Any, Speed] = {
        "large": Speed(40.0, 0.3, 20.0, 700),
        "small": Speed(6.0, 0.05, 4.0, 700),
    }
    assert _judge.handoff_costs(speeds, 1000.0) == (COSTS, 12.0)


def test_without_a_prefix_cache_a_change_of_role_reads_the_whole_text() -> None:
    speeds: dict[Any, Speed] = {
        "large": Speed(40.0, 0.3, 20.0, 700, rereads=True),
        "small": Speed(6.0, 0.05, 4.0, 700),
    }
    costs, change = _judge.handoff_costs(speeds, 1000.0)
    assert costs == replace(COSTS, large_catch_up=0.0)  # it is part of the whole
    assert change == pytest.approx((20.0 + 4.0 + 300.0) / 2)


def test_a_text_is_half_written_at_a_change_of_role() -> None:
    many = answer(prompt_tokens=100, tokens=1000, handoffs=30)
    few = answer(prompt_tokens=50, tokens=100, handoffs=10)
    assert sample(many, few).text_tokens == pytest.approx((30 * 600 + 10 * 100) / 40)


def test_no_length_of_a_segment_pays() -> None:
    made = gain(Costs(40.0, 30.0, 15.0, 5.0), devices=1)
    assert ("gain", "note") in made["levels"]
    assert "no length would pay" in made["told"][1].text


def test_short_answers() -> None:
    short = sample(answer(tokens=20, large=14, small=6))
    made = gain(answers=short)
    assert made["levels"][-1] == ("length", "against")
    assert "answers are short: 20 tokens in the sample, below 50" in made["told"][-1].text


def test_answers_that_do_not_earn_the_reading_of_a_long_question() -> None:
    long = sample(answer(prompt_tokens=10_000, tokens=60))
    made = gain(Costs(40.0, 6.0, 0.3, 0.5), answers=long)
    assert made["levels"][-1] == ("length", "against")


def test_without_a_sample_ceiling_and_break_even_are_told() -> None:
    told = _judge.unsampled(COSTS, 5.0, 0.6, 2, "no answers sampled (--quick)")
    assert told.level == "note"
    # 40 / (0.6 * 40 + 0.4 * 6), and 10 / (34 - (0.6 * 0.05 + 0.4 * 0.3) / 0.4)
    assert told.text == (
        "ceiling 1.52x at a utilization of 60 % (the profile's), where a delegated segment pays "
        "from 0.3 tokens on; no answers sampled (--quick)"
    )
    assert "50 % (assumed)" in _judge.unsampled(COSTS, 5.0, None, 2, "").text
    assert _judge.unsampled(Costs(40.0, 39.0), 0.0, None, 2, "").level == "against"


@pytest.mark.parametrize(
    ("costs", "change"),
    [
        (Costs(40.0, 6.0), 3000.0),  # from 176 tokens on: a segment has 128 at most
        (Costs(40.0, 20.0, 10.0, 15.0), 5.0),  # reading takes what writing saves
    ],
)
def test_without_a_sample_hand_offs_that_never_pay_are_told(costs: Costs, change: float) -> None:
    told = _judge.unsampled(costs, change, None, 2, "")
    assert told.level == "against"
    assert "no length of a delegated segment pays" in told.text
    assert "prefix caches" in told.hint


def test_speed_in_words() -> None:
    told = _judge.speed("small", Speed(6.04, 0.051, 3.0, 700))
    again = _judge.speed("small", Speed(6.04, 0.051, 3.0, 700, rereads=True))
    assert "0.05 ms per prompt token (the whole text each time)" in again.text
    assert (
        told.text == "6.0 ms per token, 0.05 ms per prompt token (catch-up), 3.0 ms more a request"
    )
