"""A profile's levels, over HTTP."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from relaygen import MarginPolicy, ProfileLevel, RandomPolicy, Relay, RelayPolicy
from relaygen._profile import Profile
from relaygen._types import Conversation, Prompt
from relaygen.engines.scripted import ScriptedEngine
from relaygen.profiles import load, make_policy
from relaygen.serve._app import make_app
from relaygen.serve._errors import ApiError
from relaygen.serve._logs import Log
from relaygen.serve._models import Models

from .support import PLAIN, Pair, events, get, post, problem

LEVELS = {
    "careful": ProfileLevel(("Thus",), utilization=0.9),
    "balanced": ProfileLevel(("Thus", "So"), stay=0.8, leave=0.3),
    "fast": ProfileLevel(("Thus", "So"), "margin", 0.5, 0.3, unproven=True),
}


def profile() -> Profile:
    return replace(load("embedded"), levels=LEVELS)


def models(default: str = "relay", level: str = "") -> Models:
    found = profile().at(level) if level else profile()
    return Models("pair", found, make_policy(default, found), spec=default)


class Small(ScriptedEngine):
    """It renders the question of the check of its margins, and no other: that is forgotten."""

    async def render(self, conversation: Conversation) -> Prompt:
        prompt = await super().render(conversation)
        self._prompts.clear()
        return prompt


def pair(policy: str = "relay", level: str = "", **engine: Any) -> Pair:
    large, small = ScriptedEngine(PLAIN), Small(PLAIN, **engine)
    found = profile().at(level) if level else profile()
    written = io.StringIO()
    app = make_app(
        Relay(large, small, profile=found, policy=policy), policy=policy, log=Log(written)
    )
    return Pair(large, small, app, written)


def relay(response: Any) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["relay"]


# What is picked.


@pytest.mark.parametrize(
    ("model", "policy", "level", "spec", "in_force", "kind"),
    [
        ("pair", None, None, "relay", "", RelayPolicy),
        ("pair", None, "careful", "relay", "careful", RelayPolicy),
        ("pair@careful", None, None, "relay", "careful", RelayPolicy),
        ("pair@fast", None, None, "relay", "fast", MarginPolicy),
        ("pair@fast", None, "careful", "relay", "careful", RelayPolicy),  # the request's wish
        ("pair@fast", "random:0.3", None, "random:0.3", "", RandomPolicy),
        ("pair@careful", "margin:0.9:0.1", None, "margin:0.9:0.1", "careful", MarginPolicy),
        ("pair@margin:0.9:0.1", None, "careful", "margin:0.9:0.1", "careful", MarginPolicy),
        ("pair@margin", None, "balanced", "margin", "balanced", MarginPolicy),
        ("pair@large", "relay", "fast", "relay", "fast", MarginPolicy),
        (None, "relay", "fast", "relay", "fast", MarginPolicy),
    ],
)
def test_what_a_request_gets(
    model: str | None, policy: str | None, level: str | None, spec: str, in_force: str, kind: type
) -> None:
    choice = models().pick(model, policy, level)
    assert (choice.name, choice.spec, choice.level) == (model or "pair", spec, in_force)
    assert isinstance(choice.policy, kind)
    if in_force:
        assert isinstance(choice.policy, RelayPolicy | MarginPolicy)
        assert choice.policy.cues.names == LEVELS[in_force].cues
    assert bool(choice.notes) == (in_force == "fast")


def test_a_server_with_another_policy_relays_at_a_level() -> None:
    made = models("random:0.3")
    for choice in (made.pick("pair@careful", None), made.pick("pair", None, "careful")):
        assert (choice.spec, choice.level) == ("relay", "careful")
        assert isinstance(choice.policy, RelayPolicy)
    made = models("margin:0.9:0.1")
    choice = made.pick("pair@careful", None)
    assert (choice.spec, choice.policy.name) == ("margin:0.9:0.1", "margin")


def test_the_servers_level_is_the_default() -> None:
    made = models(level="fast")
    assert (made.pick("pair", None).level, made.pick("pair", None).policy.name) == (
        "fast",
        "margin",
    )
    assert made.pick("pair", None).notes
    assert made.pick("pair", "relay").level == "fast"
    assert made.pick("pair@careful", None).level == "careful"
    assert not made.pick("pair@large", None).notes
    assert made.pick("pair@large", None).policy.name == "large"


@pytest.mark.parametrize(
    ("model", "policy", "level", "status", "param", "says"),
    [
        ("pair", None, "nope", 400, "relay.level", "levels: careful, balanced, fast"),
        ("pair", None, "", 400, "relay.level", "no level ''"),
        ("pair@large", None, "nope", 400, "relay.level", "no level 'nope'"),
        ("pair@nope", None, None, 404, "model", "nope"),
        ("pair@large", None, "fast", 400, "relay.level", "large has no levels"),
        ("pair", "random:0.3", "fast", 400, "relay.level", "random has no levels"),
        ("pair", "random:3", "fast", 400, "relay.level", "share must be"),
        ("pair", "nope", "fast", 400, "relay.policy", "no policy 'nope'"),
        ("pair", "margin", "careful", 400, "relay.policy", "balanced, fast"),
        ("pair@margin", None, "careful", 404, "model", "balanced, fast"),
        ("pair@nope", "large", "fast", 404, "model", "no policy or level 'nope'"),
        ("pair@slow", None, None, 404, "model", "levels: careful, balanced, fast"),
    ],
)
def test_what_makes_no_sense(
    model: str, policy: str | None, level: str | None, status: int, param: str, says: str
) -> None:
    with pytest.raises(ApiError) as caught:
        models().pick(model, policy, level)
    assert (caught.value.status, caught.value.param) == (status, param)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_profile_without_levels_says_so() -> None:
    made = Models("pair", load("embedded"), make_policy("relay", load("embedded")))
    with pytest.raises(ApiError) as caught:
        made.pick("pair@fast", None)
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert "no policy or level 'fast'" in str(caught.value)
    assert "profile 'embedded' has no levels (serve one that has, with --profile)" in str(
        caught.value
    )


def test_levels_are_listed_where_they_can_be_asked_for() -> None:
    made = models()
    assert made.names()[-3:] == ["pair@careful", "pair@balanced", "pair@fast"]
    assert "pair@margin" not in made.names()
    assert "pair@margin" in models(level="fast").names()
    assert models("margin:0.9:0.1").names() == made.names()
    assert made.card("pair@fast")["relay"] == {
        "policy": "relay",
        "profile": "embedded",
        "level": "fast",
    }
    assert made.card("pair")["relay"]["level"] is None


# Over HTTP.


def test_the_reply_names_the_level_and_says_that_it_is_unproven() -> None:
    served = pair(margin=0.9)
    plain, careful, fast = (
        relay(post(served, body=body))
        for body in (
            {},
            {"model": "relaygen@careful"},
            {"relay": {"level": "fast"}},
        )
    )
    assert [each["level"] for each in (plain, careful, fast)] == [None, "careful", "fast"]
    assert careful["notes"] == []
    (note,) = fast["notes"]
    assert "unproven" in note
    # careful delegates at Thus alone, fast from the first cue on for as long as it is sure.
    assert 0 < careful["tokens"]["small"] < plain["tokens"]["small"] < fast["tokens"]["small"]


def test_a_stream_says_it_too() -> None:
    body = {"model": "relaygen@fast", "stream": True, "stream_options": {"include_usage": True}}
    found = events(post(pair(), body=body).text)
    (last,) = [each["relay"] for each in found[:-1] if "relay" in each]
    assert last["level"] == "fast"
    assert "unproven" in last["notes"][0]


def test_the_servers_own_level_says_it() -> None:
    made = relay(post(pair(level="fast")))
    assert (made["policy"], made["level"]) == ("relay", "fast")
    assert made["notes"]


def test_an_unknown_level_is_400_and_names_those_there_are() -> None:
    response = post(pair(), body={"relay": {"level": "slow"}})
    assert problem(response)[:2] == (400, "relay.level")
    assert "careful, balanced, fast" in response.json()["error"]["message"]
    assert post(pair(), body={"relay": {"level": 3}}).status_code == 400
    assert post(pair(), body={"model": "relaygen@slow"}).status_code == 404


def test_models_lists_the_levels() -> None:
    listed = [each["id"] for each in get(pair(), "/v1/models").json()["data"]]
    assert [f"relaygen@{level}" for level in LEVELS] == listed[-3:]
    assert get(pair(), "/v1/models/relaygen@fast").json()["relay"]["level"] == "fast"


def test_a_level_that_needs_margins_is_refused_where_there_are_none() -> None:
    class Hiding(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Any:
            return super()._piece(id, 0)

    large, small = ScriptedEngine(PLAIN), Hiding(PLAIN)
    app = make_app(Relay(large, small, profile=profile()), policy="relay")
    served = Pair(large, small, app)
    assert post(served).status_code == 200
    response = post(served, body={"model": "relaygen@fast"})
    assert response.status_code >= 400
    assert "log-probabilities" in response.json()["error"]["message"]
