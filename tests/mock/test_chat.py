"""``/v1/chat/completions`` over a real socket."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from relaygen.mock import Trace

from .support import TRACE, Client, engine

QUESTION = {"role": "user", "content": "How much?"}


def chat(client: Client, *messages: dict[str, Any], **options: Any) -> Any:
    sent = {"messages": [QUESTION, *messages], **options}
    return client.post("/v1/chat/completions", sent)


def content(client: Client, *messages: dict[str, Any], **options: Any) -> str:
    sent = {"messages": [QUESTION, *messages], "stream": True, **options}
    reply = client.events("/v1/chat/completions", sent)
    assert reply.error is None
    assert reply.done
    return "".join(chunk["choices"][0]["delta"]["content"] for chunk in reply.chunks)


def test_whole_and_streamed() -> None:
    with engine() as client:
        whole = chat(client)
        assert whole["object"] == "chat.completion"
        assert whole["id"].startswith("chatcmpl-")
        assert whole["choices"][0]["message"]["content"] == TRACE.text
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert whole["usage"]["completion_tokens"] == len(TRACE.tokens) + 1
        assert content(client) == TRACE.text


def test_the_shape_of_chunks() -> None:
    with engine() as client:
        sent = {"messages": [QUESTION], "stream": True, "max_completion_tokens": 2}
        first, second, last = client.events("/v1/chat/completions", sent).chunks
        assert first["object"] == "chat.completion.chunk"
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert second["choices"][0]["delta"] == {"content": "<think>"}
        assert [c["choices"][0]["finish_reason"] for c in (first, second, last)] == [
            None,
            None,
            "length",
        ]


def test_a_model_that_does_not_think_answers_at_once() -> None:
    answer = TRACE.text.split("</think>")[1].lstrip()
    with engine(template="plain") as client:
        assert content(client) == answer
        assert content(client, chat_template_kwargs={"enable_thinking": False}) == answer
        begun = {"role": "assistant", "content": answer[:9]}
        options = {"continue_final_message": True, "add_generation_prompt": False}
        assert content(client, begun, **options) == answer[9:]


def test_a_final_message_is_continued() -> None:
    with engine() as client:
        options = {"continue_final_message": True, "add_generation_prompt": False}
        for size in (0, 8, 9, 50, 120, len(TRACE.text)):  # some inside a token
            begun = {"role": "assistant", "content": TRACE.text[:size]}
            assert content(client, begun, **options) == TRACE.text[size:]
            whole = chat(client, begun, **options)
            assert whole["choices"][0]["message"]["content"] == TRACE.text[size:]
            assert client.log()[-1]["prompt_tokens"] == whole["usage"]["prompt_tokens"]


def test_two_orchestrated_engines_write_the_trace() -> None:
    options = {"continue_final_message": True, "add_generation_prompt": False, "stream": True}
    with engine() as large, engine(regroup=4) as small:
        text, turn = "", 0
        while text != TRACE.text:
            begun = {"role": "assistant", "content": text}
            more = content((large, small)[turn], begun, stop=[".", ","], max_tokens=30, **options)
            stop = TRACE.text[len(text) + len(more) :][:1]
            text += more + (stop if stop in (".", ",") else "")
            assert TRACE.text.startswith(text)
            turn = 1 - turn


def test_both_ways_to_end_a_prompt_are_refused() -> None:
    with engine() as client:
        sent = {"messages": [QUESTION], "continue_final_message": True}
        response = client.http.post("/v1/chat/completions", json=sent)
        assert response.status_code == 400
        assert "Cannot set both" in response.json()["error"]["message"]


def test_text_that_leaves_the_trace_is_refused() -> None:
    with engine() as client:
        begun = {"role": "assistant", "content": "<think>\nNo way"}
        sent = {
            "messages": [QUESTION, begun],
            "continue_final_message": True,
            "add_generation_prompt": False,
        }
        response = client.http.post("/v1/chat/completions", json=sent)
        assert response.status_code == 400
        assert "beginning of the trace" in response.json()["error"]["message"]
        streamed = client.events("/v1/chat/completions", {**sent, "stream": True})
        assert streamed.error is not None


def test_without_thinking_the_answer_comes_at_once() -> None:
    with engine() as client:
        said = content(client, chat_template_kwargs={"enable_thinking": False})
        assert said == "The sum is 42."


def test_stops() -> None:
    with engine() as client:
        whole = chat(client, stop="17")
        assert whole["choices"][0]["message"]["content"] == TRACE.text.partition("17")[0]
        assert whole["choices"][0]["stop_reason"] == "17"


def test_logprobs_and_ids() -> None:
    with engine(trace=Trace.of(["<think>", "a"])) as client:
        whole = chat(client, logprobs=True, top_logprobs=2, return_token_ids=True, max_tokens=1)
        shown = whole["choices"][0]["logprobs"]["content"][0]
        assert (shown["token"], shown["bytes"]) == ("<think>", list(b"<think>"))
        assert [len(shown["top_logprobs"]), shown["top_logprobs"][0]["logprob"]] == [
            2,
            shown["logprob"],
        ]
        rendered = client.post("/tokenize", {"messages": [QUESTION]})["tokens"]
        assert whole["prompt_token_ids"] == rendered
        assert whole["choices"][0]["token_ids"] == [151667]


@pytest.mark.parametrize(
    "sent",
    [{}, {"messages": []}, {"messages": "x"}, {"messages": [{"role": "x", "content": "y"}]}],
)
def test_what_is_no_conversation(sent: dict[str, Any]) -> None:
    with engine() as client:
        response = client.http.post("/v1/chat/completions", json=sent)
        assert response.status_code == 400
        assert "error" in response.json()


def test_as_many_stop_strings_as_the_engine_takes() -> None:
    stops = [f"never {n}" for n in range(5)]
    with engine() as client, pytest.raises(httpx.HTTPStatusError, match="400"):
        chat(client, stop=stops)
    with engine(max_stops=6) as client:
        cut = chat(client, stop=[*stops, "sum"], include_stop_str_in_output=True)
        text = cut["choices"][0]["message"]["content"]
        assert text == TRACE.text[: TRACE.text.index("sum") + 3]
        assert cut["choices"][0]["stop_reason"] == "sum"
        written = {"role": "assistant", "content": text}
        options = {"add_generation_prompt": False, "continue_final_message": True}
        rest = chat(client, written, **options)["choices"][0]["message"]["content"]
        assert text + rest == TRACE.text
