from __future__ import annotations

import pytest

from relaygen.policies import LargeOnly, RandomPolicy
from relaygen.profiles import load, make_policy
from relaygen.serve._errors import ApiError
from relaygen.serve._models import Models


def models(profile: str = "embedded", default: str = "relay") -> Models:
    found = load(profile)
    return Models("pair", found, make_policy(default, found), spec=default, created=5)


def test_the_plain_name_has_the_servers_policy() -> None:
    made = models(default="random:0.5")
    for model in (None, "pair"):
        name, spec, policy = made.pick(model, None)[:3]
        assert (name, spec) == ("pair", "random:0.5")
        assert isinstance(policy, RandomPolicy)


def test_a_suffix_and_a_wish() -> None:
    made = models()
    assert made.pick("pair@large", None)[1:3] == ("large", LargeOnly())
    assert made.pick("pair@large", "random:0.25")[1] == "random:0.25"
    assert made.pick("pair", "large")[:2] == ("pair", "large")


def test_a_policy_is_made_once() -> None:
    made = models()
    assert made.pick("pair@relay", None)[2] is made.pick("pair", "relay")[2]
    for number in range(1000):
        made.pick(f"pair@random:0.{number:04}", None)
    assert len(made._made) <= 256


@pytest.mark.parametrize(
    "model", ["", "other", "pair@", "pair@@large", "pair@nope", "pair@random", "PAIR", "x" * 9999]
)
def test_an_unknown_model_is_404(model: str) -> None:
    with pytest.raises(ApiError) as error:
        models().pick(model, None)
    assert (error.value.status, error.value.code) == (404, "model_not_found")
    assert len(str(error.value)) < 500


def test_an_unknown_policy_is_400() -> None:
    with pytest.raises(ApiError) as error:
        models().pick("pair", "nope")
    assert (error.value.status, error.value.param) == (400, "relay.policy")


def test_what_is_listed_can_be_asked_for() -> None:
    made = models()
    assert made.names()[0] == "pair"
    for name in made.names():
        assert made.card(name)["created"] == 5
    assert "pair@relay" in made.names()
