"""The page on policies: it names all of them, and its example does what it says."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

from relaygen.profiles import POLICIES

PAGE = (Path(__file__).parent.parent / "docs" / "policies.md").read_text()


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
    (code, printed) = (text for _, text in blocks)
    assert code.count("\n") < 60
    shown = io.StringIO()
    (tmp_path / "example.py").write_text(code)
    with contextlib.redirect_stdout(shown):
        runpy.run_path(str(tmp_path / "example.py"))
    assert shown.getvalue() == printed


def test_every_policy_is_on_the_page() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)", row)}
    assert named == set(POLICIES)


def test_files_that_it_names_are_there() -> None:
    source = Path(__file__).parent.parent / "src" / "relaygen"
    for name in re.findall(r"`(policies/\w+\.py)`", PAGE):
        assert (source / name).is_file()
