"""Layers and laziness: what `import relaygen` loads, and which way imports point."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Mapping
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
    "grading": set(),
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
LOOP = OURS | {"text", "grading", "policies", "engines", "models", "profiles"}
"""The relay with all that it is made of: modules of the package itself, and these packages."""

CIRCULAR = {"doctor._report": {"doctor._verdict"}}
"""Imports that go against their package's own order. None is to be added."""

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


def circle(graph: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """A way along imports that ends where it begins; () where there is none."""
    done: set[str] = set()

    def visit(place: str, way: tuple[str, ...]) -> tuple[str, ...]:
        if place in way:
            return (*way[way.index(place) :], place)
        if place in done:
            return ()
        done.add(place)
        return next(filter(None, (visit(below, (*way, place)) for below in graph[place])), ())

    return next(filter(None, (visit(place, ()) for place in graph)), ())


def module(name: str) -> str:
    """The module of ours that a dotted name is or belongs to; "" for `relaygen` itself."""
    parts = name.split(".")
    while parts and not ROOT.joinpath(*parts).with_suffix(".py").is_file():
        if ROOT.joinpath(*parts, "__init__.py").is_file():
            break
        parts.pop()
    return ".".join(parts)


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({}, ()),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, ()),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ("b", "c", "b")),
        ({"a": set(), "b": {"b"}}, ("b", "b")),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], found: tuple[str, ...]) -> None:
    assert circle(graph) == found


@pytest.mark.parametrize(
    ("name", "of_ours"),
    [
        ("_api.Relay", "_api"),
        ("text.cues.Cues", "text.cues"),
        ("engines", "engines"),
        ("profiles.parse", "profiles"),
        ("Relay", ""),
    ],
)
def test_names_belong_to_modules(name: str, of_ours: str) -> None:
    assert module(name) == of_ours


def test_no_two_packages_import_each_other() -> None:
    graph: dict[str, set[str]] = {"": set()}
    for path in FILES:
        graph.setdefault(home(path), set()).update(unit(name) for name in of(path))
    assert not circle(graph)


def test_no_two_modules_import_each_other() -> None:
    graph: dict[str, set[str]] = {"": set()}
    for path in FILES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        own = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        names = imported(path.read_text("utf-8"), parts[:-1])
        graph[own] = {module(name) for name in names} - {""} - CIRCULAR.get(own, set())
    assert not circle(graph)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 420
