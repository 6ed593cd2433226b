from __future__ import annotations

import pytest

from relaygen import Speculation, UsageError


def test_how_much_is_drafted() -> None:
    assert (Speculation("draft").most, Speculation("ngram").most) == (3, 8)
    assert Speculation("draft", tokens=5).most == Speculation("ngram", tokens=5).most == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"kind": "mtp"}, "no speculation 'mtp'"),
        ({"kind": "ngram", "model": "m.gguf"}, "need no draft model"),
        ({"kind": "draft", "tokens": 0}, "tokens of a speculation"),
        ({"kind": "ngram", "lookup": 0}, "lookup of a speculation"),
    ],
)
def test_what_makes_no_sense(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Speculation(**arguments)  # type: ignore[arg-type]
