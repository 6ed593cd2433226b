"""Profiles: the shipped ones hold up, bad ones say where."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaygen import LargeOnly, OneShotPolicy, ProfileError, RelayPolicy, UsageError
from relaygen.profiles import POLICIES, load, make_policy, names, parse, problems

GOOD = """
version = 1
name = "mine"
description = "d"
large = "l"
small = "s"
thinking = "tags"
cues = ["Thus", "So "]
[provenance]
source = "me"
"""


@pytest.mark.parametrize("name", names())
def test_shipped_profiles_are_valid_and_named_as_their_file(name: str) -> None:
    profile = load(name)
    assert profile.name == name
    assert profile.provenance.source
    assert isinstance(make_policy("relay", profile), RelayPolicy)


def test_the_papers_lists_are_whole() -> None:
    qwen, r1 = load("qwen3-32b+1.7b"), load("r1-distill-32b+1.5b")
    assert len(qwen.cues) == 28
    assert len(r1.cues) == 25
    ours = {c.rstrip() for c in qwen.cues} & {c.rstrip() for c in r1.cues}
    assert len(ours) == 17  # as counted in the reference's two lists
    assert "Oh," in qwen.cues
    assert "Oh" not in qwen.cues


def test_the_embedded_profile_relays_without_thinking() -> None:
    profile = load("embedded")
    assert (profile.thinking, profile.answer_role) == ("none", "relay")
    assert load("embedded-thinking").prefill == "<think>\n"


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    profile = load(path)
    assert profile.cues == ("Thus", "So ")
    policy = make_policy("relay", profile)
    assert isinstance(policy, RelayPolicy)
    assert policy.cues.names == ("Thus", "So")
    assert policy.cues.normalized == ("So ",)


def test_no_such_profile() -> None:
    with pytest.raises(ProfileError, match="no profile 'nope'") as caught:
        load("nope")
    assert "embedded" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("version = 1", "version = 2"), "version: "),
        (('thinking = "tags"', 'thinking = "maybe"'), "thinking: "),
        (('name = "mine"', ""), "name: is missing"),
        (("cues =", "ceus ="), "ceus: there is no such entry"),
        (('["Thus", "So "]', '["Thus", " "]'), "cues: an entry is empty"),
        (('["Thus", "So "]', "3"), "cues: "),
        (("[provenance]", "[provenance]\nnope = 1"), "provenance.nope: there is no such entry"),
        (("[provenance]", "[sampling]\ntop_p = 3\n[provenance]"), "sampling: top_p must be"),
        (("[provenance]", 'x = ["\n[provenance]'), "not TOML: "),
        (("cues =", 'answer_markers = ["Thus"]\ncues ='), "answer_markers: 'Thus' is a cue too"),
        (('"tags"', '"none"\nprefill = "<think>"'), "prefill: "),
        (("cues =", "max_consecutive_delegations = 0\ncues ="), "max_consecutive_delegations: "),
        (
            ("[provenance]", '[one_shot_groups]\nanswer = [""]\n[provenance]'),
            "one_shot_groups.answer: ",
        ),
    ],
)
def test_a_bad_profile_says_where(change: tuple[str, str], problem: str) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    assert any(line.startswith(problem) for line in problems(text)), problems(text)
    with pytest.raises(ProfileError, match=r"here\.toml: "):
        parse(text, where="here.toml")


def test_a_good_profile_has_no_problems() -> None:
    assert problems(GOOD) == []


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="cannot read"):
        load(tmp_path / "latin.toml")
    with pytest.raises(ProfileError, match="cannot read"):
        load(tmp_path)


def test_every_policy_by_name() -> None:
    profile = load("embedded")
    made = {name: make_policy(name + ":0.3" * (name == "random"), profile) for name in POLICIES}
    assert {name: policy.name for name, policy in made.items()} == {n: n for n in POLICIES}
    assert isinstance(made["large"], LargeOnly)
    classic = make_policy("one-shot:classic", profile)
    assert isinstance(classic, OneShotPolicy)
    assert (classic.check_every, classic.window, classic.switch_threshold) == (10, 100, 0.8)


@pytest.mark.parametrize(
    "spec", ["nope", "random", "random:x", "random:2", "one-shot:x", "relay:1", "relay:", "large:x"]
)
def test_bad_policies(spec: str) -> None:
    with pytest.raises(UsageError):
        make_policy(spec, load("embedded"))


def test_own_one_shot_groups_replace_the_defaults() -> None:
    text = GOOD.replace(
        "[provenance]", '[one_shot_groups]\nlaw = ["the court holds"]\n[provenance]'
    )
    policy = make_policy("one-shot", parse(text, where="x"))
    assert isinstance(policy, OneShotPolicy)
    assert policy.cues.names == ("the court holds",)


def test_a_profile_without_cues_cannot_relay() -> None:
    profile = parse(GOOD.replace('["Thus", "So "]', "[]"), where="x")
    with pytest.raises(UsageError, match="no cues"):
        make_policy("relay", profile)
    assert make_policy("large", profile).name == "large"
