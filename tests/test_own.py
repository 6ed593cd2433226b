"""What is said of objects and errors that anybody may have written."""

from __future__ import annotations

from typing import Any

import pytest

from relaygen import Policy
from relaygen._checks import own_words
from relaygen._own import lacking, shown, told, words
from relaygen._sessions import check_policy
from relaygen.policies import LargeOnly, NoWaitPolicy


class Silent(Exception):
    """Cannot be said."""

    def __str__(self) -> str:
        raise KeyError("no words")


class Hidden:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise KeyError("no words")


class Lines:
    def __repr__(self) -> str:
        return "one\ntwo" + "!" * 200


def test_an_error_that_cannot_be_said_has_its_name_still() -> None:
    with pytest.raises(Silent) as caught:
        raise Silent
    assert words(caught.value) == ""
    assert told(caught.value) == own_words(caught.value) == "Silent"


def test_an_error_that_was_never_raised_has_no_line() -> None:
    assert told(KeyError("x\n y")) == "KeyError: 'x\\n y'"
    assert told(ValueError("x\n y")) == "ValueError: x y"


def test_the_line_is_of_its_authors_file() -> None:
    def broken() -> None:
        NoWaitPolicy(words=(1,))  # type: ignore[arg-type]  # what raises is in a file of ours

    with pytest.raises(AttributeError) as caught:
        broken()
    line = broken.__code__.co_firstlineno + 1
    assert told(caught.value).endswith(f"(test_own.py, line {line})")


def test_the_line_is_none_of_ours_that_called_it() -> None:
    class Wrong(LargeOnly):
        def candidates(self, role: str, kind: str) -> int:
            return 1 // 0

    with pytest.raises(ValueError, match=r"its attributes raised .* \(test_own\.py, line "):
        check_policy(Wrong())


def test_whatever_it_is_is_shown_in_one_short_line() -> None:
    assert shown("a  b\n") == r"'a  b\n'"
    assert shown(Hidden()) == "a Hidden, which cannot be shown"
    assert shown(Lines()).startswith("one two!!")
    assert len(shown(Lines())) == 100


def test_what_raises_is_not_lacking() -> None:
    class Raising:
        roles: Any = property(lambda self: 1 // 0)

        def __getattr__(self, name: str) -> Any:
            if name == "margins":
                return frozenset()
            raise OSError(name)

    assert lacking(Raising(), Policy) == ["first", "name", "start"]
    assert lacking(LargeOnly(), Policy) == []
