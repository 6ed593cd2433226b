from __future__ import annotations

from typing import Any

import pytest

from relaygen import UsageError
from relaygen.mock import MockConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"token_ms": -1},
        {"prefill_ms": float("nan")},
        {"ttft_ms": -0.1},
        {"kv_tokens": -1},
        {"max_stops": -1},
        {"jitter": 1.1},
        {"margin": -0.1},
        {"burst": 0},
        {"regroup": 0},
        {"context": 0},
        {"match": "words"},
        {"template": "closed"},
    ],
)
def test_values_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        MockConfig(**wrong)
