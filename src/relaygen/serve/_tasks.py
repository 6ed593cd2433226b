"""From a checked request to a task of the relay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .._gate import Gate
from .._profile import Profile
from .._task import Limits, Task
from .._types import Constraint, Conversation, Sampling
from ..policies.base import Policy
from . import _conversation
from ._errors import invalid
from ._models import Models
from ._requests import ChatRequest, CommonRequest, CompletionRequest
from ._settings import Settings
from ._tools import CLOSING, OPENING

COMPLETION_TOKENS = 16
"""OpenAI's default of ``/v1/completions``."""

_SEED_BITS = 0x7FFF_FFFF

Gates = Callable[[bool], tuple[Gate, ...]]
"""The gates of a generation, given whether it has a seed."""


@dataclass(frozen=True, slots=True)
class Order:
    """A request that can be carried out.

    Attributes:
        task: what the relay does.
        model: the name in the reply.
        policy: as written by whoever chose it.
        level: the profile's level in force; "" where none is.
        stream: whether the reply is a stream.
        include_usage: whether the stream ends with the usage.
        annotate: whether each chunk says who wrote it; None where the request is silent.
        tools: whether calls are to be found in the answer.
        one_call: whether the answer ends after the first call.
        chat: else a plain completion.
    """

    task: Task
    model: str
    policy: str
    stream: bool
    include_usage: bool
    annotate: bool | None
    tools: bool = False
    one_call: bool = False
    chat: bool = True
    level: str = ""


class Orders:
    """Makes orders.

    Args:
        profile: of the pair.
        models: the names there are.
        settings: of the server.
    """

    def __init__(self, profile: Profile, models: Models, settings: Settings) -> None:
        self._profile = profile
        self._models = models
        self._settings = settings

    def chat(self, request: ChatRequest, gates: Gates) -> Order:
        """A chat completion.

        Raises:
            ApiError: 400 or 404 with the reason.
            UsageError: a value is out of range.
        """
        conversation = _conversation.chat(request, self._profile)
        limit, other = request.max_tokens, request.max_completion_tokens
        if None not in (limit, other) and limit != other:
            raise invalid("max_tokens and max_completion_tokens differ", "max_tokens")
        order = self._order(
            request, conversation, other or limit or self._settings.default_max_tokens, gates
        )
        _conversation.refuse_both(request, order.task.constraint is not None)
        if not conversation.tools:
            return order
        return replace(
            order,
            task=replace(order.task, calls=(OPENING, CLOSING)),
            tools=True,
            one_call=request.parallel_tool_calls is False,
        )

    def text(self, request: CompletionRequest, gates: Gates) -> Order:
        """A plain completion.

        Raises:
            ApiError: 400 or 404 with the reason.
            UsageError: a value is out of range.
        """
        conversation = _conversation.text(request)
        order = self._order(request, conversation, request.max_tokens or COMPLETION_TOKENS, gates)
        return replace(order, chat=False)

    def _order(
        self,
        request: CommonRequest,
        conversation: Conversation,
        max_tokens: int,
        gates: Gates,
    ) -> Order:
        relay = request.relay
        wishes = (relay.policy, relay.level) if relay else (None, None)
        choice = self._models.pick(request.model, *wishes)
        policy = choice.policy
        options = request.stream_options
        if options is not None and options.include_usage and not request.stream:
            raise invalid("stream_options need stream", "stream_options")
        profile, settings = self._profile, self._settings
        task = Task(
            conversation,
            policy,
            thinking=profile.marks,
            answer_role=profile.answer_role,
            sampling=_sampling(request, profile, policy),
            limits=_limits(request, max_tokens),
            stop=_stop(request),
            seed=None if request.seed is None else request.seed & _SEED_BITS,
            constraint=constraint(request),
            gates=gates(request.seed is not None),
            retries=settings.retries,
            rescue=settings.rescue,
            hints=settings.hints,
            notes=choice.notes,
        )
        return Order(
            task,
            choice.name,
            choice.spec,
            level=choice.level,
            stream=bool(request.stream),
            include_usage=bool(options and options.include_usage),
            annotate=relay.annotate if relay else None,
        )


def _sampling(request: CommonRequest, profile: Profile, policy: Policy) -> Sampling:
    alone = len(policy.roles) == 1
    names = ("temperature", "top_p", "top_k", "min_p")
    penalties = (("presence_penalty", 0), ("frequency_penalty", 0), ("repetition_penalty", 1))
    given: dict[str, Any] = {
        name: getattr(request, name) for name in (*names, *(name for name, _ in penalties))
    }
    for name, neutral in penalties:
        if not alone and given[name] not in (None, neutral):
            raise invalid(
                f"{name} needs a policy with one model (large or small): engines count tokens per "
                "request, and a relay makes many",
                name,
                "unsupported",
            )
    if given["top_k"] == -1:
        given["top_k"] = 0
    if request.logit_bias:
        if not alone:
            raise invalid(
                "logit_bias needs a policy with one model (large or small): ids differ between "
                "models",
                "logit_bias",
                "unsupported",
            )
        given["logit_bias"] = _bias(request.logit_bias)
    return replace(profile.sampling, **{k: v for k, v in given.items() if v is not None})


def _bias(given: dict[str, float]) -> dict[int, float]:
    made = {}
    for name, value in given.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10):
            raise invalid("keys must be token ids", "logit_bias")
        made[int(name)] = value
    return made


def _limits(request: CommonRequest, max_tokens: int) -> Limits:
    least = request.min_tokens or 0
    if request.ignore_eos:
        least = max_tokens
    if least > max_tokens:
        raise invalid(f"min_tokens is above max_tokens ({max_tokens})", "min_tokens")
    return Limits(
        max_tokens=max_tokens,
        max_reasoning_tokens=request.max_reasoning_tokens,
        min_tokens=least,
    )


def _stop(request: CommonRequest) -> tuple[str, ...]:
    if request.stop is None:
        return ()
    return (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)


def constraint(request: CommonRequest) -> Constraint | None:
    """The one form that the answer must have.

    Raises:
        ApiError: 400 for two of them, or one that is incomplete.
    """
    found: list[tuple[str, Constraint]] = []
    form = request.response_format
    if form is not None and form.type == "json_object":
        found.append(("response_format", Constraint("json_object")))
    elif form is not None and form.type == "json_schema":
        if form.json_schema is None or form.json_schema.schema_ is None:
            raise invalid("json_schema.schema is missing", "response_format.json_schema")
        found.append(("response_format", Constraint("json_schema", form.json_schema.schema_)))
    elif form is not None and form.json_schema is not None:
        raise invalid("json_schema needs type json_schema", "response_format.type")
    outputs = request.structured_outputs
    forms: tuple[tuple[str, Any, Any], ...] = (
        ("json_schema", request.guided_json, outputs and outputs.json_),
        ("regex", request.guided_regex, outputs and outputs.regex),
        ("choice", request.guided_choice, outputs and outputs.choice),
        ("grammar", request.guided_grammar, outputs and outputs.grammar),
    )
    for kind, guided, output in forms:
        name = "guided_" + kind.removesuffix("_schema")
        for field, value in ((name, guided), ("structured_outputs", output)):
            if value is not None:
                found.append((field, _form(kind, value, field)))
    if outputs is not None and outputs.json_object:
        found.append(("structured_outputs", Constraint("json_object")))
    if len(found) > 1:
        raise invalid("only one form of the answer can hold", found[1][0])
    return found[0][1] if found else None


def _form(kind: Any, value: Any, field: str) -> Constraint:
    if kind == "json_schema" and isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise invalid("a schema must be a JSON object", field)
    if not value and kind != "json_schema":
        raise invalid("it is empty", field)
    return Constraint(kind, value)
