"""A fingerprint of a served model's vocabulary, from what a llama-server tells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_MARKERS = (
    "<|im_start|><|im_end|><|endoftext|><think></think><tool_call></tool_call><|fim_prefix|>"
    "<｜begin▁of▁sentence｜><｜User｜><｜Assistant｜><｜end▁of▁sentence｜>"
    "<|begin_of_text|><|start_header_id|><|eot_id|><|start|><|channel|><|message|><|return|>"
    "<s></s>[INST][/INST][THINK][/THINK]<start_of_turn><end_of_turn><|user|><|assistant|>"
)
_TEXTS = (
    "The quick brown fox can't jump 1234567890 times; it's 3.14159 or -2e10, isn't it? "
    "\\boxed{42} \\frac{\\partial f}{\\partial x} $a_1^2+b_2^2$ \t\t\n\n  \r\n    indented ",
    "def f(x: int) -> str:\n    return f'{x!r:>8}'  # déjà vu, naïve façade, Straße, Łódź, Iğdır ",
    "Съешь же ещё этих мягких французских булок. Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία. ",
    "東京特許許可局、隣の客はよく柿食う客だ。我能吞下玻璃而不伤身体。 ",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. ",
    "أبجد هوز حطي كلمن. דג סקרן שט בים מאוכזב. सभी मनुष्यों को जन्मजात। เป็นมนุษย์สุดประเสริฐ ",
    "🦄🐉👩‍👩‍👧‍👦🇪🇺 ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ⇒ α ∧ ¬β ≈ √2 ½ ﬁ ﷺ 龘𠮷 ꧁༼ ",
)


def probe_text() -> str:
    """A fixed text of many scripts, numbers, code and the usual special markers."""
    return "".join(_TEXTS) + _MARKERS


def fingerprint(props: Mapping[str, Any], meta: Mapping[str, Any], pieces: object) -> str:
    """Equal for servers whose vocabularies have the same size and kind and cut the probe alike.

    Weaker than a GGUF file's own fingerprint and never equal to one.

    Args:
        props: the answer of ``/props``.
        meta: of the model, from ``/v1/models``.
        pieces: the answer of ``/tokenize`` for `probe_text`, with pieces.
    """
    facts = [
        meta.get("n_vocab"),
        meta.get("vocab_type"),
        props.get("bos_token"),
        props.get("eos_token"),
        pieces,
    ]
    return f"llama-server:{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}"
