"""Profiles written as TOML: what comes back is what went in."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import ProfileError, Thinking
from relaygen._profile import Evidence, Profile, ProfileLevel, Provenance
from relaygen._types import Sampling
from relaygen.calibrate._outcome import Calibration, CueResult, Level, Steered
from relaygen.calibrate._profile_toml import calibrated, dumps, evidence, rule_text
from relaygen.profiles import load, make_policy, names, parse, problems

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
CUE = TEXT.filter(str.strip)
SHARE = st.floats(0.0, 1.0)
EVIDENCE = st.builds(
    Evidence,
    count=st.integers(0, 10**9),
    traces=st.integers(0, 10**6),
    share=SHARE,
    margin=st.none() | SHARE,
    agreement=st.none() | SHARE,
    effect=st.none() | st.floats(-1.0, 1.0),
    low=st.none() | st.floats(-1.0, 1.0),
    high=st.none() | st.floats(-1.0, 1.0),
    holm=st.none() | SHARE,
)
LEVEL = st.builds(
    ProfileLevel,
    cues=st.lists(CUE, min_size=1, max_size=4).map(tuple),
    utilization=st.none() | SHARE,
    unproven=st.booleans(),
)
PROFILE = st.builds(
    Profile,
    name=TEXT,
    description=TEXT,
    large=TEXT,
    small=TEXT,
    thinking=st.just("tags"),
    cues=st.lists(CUE, max_size=30).map(tuple),
    provenance=st.builds(
        Provenance,
        source=TEXT,
        scorer=TEXT,
        notes=st.lists(TEXT, max_size=3).map(tuple),
        cues=st.dictionaries(TEXT, EVIDENCE, max_size=3),
    ),
    tags=st.builds(Thinking, opening=TEXT, closing=TEXT),
    prefill=TEXT,
    sampling=st.builds(
        Sampling,
        temperature=st.floats(0.0, 2.0),
        top_p=SHARE,
        top_k=st.integers(0, 1000),
        logit_bias=st.dictionaries(st.integers(0, 2**31), st.floats(-9.0, 9.0), max_size=2),
    ),
    one_shot_groups=st.dictionaries(TEXT, st.lists(CUE, min_size=1).map(tuple), max_size=2),
    levels=st.dictionaries(
        st.from_regex(r"[a-z]x[A-Za-z0-9._-]{0,6}", fullmatch=True), LEVEL, max_size=3
    ),
)


@settings(max_examples=50, deadline=None)
@given(PROFILE)
def test_any_profile_survives(profile: Profile) -> None:
    text = dumps(profile)
    assert parse(text, where="here") == profile
    assert dumps(parse(text, where="here")) == text


@pytest.mark.parametrize("name", names())
def test_shipped_profiles_survive(name: str) -> None:
    profile = load(name)
    text = dumps(profile)
    assert parse(text, where=name) == profile
    assert "temperature = " in text  # how tokens are drawn is never left to a default


def cue(name: str, *, selected: bool = True, effect: float = 0.1, **more: float) -> CueResult:
    numbers = {
        "margin": 0.9,
        "agreement": 0.8,
        "low": effect - 0.05,
        "high": effect + 0.05,
        "p": 0.001,
        "holm": 0.01,
        "q": 0.005,
        **more,
    }
    return CueResult(
        name=name,
        occurrences=30,
        traces=12,
        tokens=400,
        share=0.0512345,
        effect=effect,
        testable=not math.isnan(numbers["p"]),
        selected=selected,
        proven=selected,
        **numbers,
    )


def calibration(*cues: CueResult, **more: object) -> Calibration:
    chosen = tuple(one.name for one in cues if one.selected)
    levels = tuple(
        Level(name, names, used, 20.0, 0.9, unproven)
        for name, names, used, unproven in (
            ("careful", chosen, 0.81239, False),
            ("balanced", (*chosen, "So"), 0.7, True),
        )
    )
    made = Calibration(
        cues=cues,
        overall=0.7,
        rule="significant",
        unproven=False,
        more_traces=None,
        levels=levels,
        curve=(),
        held_out=None,
        seed=1,
    )
    return replace(made, **more)  # type: ignore[arg-type]


ABOUT: dict[str, Any] = {
    "description": "d",
    "large": "L",
    "small": "S",
    "source": "relaygen calibrate",
    "scorer": "S, scripted",
    "questions": "q.jsonl",
    "notes": ("one", "two"),
}


def test_the_profile_of_a_calibration_works_at_once(tmp_path: Path) -> None:
    base = load("embedded")
    quoted = 'a "b" \\[ ü'
    result = calibration(
        cue("Thus"),
        cue(quoted),
        cue("So", selected=False, effect=-0.0001),
        cue("rare", selected=False),
    )
    made = calibrated(base, result, name="mine", **ABOUT)
    path = tmp_path / "mine.toml"
    path.write_text(dumps(made), "utf-8")
    assert problems(path.read_text("utf-8")) == []
    loaded = load(path)
    assert loaded == made
    assert loaded.cues == ("Thus", quoted)
    assert loaded.levels["balanced"] == ProfileLevel(
        ("Thus", quoted, "So"), utilization=0.7, unproven=True
    )
    assert loaded.levels["careful"].utilization == 0.8124
    assert make_policy("relay", loaded.at("balanced")).name == "relay"
    # The base's habits stay, its cues and their story go.
    assert (loaded.sampling, loaded.answer_role, loaded.tools) == (
        base.sampling,
        base.answer_role,
        base.tools,
    )
    assert loaded.answer_markers == base.answer_markers
    provenance = loaded.provenance
    assert (provenance.source, provenance.notes) == ("relaygen calibrate", ("one", "two"))
    assert list(provenance.cues) == ["Thus", quoted, "So"]  # of some level; not the rare one
    assert provenance.cues["Thus"] == Evidence(30, 12, 0.0512, 0.9, 0.8, 0.1, 0.05, 0.15, 0.01)
    assert '"Thus"' in path.read_text("utf-8")
    assert "\n[provenance.cues]\nThus = { count = 30, traces = 12," in path.read_text("utf-8")


def steered(cues: tuple[str, ...], stay: float, **more: Any) -> Steered:
    made = Steered(cues, stay, 0.25, 0.55559, 30.0, 0.9, 0.95, True)
    return replace(made, **more)


def test_thresholds_are_of_the_levels_cues_or_the_level_is_of_the_margin_policys(
    tmp_path: Path,
) -> None:
    result = calibration(cue("Thus"))
    careful, balanced = result.levels
    own = steered(balanced.cues, 0.75)
    other = steered(careful.cues, 1.01, utilization=0.71234, unproven=False)
    levels = (careful, replace(balanced, own=own, best=other))
    result = replace(result, levels=levels)
    cases: list[tuple[Literal["relay", "margin"], ProfileLevel]] = [
        ("relay", ProfileLevel(("Thus", "So"), "relay", 0.75, 0.25, 0.7, unproven=True)),
        ("margin", ProfileLevel(("Thus",), "margin", 1.01, 0.25, 0.7123)),
    ]
    for policy, level in cases:
        made = calibrated(load("embedded"), result, name="x", policy=policy, **ABOUT)
        (tmp_path / "x.toml").write_text(dumps(made), "utf-8")
        loaded = load(tmp_path / "x.toml")
        assert loaded.levels["balanced"] == level
        assert make_policy("relay", loaded.at("balanced")).name == policy
        assert loaded.levels["careful"].policy == "relay"  # it has no thresholds
    assert (
        make_policy(
            "margin", calibrated(load("embedded"), result, name="x", **ABOUT).at("balanced")
        ).name
        == "margin"
    )


def test_a_marker_that_became_a_cue_is_no_marker_any_more() -> None:
    base = load("embedded")
    assert "####" in base.answer_markers
    made = calibrated(base, calibration(cue("####"), cue("Thus")), name="x", **ABOUT)
    assert "####" not in made.answer_markers
    assert problems(dumps(made)) == []


def test_what_is_not_known_is_left_out() -> None:
    nan = math.nan
    told = evidence(cue("x", effect=nan, low=nan, high=nan, p=nan, holm=nan, margin=nan))
    assert (told.effect, told.low, told.high, told.holm, told.margin) == (None,) * 5
    assert "= nan" not in dumps(
        calibrated(
            load("embedded"),
            calibration(cue("x", effect=nan, low=nan, high=nan, p=nan, holm=nan)),
            name="x",
            **ABOUT,
        )
    )


def test_nothing_selected_is_no_profile() -> None:
    with pytest.raises(ProfileError, match="no cue was selected"):
        calibrated(
            load("embedded"), calibration(cue("x", selected=False), levels=()), name="x", **ABOUT
        )


def test_the_rule_says_when_it_is_unproven() -> None:
    plain = calibration(cue("x"))
    assert rule_text(plain) == "significant: Holm at 0.05, effect at least 0.02"
    assert "(unproven)" in rule_text(replace(plain, unproven=True, fallback=True))
    assert rule_text(replace(plain, rule="paper", unproven=True)) == "paper (unproven)"
