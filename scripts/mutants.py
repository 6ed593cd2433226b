"""Plants each listed fault in a copy of the package; every one must make a test fail.

Usage: python scripts/mutants.py [WORD ...]   only the faults whose name holds a word
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 300


@dataclass(frozen=True)
class Mutant:
    """One line of one file, changed; `tests` are where it should be noticed."""

    name: str
    file: str
    line: str
    fault: str
    tests: list[str]


def survives(mutant: Mutant) -> str:
    """Empty if a test failed; else what went wrong."""
    source = (ROOT / mutant.file).read_text("utf-8")
    if source.count(mutant.line) != 1:
        return f"its line occurs {source.count(mutant.line)} times in {mutant.file}"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = Path(folder) / mutant.file
        target.write_text(source.replace(mutant.line, mutant.fault), "utf-8")
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    if run.returncode == 1:
        return ""
    return (
        "no test failed" if run.returncode == 0 else f"pytest itself failed:\n{run.stdout[-500:]}"
    )


def check(mutant: Mutant) -> str:
    """As `survives`; a test that never ends has noticed, too."""
    try:
        return survives(mutant)
    except subprocess.TimeoutExpired:
        return ""


def main(words: list[str]) -> int:
    listed = tomllib.loads((ROOT / "scripts" / "mutants.toml").read_text("utf-8"))["mutant"]
    mutants = [Mutant(**entry) for entry in listed]
    mutants = [m for m in mutants if not words or any(word in m.name for word in words)]
    started = time.monotonic()
    escaped = 0
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        for number, (mutant, problem) in enumerate(
            zip(mutants, pool.map(check, mutants), strict=True), 1
        ):
            escaped += bool(problem)
            mark = f"ESCAPED: {problem}" if problem else "caught"
            print(f"[{number}/{len(mutants)}] {mutant.name}: {mark}", flush=True)
    print(f"{len(mutants) - escaped} caught, {escaped} escaped, {time.monotonic() - started:.0f} s")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
