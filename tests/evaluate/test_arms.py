from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen._profile import ProfileLevel
from relaygen.calibrate._candidates import default_candidates
from relaygen.evaluate._arms import DEFAULT, OWN, Arm, parse_arms, source
from relaygen.policies import MarginPolicy, RandomPolicy, RelayPolicy
from relaygen.profiles import POLICIES, load

from .answering import tagged

PROFILE = replace(
    load("embedded"),
    levels={
        "careful": ProfileLevel(("Thus",)),
        "fast": ProfileLevel(("Thus", "So"), "margin", 0.9, 0.2),
    },
)


@pytest.mark.parametrize(
    ("name", "arm"),
    [
        ("large", Arm("large", "large")),
        ("relay@balanced", Arm("relay@balanced", "relay", "balanced")),
        ("margin:0.9:0.3@fast", Arm("margin:0.9:0.3@fast", "margin:0.9:0.3", "fast")),
        ("large+draft", Arm("large+draft", "large", large="draft")),
        ("relay@fast+ngram", Arm("relay@fast+ngram", "relay", "fast", large="ngram")),
        ("relay+small-ngram", Arm("relay+small-ngram", "relay", small="ngram")),
        ("relay+draft+small-ngram", Arm("relay+draft+small-ngram", "relay", "", "draft", "ngram")),
        ("relay:all-cues", Arm("relay:all-cues", "relay:all-cues")),
        ("entropy:step:1.0", Arm("entropy:step:1.0", "entropy:step:1.0")),
    ],
)
def test_names(name: str, arm: Arm) -> None:
    assert Arm.of(name) == arm


@settings(deadline=None)
@given(st.sampled_from([*POLICIES, *OWN]), st.sampled_from(["", "+draft", "+ngram+small-ngram"]))
def test_every_policy_is_an_arm(policy: str, more: str) -> None:
    arm = Arm.of(policy + more)
    assert (arm.name, arm.policy, arm.level) == (policy + more, policy, "")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("", "there is no arm"),
        ("large,small,large", "large is there twice"),
        ("larg", "there is no arm 'larg'"),
        ("large@fast", "has no levels"),
        ("relay:all-cues@fast", "has no levels"),
        ("large+eagle", "no speculation 'eagle'"),
        ("large+draft+ngram", "two speculations"),
        ("Large", "is no arm"),
        ("large,random", "random needs the results of arm relay"),
        ("relay,random@fast", "needs the results of arm relay@fast"),
        ("small,answer-stage", "needs the results of arm large"),
    ],
)
def test_what_makes_no_sense_is_refused(names: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arms(names.split(","))
    assert says in str(caught.value)


def test_the_default_arms_are_arms() -> None:
    assert [arm.name for arm in parse_arms(DEFAULT)] == list(DEFAULT)


def test_random_takes_the_share_of_its_own_relay() -> None:
    arms = parse_arms(["relay@careful", "random", "relay@fast", "random@fast", "random:0.3"])
    assert [getattr(source(arm, arms), "name", None) for arm in arms] == [
        None,
        "relay@careful",
        None,
        "relay@fast",
        None,
    ]


def test_what_a_plain_arm_wrote_is_taken_before_what_a_draft_may_have_turned() -> None:
    arms = parse_arms(["relay+draft", "relay", "random", "large+ngram", "answer-stage"])
    assert source(arms[2], arms) == arms[1]
    assert source(arms[4], arms) == arms[3]  # there is no plain one


def test_policies_and_levels() -> None:
    relay = Arm.of("relay@careful").setup(PROFILE, "fast")
    assert isinstance(relay.policy, RelayPolicy)
    assert relay.profile.cues == ("Thus",)
    assert isinstance(Arm.of("relay").setup(PROFILE, "fast").policy, MarginPolicy)
    plain = Arm.of("relay").setup(PROFILE)
    assert isinstance(plain.policy, RelayPolicy)
    assert plain.profile == PROFILE
    # A level of the whole evaluation is none of policies that have no levels.
    assert Arm.of("large").setup(PROFILE, "fast").policy.name == "large"
    with pytest.raises(UsageError, match="no level 'slow'"):
        Arm.of("relay@slow").setup(PROFILE)


def test_random_delegates_the_share_it_is_given() -> None:
    assert Arm.of("random").setup(PROFILE, share=0.25).policy == RandomPolicy(0.25)
    assert Arm.of("random:0.3").setup(PROFILE, share=0.25).policy == RandomPolicy(0.3)


def test_all_cues_are_the_candidates_and_the_profiles_own() -> None:
    setup = Arm.of("relay:all-cues").setup(replace(PROFILE, cues=("My own cue",)), "fast")
    assert isinstance(setup.policy, RelayPolicy)
    assert set(setup.profile.cues) == {"My own cue", *default_candidates()}


@pytest.mark.parametrize("name", ["answer-only", "answer-stage"])
def test_without_thinking_there_is_no_answer_stage(name: str) -> None:
    with pytest.raises(UsageError, match="not applicable") as caught:
        Arm.of(name).setup(load("embedded"))
    assert f"drop {name}" in caught.value.hint
    assert Arm.of(name).setup(tagged()).policy.roles >= {"small"}


def test_answer_only_never_delegates_the_thinking() -> None:
    setup = Arm.of("answer-only").setup(replace(tagged(), answer_role="large"))
    assert isinstance(setup.policy, RelayPolicy)
    assert not setup.policy.cues
    assert setup.answer_role == "small"
