from __future__ import annotations

from typing import Any

import pytest

from relaygen._errors import UsageError
from relaygen.serve._settings import Settings, traces_url


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


BASE, TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


@pytest.mark.parametrize(
    ("collector", "environment", "url"),
    [
        (None, {}, ""),
        (None, {BASE: ""}, ""),
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        ("https://c/otlp/", {}, "https://c/otlp/v1/traces"),
        ("http://c:4318/v1/traces", {}, "http://c:4318/v1/traces"),
        (None, {BASE: "http://c:4318"}, "http://c:4318/v1/traces"),
        (None, {BASE: "http://c:4318", TRACES: "http://t/in"}, "http://t/in"),
        ("http://flag", {BASE: "http://c:4318", TRACES: "http://t/in"}, "http://flag/v1/traces"),
    ],
)
def test_where_traces_go(collector: str | None, environment: dict[str, str], url: str) -> None:
    assert traces_url(collector, environment) == url


def test_an_address_of_traces_that_is_none() -> None:
    with pytest.raises(UsageError, match="--otlp-endpoint 'c:4318' is not an address"):
        traces_url("c:4318", {})
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_ENDPOINT 'c:4318' is not an"):
        traces_url(None, {BASE: "c:4318"})
