"""``/v1/completions`` over a real socket: the trace byte for byte, and vLLM's shapes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from relaygen.mock import Trace, load_trace
from relaygen.mock._vocabulary import EOS, SPECIAL

from .support import HEAD, TRACE, Client, body, engine


@pytest.fixture(scope="module")
def idle() -> Iterator[Client]:
    with engine() as client:
        yield client


EMOJI = "👍".encode()
CUT = Trace.of(["We", " say", b" " + EMOJI[:2], EMOJI[2:], ".", " So", " it", " is", "."])


def test_a_whole_turn() -> None:
    with engine() as client:
        reply = client.stream(HEAD)
        assert reply.text == TRACE.text
        assert (reply.finish, reply.stop, reply.done) == ("stop", None, True)
        assert reply.ids == [*client.get("/mock/trace")["ids"], EOS]
        assert reply.usage == {
            "prompt_tokens": len(client.ids(HEAD)),
            "completion_tokens": len(TRACE.tokens) + 1,
            "total_tokens": len(client.ids(HEAD)) + len(TRACE.tokens) + 1,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        whole = client.complete(HEAD)
        assert whole["choices"][0]["token_ids"] == reply.ids
        assert whole["choices"][0]["text"] == reply.text
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert whole["usage"]["completion_tokens"] == len(reply.ids)


def test_any_cuts_and_any_chunks_give_the_trace() -> None:
    draw = random.Random(3)
    for shape in ({}, {"regroup": 6}, {"burst": 4}, {"burst": 3, "regroup": 3, "jitter": 1.0}):
        with engine(seed=draw.randrange(99), **shape) as client:
            prompt = client.ids(HEAD)
            ids = list(prompt)
            while ids[-1] != EOS:
                reply = client.stream(ids, max_tokens=draw.randint(1, 20))
                ids += reply.ids
            assert ids[len(prompt) : -1] == client.get("/mock/trace")["ids"]
            assert client.post("/detokenize", {"tokens": ids[len(prompt) : -1]}) == {
                "prompt": TRACE.text
            }


def test_chunks_hold_one_token_or_several() -> None:
    with engine() as client:
        sizes = [len(c["choices"][0]["token_ids"]) for c in client.stream(HEAD).chunks]
        assert set(sizes) == {1}
    grouped = []
    for seed in (1, 1, 2):
        with engine(regroup=5, seed=seed) as client:
            reply = client.stream(HEAD)
            assert reply.text == TRACE.text
            grouped.append([len(c["choices"][0]["token_ids"]) for c in reply.chunks])
    assert grouped[0] == grouped[1] != grouped[2]
    assert max(grouped[0]) > 1


def test_the_shape_of_a_chunk() -> None:
    with engine() as client:
        first, second, *_ = client.stream(HEAD).chunks
        assert set(first) == {"id", "object", "created", "model", "choices", "usage", "emitted"}
        assert (first["object"], first["model"]) == ("text_completion", "mock")
        assert first["id"].startswith("cmpl-")
        assert first["id"] == second["id"]
        assert first["choices"][0]["prompt_token_ids"] == client.ids(HEAD)
        assert second["choices"] == [
            {
                "index": 0,
                "text": "\n",
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
                "prompt_token_ids": None,
                "token_ids": [10],
            }
        ]


def test_ids_and_usage_come_only_when_asked_for() -> None:
    with engine() as client:
        sent = {"prompt": HEAD, "stream": True}
        reply = client.events("/v1/completions", sent)
        assert reply.usage is None
        assert reply.finish == "length"
        assert len(reply.chunks) == 16  # vLLM's default
        assert all(c["choices"][0]["token_ids"] is None for c in reply.chunks)
        assert all(c["choices"][0]["prompt_token_ids"] is None for c in reply.chunks)


def test_the_request_id_is_taken_over() -> None:
    with engine() as client:
        response = client.http.post(
            "/v1/completions", json=body(HEAD, max_tokens=1), headers={"X-Request-Id": "abc"}
        )
        assert response.json()["id"] == "cmpl-abc"


def test_half_a_character_is_no_text_yet() -> None:
    with engine(trace=CUT) as client:
        chunks = client.stream(HEAD).chunks
        assert [c["choices"][0]["text"] for c in chunks[:4]] == ["We", " say", "", " 👍"]
        assert "".join(c["choices"][0]["text"] for c in chunks) == CUT.text


def test_a_stop_id_is_the_last_token() -> None:
    with engine(trace=CUT) as client:
        so = client.ids(" So")[0]
        reply = client.stream(HEAD, stop_token_ids=[so, 5])
        assert (reply.ids[-1], reply.finish, reply.stop) == (so, "stop", so)
        assert reply.text == "We say 👍."
        included = client.stream(HEAD, stop_token_ids=[so], include_stop_str_in_output=True)
        assert included.text == "We say 👍. So"


def test_stop_strings() -> None:
    with engine(trace=CUT) as client:
        reply = client.stream(HEAD, stop=["o i"])
        assert (reply.text, reply.finish, reply.stop) == ("We say 👍. S", "stop", "o i")
        assert reply.ids[-1] == client.ids(" it")[0]
        included = client.stream(HEAD, stop="o i", include_stop_str_in_output=True)
        assert included.text == "We say 👍. So i"
        assert client.stream(HEAD, stop=["zz"]).text == CUT.text


def test_least_tokens_put_off_every_stop() -> None:
    with engine(trace=CUT) as client:
        so = client.ids(" So")[0]
        assert client.stream(HEAD, stop_token_ids=[so], min_tokens=6).text == CUT.text
        assert client.stream(HEAD, stop_token_ids=[so], min_tokens=5).stop == so
        assert client.stream(HEAD, stop=[" So"], min_tokens=6).text == CUT.text
        reply = client.stream(HEAD, min_tokens=12)
        assert reply.text == f"{CUT.text}\n\n\n"
        assert len(reply.ids) == 13
        longer = client.stream(HEAD, ignore_eos=True, max_tokens=20)
        assert (len(longer.ids), longer.finish) == (20, "length")
        ids = client.ids(HEAD) + longer.ids
        assert client.stream(ids).ids == [EOS]


def test_special_tokens_in_the_text() -> None:
    trace = Trace.of(["<think>", "a", "</think>", "b"])
    with engine(trace=trace) as client:
        reply = client.stream(HEAD)
        assert reply.text == "<think>a</think>b"
        assert reply.ids[2] == SPECIAL["</think>"]
        shown = client.stream(HEAD, skip_special_tokens=False, include_stop_str_in_output=True)
        assert shown.text == "<think>a</think>b<|im_end|>"


def test_logprobs() -> None:
    with engine(trace=CUT, margin=0.5) as client:
        ids = client.ids(HEAD)
        choice = client.complete(ids, max_tokens=1, logprobs=2, return_tokens_as_token_ids=True)[
            "choices"
        ][0]
        we = choice["token_ids"][0]
        assert choice["logprobs"]["tokens"] == [f"token_id:{we}"]
        top = choice["logprobs"]["top_logprobs"][0]
        best, second = top[f"token_id:{we}"], min(top.values())
        assert len(top) == 2
        assert choice["logprobs"]["token_logprobs"] == [best]
        assert 2.718281828**best - 2.718281828**second == pytest.approx(0.5)
        named = client.complete(ids, max_tokens=2, logprobs=0)["choices"][0]["logprobs"]
        assert named["tokens"] == ["We", " say"]
        assert named["text_offset"] == [0, 2]
        assert [list(one) for one in named["top_logprobs"]] == [["We"], [" say"]]
        assert client.stream(ids, logprobs=1).chunks[0]["choices"][0]["logprobs"]["tokens"]


@pytest.mark.parametrize("processed", [False, True])
def test_logprobs_and_temperature(processed: bool) -> None:
    with engine(processed_logprobs=processed) as client:
        found = [
            client.complete(HEAD, max_tokens=1, logprobs=2, temperature=temperature)["choices"][0][
                "logprobs"
            ]["token_logprobs"]
            for temperature in (0.5, 1.0)
        ]
        assert (found[0] == found[1]) != processed


def test_ids_that_leave_the_trace_are_refused() -> None:
    with engine() as client:
        right = client.ids(HEAD) + client.get("/mock/trace")["ids"][:20]
        assert client.stream(right, max_tokens=1).error is None
        wrong = [*right[:-1], 33]
        reply = client.stream(wrong)
        assert reply.error is not None
        assert reply.done
        assert "token 19 behind the prompt is 33 b'!', not" in reply.error["message"]
        assert client.http.post("/v1/completions", json=body(wrong)).status_code == 400
        assert {e["failure"] for e in client.log()[-2:]} == {"off trace"}
        marked = [*right, *client.ids("\n</think>\n\n")]
        assert client.stream(marked).error is not None


def test_other_ids_for_the_same_text_are_refused_unless_text_counts() -> None:
    trace = Trace.of(["We", " add", "."])
    for match, refused in (("ids", True), ("text", False)):
        with engine(trace=trace, match=match) as client:
            ids = client.ids(HEAD) + list(b"We a")
            reply = client.stream(ids)
            assert (reply.error is not None) == refused
            if not refused:
                assert reply.text == "dd."


def test_a_pair_with_two_vocabularies_writes_one_text() -> None:
    draw = random.Random(5)
    trace = Trace.of(load_trace("long").tokens[:200])
    with (
        engine(trace=trace, match="text") as large,
        engine(trace=trace, match="text", split=True) as small,
    ):
        text, contexts = "", [large.ids(HEAD), small.ids(HEAD)]
        turn = 0
        while True:
            reply = (large, small)[turn].stream(contexts[turn], max_tokens=draw.randint(1, 9))
            assert reply.error is None
            contexts[turn] += [id for id in reply.ids if id != EOS]
            contexts[1 - turn] += (small, large)[turn].ids(reply.text)
            text += reply.text
            turn = 1 - turn
            if reply.finish == "stop":
                break
        assert text == trace.text
        assert len(contexts[1]) > len(contexts[0])


@pytest.mark.parametrize("thinking", [True, False])
def test_the_thinking_may_be_closed_in_the_prompt(thinking: bool) -> None:
    trace = TRACE if thinking else CUT
    with engine(trace=trace) as client:
        closed = f"{HEAD}<think>\n\n</think>\n\n"
        answer = trace.text.rpartition("</think>\n\n")[2]
        reply = client.stream(client.ids(closed))
        assert reply.text == answer
        again = client.stream(client.ids(closed) + reply.ids[:2])
        assert again.text == client.post("/detokenize", {"tokens": reply.ids[2:-1]})["prompt"]


def test_a_prompt_may_hold_the_beginning() -> None:
    with engine() as client:
        assert client.stream(client.ids(f"{HEAD}<think>\n")).text == TRACE.text[8:]
        assert client.stream(f"{HEAD}{TRACE.text[:50]}").text == TRACE.text[50:]
        assert client.log()[-1]["start"] is not None


def test_earlier_turns_are_prompt() -> None:
    with engine() as client:
        prompt = f"{HEAD}Something else.<|im_end|>\n{HEAD}"
        assert client.stream(client.ids(prompt)).text == TRACE.text


def test_raw_prompts() -> None:
    with engine(trace=CUT) as client:
        ids = client.post("/tokenize", {"prompt": "Once upon a time"})["tokens"]
        reply = client.stream(ids, max_tokens=3)
        assert client.stream(ids + reply.ids).text == CUT.text[len("We say ") :]
        assert client.stream([*ids, *reply.ids, 33]).error is not None
        # Another prompt that begins like the first, and one that was never tokenized here.
        assert client.stream("Once upon a time there was").text == CUT.text
        assert client.stream(list(b"Never seen."), max_tokens=2).text == "We say"
        assert client.stream("Never seen.We say 👍").text == ". So it is."


def test_pieces_that_were_tokenized_are_no_prompts() -> None:
    with engine(trace=CUT) as client:
        client.ids("1 + ")
        assert client.stream("1 + Why?").text == CUT.text


def test_a_raw_prompt_with_an_open_tag() -> None:
    with engine() as client:
        assert client.stream("Count: <think>\n", max_tokens=5).text == "Okay, we need the"


def test_the_context_is_a_limit() -> None:
    with engine(context=60) as client:
        prompt = client.ids(HEAD)
        reply = client.stream(prompt, max_tokens=50)
        assert reply.finish == "length"
        assert len(prompt) + len(reply.ids) == 60
        for ids, told in (
            ([1] * 61, "This model's maximum context length is 60"),
            ([1] * 60, "at"),
        ):
            response = client.http.post("/v1/completions", json=body(ids, max_tokens=5))
            assert response.status_code == 400
            assert told in response.json()["error"]["message"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "list of token ids"),
    ({"prompt": []}, "cannot be empty"),
    ({"prompt": [1, "a"]}, "list of token ids"),
    ({"prompt": [1, 200_000]}, "out of vocabulary"),
    ({"prompt": "x", "stop": ["a"] * 5}, "too_long"),
    ({"prompt": "x", "stop": [""]}, "empty string"),
    ({"prompt": "x", "stop": 3}, "list of strings"),
    ({"prompt": "x", "stop_token_ids": ["a"]}, "token ids"),
    ({"prompt": "x", "max_tokens": 0}, "max_tokens must be at least 1"),
    ({"prompt": "x", "max_tokens": "7"}, "valid integer"),
    ({"prompt": "x", "max_tokens": 10**6}, "cannot be greater than max_model_len"),
    ({"prompt": "x", "logprobs": 21}, "max allowed"),
    ({"prompt": "x", "n": 2}, "one choice"),
    ({"prompt": "x", "temperature": -1}, "non-negative"),
    ({"prompt": "x", "stream": "yes"}, "valid boolean"),
    ({"prompt": "x", "stream_options": {"include_usage": True}}, "stream=True"),
]


@pytest.mark.parametrize(("sent", "told"), BAD)
def test_bad_requests(idle: Client, sent: dict[str, Any], told: str) -> None:
    response = idle.http.post("/v1/completions", json=sent)
    assert response.status_code == 400
    error = response.json()["error"]
    assert told in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert idle.log() == []


def test_four_stops_and_unknown_fields_pass() -> None:
    with engine() as client:
        assert client.complete(HEAD, stop=["q"] * 4, whatever=3, user="x")["choices"]


def test_bodies_that_are_no_json_object() -> None:
    with engine() as client:
        for data in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
            assert client.http.post("/v1/completions", content=data).status_code == 400


def test_the_long_trace() -> None:
    with engine(trace="long") as client:
        assert client.stream(HEAD, max_tokens=4000).text == load_trace("long").text
