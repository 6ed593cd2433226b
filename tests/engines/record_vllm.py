"""Records replies of a real vLLM server for the tests: ``python -m tests.engines.record_vllm``.

What it needs is what ``make test-vllm`` makes; the model is the random one. Kept is what came,
byte by byte, but for the folder of the model. ``requests.json`` has what was asked for each
recording: method, path, body, and the status of the answer.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx

from tests.vllm.servers import KEY, Server, kill_core, serving

HERE = Path(__file__).parent / "recordings" / "vllm"
IM_END, END_OF_TEXT, NEWLINE = 151645, 151643, 198
RARE = "🦄𓀀é龘𠮷"
"""Characters of one to three tokens each."""
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["S", "M"]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {"name": "weather", "arguments": '{"city": "Oslo"}'}
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hi."}]
BEGUN = [*CHAT, {"role": "assistant", "content": "Well,\n "}]
CALLED = [
    {"role": "user", "content": "Is it cold in Oslo?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "-3"},
]


class Recorder:
    def __init__(self, url: str) -> None:
        self._url = url
        self.asked: dict[str, Any] = {}

    def call(self, name: str, path: str, body: Any = None, key: str = KEY) -> httpx.Response:
        """Ask, and keep what was asked; the answer has the recording's name as its id."""
        headers = {"Authorization": f"Bearer {key}", "X-Request-Id": name}
        with httpx.Client(base_url=self._url, headers=headers, timeout=120) as client:
            reply = client.get(path) if body is None else client.post(path, json=body)
        self.note(name, path, body, reply.status_code)
        return reply

    def note(self, name: str, path: str, body: Any, status: int) -> None:
        method = "GET" if body is None else "POST"
        self.asked[name] = {"method": method, "path": path, "body": body, "status": status}

    def whole(self, name: str, path: str, body: Any = None, key: str = KEY) -> Any:
        reply = self.call(name, path, body, key)
        text = re.sub(r'"root":"[^"]*/', '"root":"/models/', reply.text)
        (HERE / f"{name}.json").write_text(text)
        return json.loads(text) if text else None

    def complete(self, name: str, prompt: list[int] | str, most: int, **fields: Any) -> None:
        """A streamed completion, as the relay asks for one."""
        reply = self.call(name, "/v1/completions", asked(prompt, most, **fields))
        if reply.headers["content-type"].startswith("text/event-stream"):
            (HERE / f"{name}.sse").write_bytes(reply.content)
        else:
            (HERE / f"{name}.json").write_bytes(reply.content)

    def chat(self, name: str, messages: list[Any], **fields: Any) -> list[int]:
        body = {"messages": messages, "add_generation_prompt": True, **fields}
        ids: list[int] = (self.whole(f"tokenize-{name}", "/tokenize", body) or {}).get("tokens", [])
        return ids


def asked(prompt: list[int] | str, most: int, **fields: Any) -> dict[str, Any]:
    """A request's body; greedy unless said otherwise."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": most,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "logprobs": 2,
        **fields,
    }
    return {key: value for key, value in body.items() if value is not None}


def record_texts(recorder: Recorder) -> list[int]:
    """Everything but generation; the ids of a chat."""
    for name, path in (("health", "/health"), ("version", "/version"), ("models", "/v1/models")):
        recorder.whole(name, path)
    recorder.whole("unauthorized", "/v1/models", key="wrong")
    plain = {"add_special_tokens": False, "return_token_strs": True}
    recorder.whole("tokenize-text", "/tokenize", {"prompt": f"Hi. {RARE}", **plain})
    special = "<|im_end|>\n</think><tool_call>"
    recorder.whole("tokenize-special", "/tokenize", {"prompt": special, **plain})
    ids = recorder.chat("chat", CHAT)
    recorder.chat("chat-closed", CHAT, add_generation_prompt=False)
    recorder.chat("chat-continued", BEGUN, add_generation_prompt=False, continue_final_message=True)
    recorder.chat("chat-behind", BEGUN)
    recorder.chat("chat-contradiction", BEGUN, continue_final_message=True)
    recorder.chat("chat-tools", CHAT, tools=[TOOL])
    recorder.chat("chat-called", CALLED, tools=[TOOL])
    recorder.chat("chat-kwargs", CHAT, chat_template_kwargs={"enable_thinking": False})
    recorder.chat("chat-missing", [{"content": "Hi"}])
    recorder.whole("detokenize", "/detokenize", {"tokens": ids})
    recorder.whole("detokenize-part", "/detokenize", {"tokens": [124373, 222]})
    recorder.whole("detokenize-nothing", "/detokenize", {"tokens": [999999]})
    recorder.whole("tokenize-no-such-model", "/tokenize", {"model": "other", "prompt": "x"})
    chat = {"model": "tiny", "messages": CHAT, "max_tokens": 1, "return_token_ids": True}
    recorder.whole("chat", "/v1/chat/completions", chat)
    recorder.whole("chat-unary", "/v1/completions", asked(ids, 4, stream=None, stream_options=None))
    return ids


def record_streams(recorder: Recorder, ids: list[int]) -> None:
    """Generations, by how they end and what they hold."""
    complete = recorder.complete
    complete("length", ids, 6)
    complete("long", ids * 5, 6)
    complete("long-cached", ids * 5, 6)  # whole blocks of it are cached now
    complete("sampled", ids, 6, temperature=1.5, seed=7)  # some drawn token is not among the two
    complete("bare", ids, 6, logprobs=None)
    complete("burst", ids, 9, stream_interval=4)
    complete("turn", ids, 20, min_tokens=3, logit_bias={str(IM_END): 100})
    complete("turn-at-once", ids, 20, logit_bias={str(IM_END): 100})
    complete("turn-other", ids, 20, logit_bias={str(END_OF_TEXT): 100})  # not the primary EOS
    bias = {str(NEWLINE): 100}
    complete("hint", ids, 20, stop_token_ids=[NEWLINE, 271], min_tokens=2, logit_bias=bias)
    complete("hint-at-once", ids, 20, stop_token_ids=[NEWLINE], logit_bias=bias)
    included = {"include_stop_str_in_output": True, "logit_bias": bias}
    complete("stop", ids, 20, stop=["\n\n"], **included)
    complete("rare", ids, 40, structured_outputs={"choice": [RARE * 2]})
    complete("rare-cut", ids, 3, structured_outputs={"choice": [RARE]})  # inside a character
    complete("rare-begun", [*ids, 124373], 4, logit_bias={"222": 100})  # the prompt ends in one
    complete("text", "Hi. " * 3, 6, return_token_ids=None, logprobs=None)
    complete("context", [100] * 500, 50)
    for name, temperature in (("warm", 1.0), ("cool", 0.5)):
        complete(f"margin-{name}", ids, 1, temperature=temperature)
    forms = {
        "regex": {"regex": "[0-9]{3}-[a-c]"},
        "choice": {"choice": ["yes", "no"]},
        "grammar": {"grammar": 'root ::= "ab" | "cd"'},
        "object": {"json_object": True},
        "bad": {"regex": "[0-9"},
        "unknown": {"shape": "round"},
    }
    wish = '{"ok":true,"size":"S"}'  # else a random model writes blanks only
    found = recorder.call("wish", "/tokenize", {"prompt": wish}).json()["tokens"]
    bias = dict.fromkeys(map(str, found), 100)
    complete("form-json", ids, 30, structured_outputs={"json": SCHEMA}, logit_bias=bias)
    for name, form in forms.items():
        complete(f"form-{name}", ids, 30, structured_outputs=form)


def record_errors(recorder: Recorder, ids: list[int]) -> None:
    """What the server refuses."""
    complete = recorder.complete
    complete("too-long", [100] * 600, 5)
    complete("full", [100] * 512, 5)
    complete("too-many", ids, 600)
    complete("five-stops", ids, 5, stop=list("abcde"))
    complete("too-wide", ids, 5, logprobs=30)
    complete("no-such-id", [999999], 5)
    complete("no-such-model", ids, 5, model="other")


def record_death(recorder: Recorder, server: Server, ids: list[int]) -> None:
    """The engine's own process is killed in mid-generation; the front end tells, and ends."""
    body = asked(ids, 400, ignore_eos=True)
    headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "dead"}
    url, kept = f"{server.url}/v1/completions", b""
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as reply:
        recorder.note("dead", "/v1/completions", body, reply.status_code)
        for part in reply.iter_raw():
            if not kept:
                kill_core(server)
            kept += part
    events = kept.split(b"\n\n")
    (HERE / "dead.sse").write_bytes(b"\n\n".join([*events[:3], *events[-3:]]))


def main() -> None:
    HERE.mkdir(exist_ok=True)
    with serving("tiny", 512) as server:
        recorder = Recorder(server.url)
        ids = record_texts(recorder)
        record_streams(recorder, ids)
        record_errors(recorder, ids)
        record_death(recorder, server, ids)
    lines = [
        f"{json.dumps(name)}: {json.dumps(what, ensure_ascii=False)}"
        for name, what in recorder.asked.items()
    ]
    (HERE / "requests.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
