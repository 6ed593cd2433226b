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


FOUNDATION = {"_errors", "_types", "_version"}
"""What everything may know."""

PARTS: dict[str, set[str]] = {
    "text": set(),
    "policies": {"text"},
    "engines": set(),
    "models": set(),
    "mock": set(),
    "launch": set(),
}
"""Packages that know nothing of ours but the foundation and what is named."""

JOBS: dict[str, set[str]] = {
    "serve": set(),
    "calibrate": set(),
    "plan": set(),
    "bench": {"mock"},
    "evaluate": {"calibrate._candidates"},  # the paper's cues, for a baseline
    "doctor": {"calibrate._traces"},  # the shipped questions
}
"""What a command does: it may use the relay, and of the packages above what is named."""

OURS = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__"}
LOOP = OURS | {"text", "policies", "engines", "models", "profiles"}
"""The relay with all that it is made of: modules of the package itself, and these packages."""

FILES = sorted(ROOT.rglob("*.py"))


def unit(name: str) -> str:
    """The package or module of ours that a dotted name belongs to; "" for `relaygen` itself."""
    first = name.split(".")[0]
    return first if (ROOT / first).is_dir() or first in OURS else ""


def home(path: Path) -> str:
    """The package or module of ours that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(source: str, folder: tuple[str, ...] = ()) -> set[str]:
    """The names of ours that a file in this folder imports at any place, without `relaygen`."""
    package = ["relaygen", *folder]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")] if node.module else base
            names = [".".join([*module, alias.name]) for alias in node.names]
        else:
            continue
        found |= {name.partition(".")[2] for name in names if name.split(".")[0] == "relaygen"}
    return found


def of(path: Path) -> set[str]:
    """What a file imports of other packages and modules of ours."""
    names = imported(path.read_text("utf-8"), path.relative_to(ROOT).parts[:-1])
    return {name for name in names if unit(name) != home(path)}


@pytest.mark.parametrize(
    ("source", "folder", "names"),
    [
        ("import relaygen.serve._app", (), {"serve._app"}),
        ("from relaygen import cli, Relay", (), {"cli", "Relay"}),
        ("from . import relay", (), {"relay"}),
        ("from .. import serve", ("text",), {"serve"}),
        ("from ..costs import pays", ("plan",), {"costs.pays"}),
        ("def f():\n    from ..cli.run import run", ("text",), {"cli.run.run"}),
        ("if TYPE_CHECKING:\n    from ._api import Relay", (), {"_api.Relay"}),
        ("import json, click\nfrom rich import table", (), set()),
    ],
)
def test_every_way_to_import_is_seen(source: str, folder: tuple[str, ...], names: set[str]) -> None:
    assert imported(source, folder) == names


def test_every_package_has_its_place() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {*PARTS, *JOBS, "profiles", "cli"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    place = home(path)
    if place in ("cli", "__main__"):
        return
    if place in PARTS:
        allowed = FOUNDATION | PARTS[place]
    elif place in JOBS:
        allowed = LOOP | JOBS[place]
    else:
        allowed = LOOP
    for name in of(path):
        known = {name, unit(name), ".".join(name.split(".")[:2])}
        assert known & allowed, name


def test_no_two_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for path in FILES:
        graph.setdefault(home(path), set()).update(unit(name) for name in of(path))
    done: set[str] = set()

    def visit(place: str, way: tuple[str, ...]) -> None:
        assert place not in way, " → ".join((*way, place))
        if place not in done:
            for below in graph.get(place, ()):
                visit(below, (*way, place))
            done.add(place)

    for place in graph:
        visit(place, ())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 420
