"""Whether two answers say the same."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from relaygen.grading._agreement import same_answer


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("The answer is \\boxed{4}.", "So we get $\\boxed{4}$", True),
        ("\\boxed{\\frac{1}{2}}", "\\boxed{0.5}", True),
        ("\\boxed{4}", "\\boxed{5}", False),
        ("It is 72.", "Altogether: 72", True),
        ("Paris", " paris ", True),
        ("Paris", "Rome", False),
        ("Paris", "\\boxed{4}", False),
    ],
)
def test_same_answer(one: str, two: str, same: bool) -> None:
    assert same_answer(one, two) is same


def test_another_thread_may_ask_and_nobody_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    with ThreadPoolExecutor() as pool:
        assert pool.submit(same_answer, "\\boxed{4}", "$4$").result()
    assert same_answer("\\boxed{4}", "$4$")
    assert caplog.records == []


def test_without_mathematics_words_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    assert same_answer("A  b", "a B")
    assert same_answer("\\boxed{4}", "$\\boxed{4.0}$")
    assert not same_answer("\\boxed{4}", "\\boxed{\\sqrt{16}}")
