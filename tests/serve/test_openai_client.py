"""The official client, unchanged, over a real socket."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from relaygen import EngineReplyError
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.serve._settings import Settings

from ..docs import ROOT, fences, text_of
from .support import ANSWER, CALL, PLAIN, REASONING, THINKING, TOOL, Pair, pair, serving

MESSAGES: Any = [{"role": "user", "content": "1 + 2?"}]
TOOLS: Any = [TOOL]


def client(url: str, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=30)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Pair, openai.OpenAI]]:
    made = pair(settings=Settings(api_keys=("sk-1", "sk-2")))
    with serving(made) as url, client(url, "sk-2") as api:
        yield made, api


def test_models(served: tuple[Pair, openai.OpenAI]) -> None:
    ids = [model.id for model in served[1].models.list()]
    assert ids[0] == "relaygen"
    assert served[1].models.retrieve("relaygen@large").id == "relaygen@large"


def test_a_whole_chat(served: tuple[Pair, openai.OpenAI]) -> None:
    made = served[1].chat.completions.create(model="relaygen", messages=MESSAGES)
    message = made.choices[0].message
    assert message.content == ANSWER
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"] == REASONING
    assert made.usage is not None
    assert made.usage.completion_tokens_details is not None
    assert made.usage.completion_tokens_details.reasoning_tokens
    assert made.model_extra is not None
    assert made.model_extra["relay"]["handoffs"] == 5


def test_a_streamed_chat(served: tuple[Pair, openai.OpenAI]) -> None:
    stream = served[1].chat.completions.create(
        model="relaygen",
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"relay": {"annotate": True}},
    )
    answer, reasoning, writers = "", "", set()
    usage = None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            answer += choice.delta.content or ""
            extra: dict[str, Any] = choice.delta.model_extra or {}
            reasoning += extra.get("reasoning_content", "")
            told: dict[str, Any] = (chunk.model_extra or {}).get("relay") or {}
            if "model" in told:
                writers.add(told["model"])
    assert (answer, reasoning, writers) == (ANSWER, REASONING, {"large", "small"})
    assert usage is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_plain_completion(served: tuple[Pair, openai.OpenAI]) -> None:
    made = served[1].completions.create(model="relaygen", prompt="1 + 2?", max_tokens=4)
    assert made.choices[0].finish_reason == "length"


def test_tools() -> None:
    made = pair(f"I add.\n{CALL}", profile="embedded")
    with serving(made) as url, client(url) as api:
        whole = api.chat.completions.create(model="relaygen", messages=MESSAGES, tools=TOOLS)
        calls = whole.choices[0].message.tool_calls
        assert calls is not None
        assert calls[0].type == "function"
        assert calls[0].function.name == "add"
        assert calls[0].function.arguments == '{"a": 1, "b": [2, "zwei"]}'
        with api.chat.completions.stream(
            model="relaygen", messages=MESSAGES, tools=TOOLS
        ) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].finish_reason == "tool_calls"
        streamed = final.choices[0].message.tool_calls
        assert streamed is not None
        assert streamed[0].function.arguments == calls[0].function.arguments
        again: Any = [
            *MESSAGES,
            whole.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": calls[0].id, "content": "3"},
        ]
        api.chat.completions.create(model="relaygen", messages=again, tools=TOOLS)


def test_errors_have_the_clients_classes(served: tuple[Pair, openai.OpenAI]) -> None:
    pair_, api = served
    create: Any = api.chat.completions.create
    with pytest.raises(openai.BadRequestError) as refused:
        create(model="relaygen", messages=MESSAGES, n=2)
    assert (refused.value.param, refused.value.code) == ("n", "unsupported")
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        create(model="gpt-4", messages=MESSAGES)
    with pytest.raises(openai.NotFoundError, match="chat/completions"):
        api.responses.create(model="relaygen", input="hi")
    with pytest.raises(openai.AuthenticationError):
        api.with_options(api_key="sk-3").chat.completions.create(
            model="relaygen", messages=MESSAGES
        )
    pair_.service.drain()
    try:
        with pytest.raises(openai.InternalServerError, match="shutting down"):
            create(model="relaygen", messages=MESSAGES)
    finally:
        pair_.service.admission.draining = False


def test_too_many_requests_are_a_rate_limit() -> None:
    made = pair(settings=Settings(max_concurrent=1, max_queue=0))
    made.service.admission.running = 1
    with serving(made) as url, client(url) as api, pytest.raises(openai.RateLimitError) as full:
        api.chat.completions.create(model="relaygen", messages=MESSAGES)
    made.service.admission.running = 0
    assert full.value.response.headers["retry-after"]


def test_an_error_in_a_stream_is_raised_by_the_client() -> None:
    failing = ScriptedEngine(THINKING, failures=[Failure(EngineReplyError("garbage"), token=4)])
    with serving(pair(large=failing)) as url, client(url) as api:
        stream = api.chat.completions.create(model="relaygen", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="garbage"):
            list(stream)


def test_leaving_a_stream_frees_the_engines() -> None:
    slow = ScriptedEngine(PLAIN * 200, token_ms=5)
    made = pair(PLAIN * 200, large=slow, profile="embedded", policy="large")
    with serving(made) as url, client(url) as api:
        stream = api.chat.completions.create(model="relaygen", messages=MESSAGES, stream=True)
        next(iter(stream))
        stream.close()
    assert slow.aborted == 1
    assert len(slow.released) == 1


def test_the_pages_sample_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    (sample,) = (f for f in fences(text_of(ROOT / "docs" / "serve.md")) if f.language == "python")
    with serving(pair()) as url:
        code = re.sub(r"http://127.0.0.1:\d+", url, sample.text)
        assert code != sample.text
        exec(compile(code, "serve.md", "exec"), {})
    whole, streamed = capsys.readouterr().out.split(f"{ANSWER} {{", 1)
    assert whole.strip() == REASONING.strip()
    assert streamed.count(ANSWER) == 1
    assert streamed.count("'handoffs': 5") == 2
