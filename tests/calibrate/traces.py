"""Shared by the calibration's tests: traces of the scripted tokenizer."""

from __future__ import annotations

from typing import Any

from relaygen.calibrate import Trace
from relaygen.engines.scripted import ScriptedTokenizer


def trace(text: str, id: str = "a", **values: Any) -> Trace:
    tokenizer = ScriptedTokenizer()
    ids = tokenizer.encode(text)
    pieces = tuple(map(tokenizer.data, ids))
    given = {"question": "?", "finish": "stop", "seed": 1, "model": "m", "fold": 0, **values}
    return Trace(id=id, prompt_ids=(7, 8), ids=ids, pieces=pieces, **given)
