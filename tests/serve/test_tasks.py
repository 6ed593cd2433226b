from __future__ import annotations

from typing import Any

import pytest

from relaygen._errors import UsageError
from relaygen._gate import Breaker, Gate, PayGate
from relaygen._types import Constraint
from relaygen.profiles import load, make_policy
from relaygen.serve._body import validate
from relaygen.serve._errors import ApiError
from relaygen.serve._models import Models
from relaygen.serve._requests import ChatRequest, CompletionRequest
from relaygen.serve._settings import Settings
from relaygen.serve._tasks import Order, Orders

from .support import ASK, TAGS, TOOL

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


def gates(seeded: bool) -> tuple[Gate, ...]:
    return (Breaker(),) if seeded else (Breaker(), PayGate())


def orders(**settings: Any) -> Orders:
    profile = load(TAGS)
    models = Models("relaygen", profile, make_policy("relay", profile))
    return Orders(profile, models, Settings(**settings))


def chat(made: Orders | None = None, /, **fields: Any) -> Order:
    request = validate({**ASK, **fields}, ChatRequest, strict=True).request
    return (made or orders()).chat(request, gates)


def text(**fields: Any) -> Order:
    request = validate({"prompt": "x", **fields}, CompletionRequest, strict=True).request
    return orders().text(request, gates)


def test_defaults_are_the_profiles() -> None:
    order = chat()
    task, profile = order.task, load(TAGS)
    assert task.sampling == profile.sampling
    assert task.thinking == profile.tags
    assert task.answer_role == profile.answer_role
    assert task.limits.max_tokens == Settings().default_max_tokens
    assert (task.stop, task.seed, task.constraint, task.calls) == ((), None, None, None)
    assert (order.stream, order.include_usage, order.annotate) == (False, False, None)
    assert text().task.limits.max_tokens == 16


def test_the_servers_settings_reach_the_task() -> None:
    task = chat(orders(rescue=True, hints=False, retries=1, default_max_tokens=7)).task
    assert (task.rescue, task.hints, task.retries) == (True, False, 1)
    assert task.limits.max_tokens == 7


def test_what_a_request_says() -> None:
    task = chat(
        temperature=0.5,
        top_p=0.5,
        top_k=-1,
        min_p=0.25,
        max_completion_tokens=100,
        max_tokens=100,
        max_reasoning_tokens=50,
        min_tokens=5,
        stop="END",
        seed=7,
    ).task
    sampling = task.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0.5, 0.5, 0, 0.25,
    )  # fmt: skip
    limits = task.limits
    assert (limits.max_tokens, limits.max_reasoning_tokens, limits.min_tokens) == (100, 50, 5)
    assert (task.stop, task.seed) == (("END",), 7)
    assert chat(stop=["a", "b"]).task.stop == ("a", "b")


def test_to_ignore_the_end_is_a_least_length() -> None:
    limits = chat(max_tokens=30, ignore_eos=True, min_tokens=3).task.limits
    assert (limits.min_tokens, limits.max_tokens) == (30, 30)


def test_a_least_length_above_the_most_is_refused() -> None:
    with pytest.raises(ApiError) as error:
        chat(max_tokens=3, min_tokens=4)
    assert error.value.param == "min_tokens"


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1, 2**31])
def test_any_seed_is_taken(seed: int) -> None:
    made = chat(seed=seed).task.seed
    assert made is not None
    assert 0 <= made < 2**31


def test_a_seed_switches_off_what_depends_on_time() -> None:
    assert [type(gate) for gate in chat().task.gates] == [Breaker, PayGate]
    assert [type(gate) for gate in chat(seed=0).task.gates] == [Breaker]


# Forms of the answer.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Constraint("json_object")),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            Constraint("json_schema", SCHEMA),
        ),
        ({"guided_json": SCHEMA}, Constraint("json_schema", SCHEMA)),
        ({"guided_json": '{"type": "object"}'}, Constraint("json_schema", {"type": "object"})),
        ({"guided_regex": "a+"}, Constraint("regex", "a+")),
        ({"guided_choice": ["a", "b"]}, Constraint("choice", ["a", "b"])),
        ({"guided_grammar": "root ::= x"}, Constraint("grammar", "root ::= x")),
        ({"structured_outputs": {"json": SCHEMA}}, Constraint("json_schema", SCHEMA)),
        ({"structured_outputs": {"choice": ["a"]}}, Constraint("choice", ["a"])),
        ({"structured_outputs": {"json_object": True}}, Constraint("json_object")),
        ({"structured_outputs": {}}, None),
    ],
)  # fmt: skip
def test_forms(fields: dict[str, Any], expected: Constraint | None) -> None:
    assert chat(**fields).task.constraint == expected
    assert text(**fields).task.constraint == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "text", "json_schema": {"schema": {}}}}, "response_format.type"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_json": "no schema"}, "guided_json"),
        ({"guided_json": "[" * 100_000}, "guided_json"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}, "tools": [TOOL]}, "response_format"),
    ],
)  # fmt: skip
def test_forms_that_are_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as error:
        chat(**fields)
    assert (error.value.status, error.value.param) == (400, param)


# One model or two.


@pytest.mark.parametrize(
    ("name", "value", "neutral"),
    [
        ("presence_penalty", 0.5, 0),
        ("frequency_penalty", -0.5, 0.0),
        ("repetition_penalty", 1.1, 1),
        ("logit_bias", {"7": 2}, {}),
    ],
)
def test_what_only_one_model_can_count(name: str, value: Any, neutral: Any) -> None:
    with pytest.raises(ApiError) as error:
        chat(**{name: value})
    assert (error.value.param, error.value.code) == (name, "unsupported")
    chat(**{name: neutral})
    made = getattr(chat(model="relaygen@small", **{name: value}).task.sampling, name)
    assert made == ({7: 2} if name == "logit_bias" else value)


@pytest.mark.parametrize("key", ["x", "-1", "1.5", "²", ""])
def test_a_bias_is_of_an_id(key: str) -> None:
    with pytest.raises(ApiError):
        chat(model="relaygen@large", logit_bias={key: 1})


def test_tools_make_calls_that_no_hand_off_splits() -> None:
    order = chat(tools=[TOOL], parallel_tool_calls=False)
    assert order.task.calls == ("<tool_call>", "</tool_call>")
    assert (order.tools, order.one_call) == (True, True)
    assert chat(tools=[TOOL]).one_call is False
    none = chat(tools=[TOOL], tool_choice="none")
    assert (none.tools, none.task.calls) == (False, None)


def test_what_does_not_fit_the_profile_is_the_callers_mistake() -> None:
    profile = load("embedded")
    models = Models("relaygen", profile, make_policy("relay", profile))
    with pytest.raises(UsageError, match="thinking"):
        chat(Orders(profile, models, Settings()), max_reasoning_tokens=3)
