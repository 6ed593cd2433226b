"""The requests' bodies as pydantic models: the honoured fields, and nothing else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ._fields import HONOURED, IGNORED, REFUSED

_INT64 = 2**63


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Loose(BaseModel):
    """What other servers put beside the fields we know is left alone."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class TextPart(_Loose):
    """One part of a message's content; `text` is the only type."""

    type: str
    text: str | None = None


class FunctionCall(_Loose):
    """What a tool call calls; `arguments` is JSON text."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: str


class CallInHistory(_Loose):
    """A call that an earlier assistant message made."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(_Loose):
    """One message. `reasoning_content` and `reasoning` are an earlier turn's thinking."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallInHistory] | None = None
    tool_call_id: str | None = None


class Function(_Loose):
    """A function that the models may call."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Loose):
    """A tool; functions are the only type."""

    type: Literal["function"]
    function: Function


class JsonSchema(_Loose):
    """OpenAI's wrapping of a schema."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(_Strict):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(_Loose):
    """vLLM's form of the same; exactly one is given."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class StreamOptions(_Loose):
    """`include_usage` adds a chunk with the usage before the end."""

    include_usage: bool | None = None


class RelayOptions(_Strict):
    """What is ours: policy, level, and whether each chunk says which model wrote it."""

    policy: Annotated[str, Field(max_length=100)] | None = None
    level: Annotated[str, Field(max_length=100)] | None = None
    annotate: bool | None = None


_Count = Annotated[int, Field(ge=1, le=10_000_000)]
_Stop = Annotated[str, Field(min_length=1, max_length=1000)]
_Share = Annotated[float, Field(ge=0.0, le=1.0)]
_Penalty = Annotated[float, Field(ge=-2.0, le=2.0)]


class CommonRequest(_Strict):
    """What both routes take."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: _Stop | Annotated[list[_Stop], Field(max_length=16)] | None = None
    max_tokens: _Count | None = None
    max_reasoning_tokens: _Count | None = None
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, Field(ge=-1, le=1_000_000)] | None = None
    min_p: _Share | None = None
    min_tokens: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    ignore_eos: bool | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=2.0)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: Annotated[str, Field(min_length=1)] | None = None
    guided_choice: Annotated[list[str], Field(min_length=1)] | None = None
    guided_grammar: Annotated[str, Field(min_length=1)] | None = None
    relay: RelayOptions | None = None


class ChatRequest(CommonRequest):
    """The body of ``/v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: _Count | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


_Id = Annotated[int, Field(ge=0, lt=2**31)]


class CompletionRequest(CommonRequest):
    """The body of ``/v1/completions``. The prompt is continued as it is, without a template."""

    prompt: str | list[str] | list[_Id] | list[list[_Id]]


def schema(model: type[CommonRequest]) -> dict[str, Any]:
    """The model's JSON schema for the OpenAPI page, with all three lists of fields in it."""
    made = model.model_json_schema(ref_template="#/components/schemas/{model}")
    properties = made["properties"]
    for name, shown in properties.items():
        shown["description"] = HONOURED[name]
    for name, what in IGNORED.items():
        properties[name] = {"description": f"Ignored: {what}."}
    for name, refusal in REFUSED.items():
        allowed = [None, *refusal.neutral]
        properties[name] = {"enum": allowed, "description": f"Refused: {refusal.reason}."}
    return made
