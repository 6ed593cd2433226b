"""Profiles: the shipped ones hold up, bad ones say where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relaygen import (
    LargeOnly,
    MarginPolicy,
    OneShotPolicy,
    ProfileError,
    ProfileLevel,
    RelayPolicy,
    UsageError,
)
from relaygen.profiles import (
    POLICIES,
    load,
    make_policy,
    names,
    notes,
    parse,
    policy_at,
    problems,
    source,
)

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
    assert len(qwen.cues) == len(set(qwen.cues)) == 28
    assert len(r1.cues) == len(set(r1.cues)) == 25
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
    with pytest.raises(ProfileError, match=r"cannot read .*: Is a directory$"):
        load(tmp_path)
    with pytest.raises(ProfileError, match="there is no profile"):
        load("x" * 5000)  # no system takes such a name


def test_a_file_that_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "marked.toml").write_text(GOOD, "utf-8-sig")
    assert load(tmp_path / "marked.toml") == parse(GOOD, where="here")
    assert source(tmp_path / "marked.toml") == GOOD


def test_every_policy_by_name() -> None:
    profile = load("embedded")
    options = {"random": ":0.3", "margin": ":0.9:0.3", "entropy": ":token:0.5"}
    made = {name: make_policy(name + options.get(name, ""), profile) for name in POLICIES}
    assert {name: policy.name for name, policy in made.items()} == {n: n for n in POLICIES}
    assert isinstance(made["large"], LargeOnly)
    classic = make_policy("one-shot:classic", profile)
    assert isinstance(classic, OneShotPolicy)
    assert (classic.check_every, classic.window, classic.switch_threshold) == (10, 100, 0.8)


@pytest.mark.parametrize(
    "spec",
    [
        *("nope", "random", "random:x", "random:2", "one-shot:x", "relay:1", "relay:", "large:x"),
        *("margin", "margin:", "margin:0.9", "margin:0.9:", "margin:0.9:x", "margin:1:2:3"),
        *("margin:0.3:0.9", "margin:nan:0", "margin:inf:0"),
        *("entropy", "entropy:", "entropy:token", "entropy:token:", "entropy:step:x"),
        *(
            "entropy:word:1",
            "entropy:0.5",
            "entropy:step:0",
            "entropy:token:nan",
            "entropy:token:-1",
        ),
        *("speculative-thinking:20", "no-wait:x", "no-wait:"),
    ],
)
def test_bad_policies(spec: str) -> None:
    with pytest.raises(UsageError):
        make_policy(spec, load("embedded"))


@pytest.mark.parametrize("head", ["", "one-shot:", "large:", "margin:", "entropy:"])
def test_a_long_policy_is_not_told_whole(head: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_policy(head + 10_000 * "x", load("embedded"))
    assert len(f"{caught.value} {caught.value.hint}") < 400


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


# Levels.

LEVELS = """
[levels.careful]
cues = ["Thus"]
utilization = 0.85
[levels.balanced]
cues = ["Thus", "So "]
stay = 0.9
leave = 0.2
[levels.fast]
cues = ["Thus", "So ", "Now"]
policy = "margin"
stay = 0.8
leave = 0.3
utilization = 0.5
unproven = true
"""


def leveled() -> Any:
    return parse(GOOD + LEVELS, where="x")


def test_levels_are_read() -> None:
    profile = leveled()
    assert tuple(profile.levels) == ("careful", "balanced", "fast")
    assert profile.levels["careful"] == ProfileLevel(("Thus",), utilization=0.85)
    assert profile.levels["fast"] == ProfileLevel(
        ("Thus", "So ", "Now"), "margin", 0.8, 0.3, 0.5, unproven=True
    )
    assert (profile.level, profile.in_force, profile.cues) == ("", None, ("Thus", "So "))


def test_a_level_in_force_has_its_cues_and_its_policy() -> None:
    profile = leveled()
    careful, policy = policy_at("careful", "relay", profile)
    assert (careful.level, careful.cues) == ("careful", ("Thus",))
    assert isinstance(policy, RelayPolicy)
    assert policy.cues.names == ("Thus",)
    fast, made = policy_at("fast", "relay", careful)  # from one to another
    assert isinstance(made, MarginPolicy)
    assert (made.stay, made.leave, made.cues.names) == (0.8, 0.3, ("Thus", "So", "Now"))
    assert fast.in_force is profile.levels["fast"]
    assert policy_at(None, "relay", profile)[0] is profile


def test_margin_takes_the_levels_thresholds_or_its_own() -> None:
    profile = leveled()
    made = make_policy("margin", profile.at("balanced"))
    assert isinstance(made, MarginPolicy)
    assert (made.stay, made.leave) == (0.9, 0.2)
    made = make_policy("margin:0.7:-1", profile.at("fast"))
    assert isinstance(made, MarginPolicy)
    assert (made.stay, made.leave, len(made.cues.names)) == (0.7, -1, 3)
    assert isinstance(make_policy("margin:2:0", profile), MarginPolicy)
    for where in (profile, profile.at("careful")):
        with pytest.raises(UsageError) as caught:
            make_policy("margin", where)
        assert "balanced, fast" in caught.value.hint


def test_margin_has_what_the_profile_says() -> None:
    text = GOOD.replace(
        "cues =", 'answer_markers = ["Answer"]\nmax_consecutive_delegations = 7\ncues ='
    )
    made = make_policy("margin:0.9:0.1", parse(text, where="x"))
    assert isinstance(made, MarginPolicy)
    assert (made.markers.names, made.max_consecutive_delegations) == (("Answer",), 7)


def test_a_file_may_name_its_default_level() -> None:
    profile = parse(GOOD.replace("version = 1", 'version = 1\nlevel = "fast"') + LEVELS, where="x")
    assert profile.cues == ("Thus", "So ", "Now")
    assert isinstance(make_policy("relay", profile), MarginPolicy)
    assert profile.at("careful").cues == ("Thus",)


def test_no_such_level() -> None:
    with pytest.raises(UsageError, match="no level 'nope'; levels: careful, balanced, fast"):
        leveled().at("nope")
    with pytest.raises(UsageError, match="no level 'fast'; it has no levels") as caught:
        load("embedded").at("fast")
    assert "relaygen calibrate" in caught.value.hint


@pytest.mark.parametrize("spec", ["large", "small", "one-shot", "random:0.3"])
def test_other_policies_have_no_levels(spec: str) -> None:
    with pytest.raises(UsageError, match="has no levels"):
        policy_at("fast", spec, leveled())
    make_policy(spec, leveled().at("fast"))  # where the level is only the default


def test_an_unproven_level_says_so() -> None:
    profile = leveled()
    (note,) = notes(*policy_at("fast", "relay", profile))
    assert "fast" in note
    assert "unproven" in note
    assert notes(*policy_at("careful", "relay", profile)) == ()
    assert notes(*policy_at(None, "relay", profile)) == ()
    assert notes(profile.at("fast"), make_policy("large", profile)) == ()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('"margin"', '"random"'), "levels.fast.policy: "),
        (("stay = 0.8\n", ""), "levels.fast.stay: is missing"),
        (("leave = 0.3\n", ""), "levels.fast.leave: is missing"),
        (("stay = 0.9\n", ""), "levels.balanced.stay: is missing"),
        (("leave = 0.2\n", ""), "levels.balanced.leave: is missing"),
        (("stay = 0.8", "stay = 0.2"), "levels.fast.stay: must not be below leave"),
        (("stay = 0.8", "stay = nan"), "levels.fast.stay: must be a finite number"),
        (("leave = 0.3", "leave = -inf"), "levels.fast.leave: must be a finite number"),
        (("0.85", "1.2"), "levels.careful.utilization: must be between 0 and 1"),
        (('["Thus"]', "[]"), "levels.careful.cues: it is empty"),
        (('["Thus"]', '["Thus", " "]'), "levels.careful.cues: an entry is empty"),
        (('["Thus"]', '["Answer"]'), "levels.careful.cues: 'Answer' is an answer marker too"),
        (("levels.careful", "levels.relay"), "levels.relay: that is the name of a policy"),
        (("levels.careful", 'levels."a@b"'), "levels.a@b: a name has"),
        (("levels.careful", 'levels.""'), "levels.: a name has"),
        (("unproven = true", "unprooven = true"), "levels.fast.unprooven: there is no such entry"),
        (("[levels.careful]\ncues", "[levels.careful]\nceus"), "levels.careful.cues: is missing"),
    ],
)
def test_a_bad_level_says_where(change: tuple[str, str], problem: str) -> None:
    good = GOOD.replace("cues =", 'answer_markers = ["Answer"]\ncues =')
    assert problems(good + LEVELS) == []
    text = good + LEVELS.replace(*change)
    assert text != good + LEVELS
    assert any(line.startswith(problem) for line in problems(text)), problems(text)


def test_a_default_level_that_is_not_there() -> None:
    text = GOOD.replace("version = 1", 'version = 1\nlevel = "nope"')
    assert problems(text) == ["level: there is no level 'nope'"]
