"""The process that compares results: it never hangs, and it comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relaygen._errors import MissingExtraError, UsageError
from relaygen.grading._mathematics import Compared, Mathematics

HALF, DECIMAL = r"\boxed{\frac{1}{2}}", r"\boxed{0.5}"


@pytest.mark.parametrize("endless", [r"9^{9^{9}}", r"123456789!"])
def test_what_takes_for_ever_is_given_up(endless: str) -> None:
    with Mathematics(limit_s=4) as impatient, ThreadPoolExecutor() as pool:
        asked = pool.submit(impatient.compare, r"\boxed{5}", f"\\boxed{{{endless}}}")
        assert asked.result() == Compared(None, None)
        assert impatient.compare(HALF, DECIMAL).same


def test_a_process_that_died_is_replaced() -> None:
    with Mathematics() as mathematics:
        assert mathematics.compare(HALF, DECIMAL).same
        process = mathematics._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert mathematics.compare(HALF, DECIMAL).same
        mathematics.close()
        assert mathematics.compare(r"\boxed{2}", DECIMAL).same is False


def test_a_reply_that_nobody_waits_for_is_not_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with Mathematics() as mathematics:
        assert mathematics.compare(HALF, DECIMAL).same
        with monkeypatch.context() as patch:
            patch.setattr("relaygen.grading._mathematics.select.select", interrupted)
            with pytest.raises(KeyboardInterrupt):
                mathematics.compare(HALF, DECIMAL)
        assert mathematics._process is None
        assert mathematics.compare(HALF, r"\boxed{7}") == Compared(False, "7")


def test_a_text_without_a_result_is_not_compared() -> None:
    with Mathematics() as mathematics:
        assert mathematics.compare(HALF, "I do not know.") == Compared(None, None)
        assert mathematics.compare("", "It is 3.") == Compared(None, "3")


def test_the_process_ends_with_its_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relaygen.grading._mathematics"],
        input=b'["1", "2"]\n["1", "1"]\n',
        capture_output=True,
        check=True,
    )
    assert done.stdout.split(b"\n") == [b'[false, "2"]', b'[true, "1"]', b""]


def test_a_library_that_does_not_run_is_said_and_not_taken_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with Mathematics() as mathematics:
        for _ in range(2):
            with pytest.raises(UsageError, match="math-verify does not run") as caught:
                mathematics.compare(HALF, DECIMAL)
            assert "-m relaygen.grading._mathematics" in caught.value.hint
        assert mathematics._process is None
        monkeypatch.undo()
        assert mathematics.compare(HALF, DECIMAL).same


def test_it_ends_where_a_killed_parent_cannot_end_it() -> None:
    code = "from relaygen.grading import _mathematics as m; m._CPU_S = 3; m.main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b'["1", "1"]\n["1", "$9^{9^{9}}$"]\n',
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == b'[true, "1"]\n'
    assert done.returncode == -signal.SIGXCPU


def test_it_is_not_started_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with Mathematics() as mathematics, pytest.raises(MissingExtraError, match="math-verify"):
        mathematics.compare("1", "1")
