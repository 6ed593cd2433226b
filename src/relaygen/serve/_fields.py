"""The request fields by name: honoured, ignored, refused; for checks, docs and OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HONOURED: Mapping[str, str] = {
    "model": "the served name; `name@policy[:option]` picks a policy, `name@large` one model, "
    "`name@level` a level",
    "messages": "chat; text content only, as a string or as text parts",
    "prompt": "completions; one text or one list of token ids, continued as it is",
    "stream": "server-sent events, every token its own",
    "stream_options": "`include_usage` adds a last chunk with the usage",
    "stop": "one or up to 16 texts that end the answer; they never act inside the thinking",
    "max_tokens": "of everything that is written, thinking included",
    "max_completion_tokens": "the same; 400 if both are given and differ",
    "max_reasoning_tokens": "after which the thinking is closed",
    "seed": "draws the same tokens again, as far as the engines are deterministic",
    "temperature": "0 to 2; default: the profile's",
    "top_p": "0 to 1; default: the profile's",
    "top_k": "0 or -1 is off; default: the profile's",
    "min_p": "0 to 1; default: the profile's",
    "min_tokens": "before which no model may end its turn",
    "ignore_eos": "write max_tokens whatever the model wants",
    "presence_penalty": "with a policy of one model; otherwise only 0",
    "frequency_penalty": "with a policy of one model; otherwise only 0",
    "repetition_penalty": "with a policy of one model; otherwise only 1",
    "logit_bias": "with a policy of one model, by that model's token ids; otherwise only empty",
    "chat_template_kwargs": "reach both chat templates",
    "enable_thinking": "short for the entry of chat_template_kwargs",
    "reasoning_effort": "short for the entry of chat_template_kwargs; `none` turns thinking off",
    "continue_final_message": "the last message is the assistant's and is continued",
    "add_generation_prompt": "true, or false together with continue_final_message",
    "response_format": "`text`, `json_object` or `json_schema`, from the answer's first token",
    "structured_outputs": "vLLM's form: one of json, regex, choice, grammar, json_object",
    "guided_json": "a JSON schema",
    "guided_regex": "a pattern",
    "guided_choice": "a list of texts",
    "guided_grammar": "a grammar in the engine's notation",
    "tools": "functions, where the profile has a tool format",
    "tool_choice": "`auto` or `none`",
    "parallel_tool_calls": "false ends the answer after the first call",
    "relay": "`policy`, `level`: as after the @ in `model`; `annotate`: chunks say who wrote them",
}
"""Fields that do what their documentation says."""

IGNORED: Mapping[str, str] = {
    "user": "who asks",
    "safety_identifier": "who asks",
    "metadata": "for the caller's records",
    "store": "nothing is stored",
    "service_tier": "there is one tier",
    "priority": "requests are served in order",
    "request_id": "use the header x-request-id",
    "prompt_cache_key": "prefixes are cached by the engines",
    "prompt_cache_retention": "prefixes are cached by the engines",
    "cache_salt": "prefixes are cached by the engines",
    "prediction": "would only save time",
    "verbosity": "the models have no such setting",
    "guided_decoding_backend": "the engine's choice",
    "guided_whitespace_pattern": "the engine's choice",
    "spaces_between_special_tokens": "special tokens are not shown",
    "add_special_tokens": "prompts are tokenized as the engine's own route does",
    "cache_prompt": "always on",
    "return_progress": "not available",
    "timings_per_token": "see `relay` in the reply",
}
"""Fields that change nothing in what is written: ignored, and named in ``x-relaygen-ignored``."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a field is refused, and the values that change nothing and are therefore accepted."""

    reason: str
    neutral: tuple[Any, ...] = ()

    def allows(self, value: Any) -> bool:
        """Whether this value asks for nothing."""
        return value is None or any(
            value == other and isinstance(value, bool) == isinstance(other, bool)
            for other in self.neutral
        )


_LOGPROBS = "two models write the text, so there is no one distribution to report"
_BEAMS = "beam search needs one model's scores for a whole text"
_SAMPLER = "sampling is temperature, top_p, top_k and min_p on every engine"

REFUSED: Mapping[str, Refusal] = {
    "n": Refusal("one choice per request; send several requests", (1,)),
    "best_of": Refusal("one choice per request", (1,)),
    "logprobs": Refusal(_LOGPROBS, (False,)),
    "top_logprobs": Refusal(_LOGPROBS, (0,)),
    "prompt_logprobs": Refusal(_LOGPROBS, (False,)),
    "echo": Refusal("the prompt is not repeated", (False,)),
    "suffix": Refusal("the text is only ever continued at its end", ("",)),
    "modalities": Refusal("text only", (["text"], [])),
    "audio": Refusal("text only"),
    "web_search_options": Refusal("there is no search"),
    "functions": Refusal("replaced by tools", ([],)),
    "function_call": Refusal("replaced by tool_choice", ("none", "auto")),
    "chat_template": Refusal("templates are the server's"),
    "documents": Refusal("put them into a message", ([],)),
    "use_beam_search": Refusal(_BEAMS, (False,)),
    "length_penalty": Refusal(_BEAMS, (1,)),
    "early_stopping": Refusal(_BEAMS, (False,)),
    "stop_token_ids": Refusal("use stop: ids differ between models", ([],)),
    "include_stop_str_in_output": Refusal("stop strings are cut", (False,)),
    "skip_special_tokens": Refusal("special tokens are not shown", (True,)),
    "truncate_prompt_tokens": Refusal("a prompt is never cut"),
    "allowed_token_ids": Refusal("ids differ between models", ([],)),
    "bad_words": Refusal("not available", ([],)),
    "logits_processors": Refusal("not available", ([],)),
    "mm_processor_kwargs": Refusal("text only", ({},)),
    "include_reasoning": Refusal("reasoning is always sent apart from the answer", (True,)),
    "thinking_token_budget": Refusal("use max_reasoning_tokens"),
    "return_token_ids": Refusal("see `relay` in the reply", (False,)),
    "return_tokens_as_token_ids": Refusal("see `relay` in the reply", (False,)),
    "grammar": Refusal("use guided_grammar", ("",)),
    "json_schema": Refusal("use response_format"),
    "typical_p": Refusal(_SAMPLER, (1,)),
    "mirostat": Refusal(_SAMPLER, (0,)),
    "dry_multiplier": Refusal(_SAMPLER, (0,)),
    "xtc_probability": Refusal(_SAMPLER, (0,)),
    "repeat_penalty": Refusal("use repetition_penalty", (1,)),
}
"""Fields that change the meaning and cannot be honoured: 400, unless the value asks for nothing."""
