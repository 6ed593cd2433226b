"""The public names: none appears or vanishes by accident."""

from __future__ import annotations

import inspect
import types

import pytest

import relaygen


def test_all_is_what_the_module_defines() -> None:
    public = [
        name
        for name, value in vars(relaygen).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    ]
    assert sorted([*public, "__version__"]) == sorted(relaygen.__all__)
    assert list(relaygen.__all__) == sorted(relaygen.__all__)


@pytest.mark.parametrize("name", [n for n in relaygen.__all__ if not n.startswith("__")])
def test_every_public_name_is_described(name: str) -> None:
    value = getattr(relaygen, name)
    if inspect.isclass(value):
        assert value.__doc__
        assert not value.__doc__.startswith(f"{name}(")  # what dataclasses write by themselves
