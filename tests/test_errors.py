"""The error tree: the docstring is the truth."""

from __future__ import annotations

import re

import pytest

from relaygen import EngineError, EngineUnreachableError, MissingExtraError, UsageError, _errors


def tree() -> dict[str, int]:
    lines = re.findall(r"(\w+Error) +(\d)", _errors.__doc__ or "")
    return {name: int(code) for name, code in lines}


def test_the_docstring_draws_every_error_with_its_exit_status() -> None:
    defined = {
        name: value.exit_code
        for name, value in vars(_errors).items()
        if isinstance(value, type) and issubclass(value, _errors.RelayGenError)
    }
    assert tree() == defined


def test_an_engine_error_names_the_role() -> None:
    assert str(EngineError("boom", role="small")) == "small engine: boom"
    assert str(EngineError("boom")) == "boom"


def test_retryable_and_hint() -> None:
    assert EngineUnreachableError("reset").retryable
    assert not EngineUnreachableError("dead", retryable=False).retryable
    assert not EngineError("no").retryable
    hint = MissingExtraError("xllamacpp", extra="llama").hint
    assert hint == (
        "install it with: pip install 'relaygen[llama]' (in a checkout: pip install '.[llama]')"
    )


def test_usage_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match="wrong"):
        raise UsageError("wrong")
