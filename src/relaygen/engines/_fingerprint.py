"""A fingerprint of a served model's vocabulary, from how its server cuts a fixed text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

_MARKERS = (
    "<|im_start|><|im_end|><|endoftext|><think></think><tool_call></tool_call><|fim_prefix|>"
    "<｜begin▁of▁sentence｜><｜User｜><｜Assistant｜><｜end▁of▁sentence｜>"
    "<|begin_of_text|><|start_header_id|><|eot_id|><|start|><|channel|><|message|><|return|>"
    "[INST][/INST][THINK][/THINK]<start_of_turn><end_of_turn><|user|><|assistant|>"
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


def fingerprint(ids: Sequence[int]) -> str:
    """Equal for servers of any kind whose vocabularies cut the probe alike, markers included.

    It cannot see tokens that the probe does not hold: their number, and added ones that no usual
    chat uses. So two models that differ only there count as equal, as do two of one family whose
    vocabularies are padded to different sizes. Where two kinds of server cut the probe differently
    although the vocabulary is the same, they count as different, which only costs speed. It is
    never equal to a GGUF file's own fingerprint.

    Args:
        ids: what the server makes of `probe_text`, special markers parsed, nothing added.
    """
    digest = hashlib.sha256(json.dumps(list(ids)).encode())
    return f"probe:{digest.hexdigest()}"
