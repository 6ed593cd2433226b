from __future__ import annotations

from typing import Any

import pytest

from relaygen._errors import UsageError
from relaygen.serve._settings import Settings


@pytest.mark.parametrize(
    "values",
    [
        {"served_model_name": ""},
        {"served_model_name": "a@b"},
        {"served_model_name": "a\nb"},
        {"served_model_name": "größe"},
        {"root_path": "llm"},
        {"api_keys": ("a b",)},
        {"api_keys": ("ok", "ü")},
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        Settings(**values)
    assert "a b" not in str(error.value)  # a key is not repeated


def test_names_of_models_on_hubs_are_names() -> None:
    assert Settings(served_model_name="org/Pair-1.0").served_model_name == "org/Pair-1.0"
