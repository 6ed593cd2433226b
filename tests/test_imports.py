"""Layers and laziness: what `import relaygen` loads, and which way imports point."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import relaygen

ROOT = Path(relaygen.__file__).parent
HEAVY = (
    "aiohttp",
    "anyio",
    "click",
    "datasets",
    "fastapi",
    "filelock",
    "httpx",
    "huggingface_hub",
    "jinja2",
    "math_verify",
    "matplotlib",
    "numpy",
    "opentelemetry",
    "prometheus_client",
    "pydantic",
    "rapidfuzz",
    "rich",
    "starlette",
    "torch",
    "transformers",
    "uvicorn",
    "vllm",
    "xllamacpp",
)


def test_importing_the_package_loads_no_library() -> None:
    code = (
        "import sys, relaygen\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])\n"
        "print([m for m in sys.modules if m.startswith(('relaygen.cli', 'relaygen.models',"
        " 'relaygen.engines.llama', 'relaygen.engines.embedded'))])\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.splitlines() == ["[]", "[]"]


def imported(path: Path, *, top_level: bool) -> set[str]:
    """Names of our modules that a file imports, relative to the package."""
    package = ["relaygen", *path.relative_to(ROOT).parts[:-1]]
    found = set()
    tree = ast.parse(path.read_text("utf-8"))
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")] if node.module else base
            if module[:1] == ["relaygen"]:
                names = [] if node.module else [alias.name for alias in node.names]
                found |= {".".join([*module[1:], name]) for name in names}
                found.add(".".join(module[1:]))
    return found - {""}


def layer(folder: str) -> list[Path]:
    return sorted((ROOT / folder).glob("*.py"))


@pytest.mark.parametrize("path", layer("text"), ids=lambda path: path.name)
def test_text_imports_text_and_data_only(path: Path) -> None:
    for name in imported(path, top_level=False):
        assert name.startswith("text") or name in ("_types", "_errors"), name


@pytest.mark.parametrize("path", layer("policies"), ids=lambda path: path.name)
def test_policies_know_no_engine(path: Path) -> None:
    for name in imported(path, top_level=False):
        assert name.startswith(("text", "policies")) or name in ("_types", "_errors"), name


@pytest.mark.parametrize("path", layer("engines"), ids=lambda path: path.name)
def test_engines_know_no_policy(path: Path) -> None:
    for name in imported(path, top_level=False):
        assert name.startswith(("engines", "text.utf8")) or name in ("_types", "_errors"), name


@pytest.mark.parametrize("path", layer("evaluate"), ids=lambda path: path.name)
def test_evaluation_knows_of_calibration_its_candidates_only(path: Path) -> None:
    for name in imported(path, top_level=False):
        allowed = name.removeprefix("calibrate._candidates") in (
            "",
            ".default_candidates",
            ".PAPER",
        )
        assert allowed or not name.startswith(("cli", "serve", "calibrate")), name


@pytest.mark.parametrize("path", layer("launch"), ids=lambda path: path.name)
def test_launch_commands_know_names_only(path: Path) -> None:
    for name in imported(path, top_level=False):
        assert name.startswith("launch") or name in ("_types", "_errors"), name


@pytest.mark.parametrize("path", layer("doctor"), ids=lambda path: path.name)
def test_the_doctor_knows_no_server_and_no_mock(path: Path) -> None:
    for name in imported(path, top_level=False):
        assert not name.startswith(("cli", "serve", "evaluate", "bench", "mock")), name


@pytest.mark.parametrize("path", sorted(ROOT.glob("_*.py")), ids=lambda path: path.name)
def test_what_all_share_knows_no_command_and_no_job(path: Path) -> None:
    for name in imported(path, top_level=False):
        jobs = ("cli.", "serve", "evaluate", "bench.", "calibrate", "doctor", "launch", "mock")
        assert not name.startswith(jobs) or path.name == "__main__.py", name


@pytest.mark.parametrize("path", layer("bench"), ids=lambda path: path.name)
def test_the_benchmark_knows_no_server_and_no_evaluation(path: Path) -> None:
    for name in imported(path, top_level=False):
        assert not name.startswith(("cli", "serve", "calibrate", "evaluate")), name


@pytest.mark.parametrize(
    "path", [p for p in sorted(ROOT.rglob("*.py")) if "cli" not in p.parts], ids=str
)
def test_only_the_command_line_imports_the_command_line(path: Path) -> None:
    if path.name != "__main__.py":
        assert not any(name.startswith("cli") for name in imported(path, top_level=False))


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 420
