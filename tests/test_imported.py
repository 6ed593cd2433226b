"""Engines and policies of one's own by ``module:function``: the operator's, never a request's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaygen import Engine, Policy, Relay, UsageError
from relaygen._imported import is_import_path, made
from relaygen._pair import is_embedded
from relaygen.cli._options import PairOptions
from relaygen.engines.scripted import ScriptedEngine
from relaygen.evaluate._arms import Arm, parse_arms
from relaygen.policies import LargeOnly, RelayPolicy
from relaygen.profiles import load, make_policy, own_policy_at
from relaygen.serve._errors import ApiError
from relaygen.serve._models import Models

MODULE = """
from relaygen.engines.scripted import ScriptedEngine
from relaygen.policies import LargeOnly, RelayPolicy

def engine(role):
    return ScriptedEngine(f"said by {role}")

def cues(profile, more=()):
    return RelayPolicy.of([*profile.cues, *more])

def alone(role="large"):
    return LargeOnly()

def broken():
    import no_such_package_at_all

class Half:
    name = "half"

class Wide(LargeOnly):
    def __init__(self, profile, threshold):
        pass

def named(*, profile):
    return LargeOnly()

def failing(profile):
    return profile["no such key"]

def refusing(profile):
    from relaygen import UsageError
    raise UsageError("not so", hint="but so")

async def later(profile):
    return LargeOnly()

def unmade(profile):
    return LargeOnly

number = 3
"""

BROKEN = {
    "breaks": "\nimport no_such_package_at_all",
    "unreadable": "def x(:\n",
    "raising": "import json\n\njson.loads('{')\n",
    "helping": "def x():\n    return y()\n\n\ndef y():\n    return 1 // 0\n",
    "ending": "import sys\n\nsys.exit(3)\n",
}
"""Modules that cannot be imported, or cannot make anything."""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module in the working folder, which the import path does not have."""
    (tmp_path / "own_parts.py").write_text(MODULE)
    for name, text in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])
    yield
    for name in ("own_parts", *BROKEN):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("spec", ["a:b", "a.b.c:D_1", "_x:_y"])
def test_import_paths(spec: str) -> None:
    assert is_import_path(spec)
    assert not is_embedded(spec)


@pytest.mark.parametrize(
    "spec",
    ["", "a", "a:", ":b", "a:1", "host:8000", "owner/repo:file.gguf", "http://a:80", "one-shot:x"],
)
def test_other_names_of_models_and_policies(spec: str) -> None:
    assert not is_import_path(spec)


@pytest.mark.parametrize("spec", ["a:b:c", "a b:c", "a.:b", "random:0.3", "C:/a"])
def test_what_is_nearly_one(spec: str) -> None:
    assert not is_import_path(spec)


@pytest.mark.parametrize(
    ("spec", "embedded"), [(None, True), ("x.gguf", True), ("http://a", False)]
)
def test_what_runs_embedded(spec: str | None, embedded: bool) -> None:
    assert is_embedded(spec) is embedded
    assert not is_embedded(ScriptedEngine("x"))


def test_a_parameter_without_a_default_gets_the_argument() -> None:
    profile = load("embedded")
    policy = made("own_parts:cues", profile, Policy)
    assert isinstance(policy, RelayPolicy)
    assert policy.cues.names == profile.cues
    assert isinstance(made("own_parts:alone", profile, Policy), LargeOnly)


def test_engines_of_both_roles() -> None:
    with Relay("own_parts:engine", "own_parts:engine", policy="large") as pair:
        assert pair.generate("?").answer == "said by large"
        assert pair.generate("?", policy="small").answer == "said by small"


def test_whoever_makes_the_pair_may_name_a_policy() -> None:
    with Relay("own_parts:engine", "own_parts:engine", policy="own_parts:cues") as pair:
        assert isinstance(pair.policy, RelayPolicy)
        with pytest.raises(UsageError, match="there is no policy 'own_parts'"):
            pair.generate("?", policy="own_parts:cues")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("no_such_module_at_all:x", "there is no module 'no_such_module_at_all'"),
        ("own_parts.deeper:x", "there is no module 'own_parts.deeper'"),
        ("own_parts:missing", "own_parts has no function 'missing'"),
        ("own_parts:number", "own_parts has no function 'number'"),
        ("own_parts:Half", "made a Half, which lacks first, margins, roles, start"),
    ],
)
def test_what_is_wrong_is_said(spec: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(spec, None, Policy)


def test_an_engine_must_be_whole() -> None:
    with pytest.raises(UsageError, match="lacks aclose, info, release") as caught:
        made("own_parts:alone", None, Engine)
    assert "relaygen.Engine" in caught.value.hint


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "breaks:x",
            "ModuleNotFoundError: No module named 'no_such_package_at_all' (breaks.py, line 2)",
        ),
        (
            "own_parts:broken",
            "ModuleNotFoundError: No module named 'no_such_package_at_all' (own_parts.py, line 15)",
        ),
        ("unreadable:x", "SyntaxError: "),
        ("raising:x", "JSONDecodeError: "),
        ("helping:x", "ZeroDivisionError: integer division or modulo by zero (helping.py, line 6)"),
        ("ending:x", "SystemExit: 3 (ending.py, line 3)"),
        ("own_parts:failing", "TypeError: 'NoneType' object is not subscriptable (own_parts.py, "),
    ],
)
def test_what_fails_inside_is_one_line_that_names_the_place(spec: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(spec, None, Policy)
    assert str(caught.value).startswith(f"{spec!r} raised {said}")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None
    assert "RELAYGEN_DEBUG" in caught.value.hint
    place, _, _ = spec.partition(":")
    assert f"({place}.py, line " in str(caught.value)


def test_an_error_of_ours_stays_what_it_is() -> None:
    with pytest.raises(UsageError, match=r"^not so$") as caught:
        made("own_parts:refusing", None, Policy)
    assert caught.value.hint == "but so"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("own_parts:Wide", "needs profile, threshold, and gets one argument at most, by its place"),
        ("own_parts:named", "needs profile, and gets one argument at most, by its place"),
        ("own_parts:later", "is a coroutine function"),
        ("own_parts:unmade", "made the class LargeOnly, and not one of it"),
        ("builtins:max", "raised TypeError: max expected at least 1 argument, got 0"),
    ],
)
def test_what_cannot_make_one_is_said(spec: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(spec, None, Policy)
    assert str(caught.value) == f"{spec!r} {said}"


def test_a_module_of_the_same_name_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        made("own_parts:missing", None, Policy)
    assert caught.value.hint == f"the module of that name is {tmp_path / 'own_parts.py'}"
    with pytest.raises(UsageError, match="sys has no function 'engine'") as builtin:
        made("sys:engine", None, Engine)
    assert builtin.value.hint == "the module of that name is Python itself"


def test_the_command_line_takes_both() -> None:
    options = PairOptions("own_parts:engine", "own_parts:engine", policy="own_parts:cues")
    profile, policy = options.plan()
    assert isinstance(policy, RelayPolicy)
    assert profile == load("embedded")
    assert not options.on_cpu
    assert PairOptions().on_cpu


def test_a_level_reaches_the_maker() -> None:
    profile = load("embedded-calibrated")
    level, policy = own_policy_at("fast", "own_parts:cues", profile)
    assert isinstance(policy, RelayPolicy)
    assert policy.cues.names == profile.levels["fast"].cues
    assert level.level == "fast"


def test_an_arm_may_be_ones_own() -> None:
    arm = parse_arms(["large", "own_parts:cues+draft"])[1]
    assert (arm.policy, arm.large) == ("own_parts:cues", "draft")
    assert isinstance(arm.setup(load("embedded"), level="").policy, RelayPolicy)
    with pytest.raises(UsageError, match="has no levels"):
        Arm.of("own_parts:cues@fast")


def test_it_cannot_draft_and_is_no_draft() -> None:
    with pytest.raises(UsageError, match="made already"):
        Relay("own_parts:engine", "own_parts:engine", spec="ngram")
    with pytest.raises(UsageError, match="not at hand"):
        Relay(small="own_parts:engine", spec="draft")


def test_a_request_never_names_code() -> None:
    with pytest.raises(UsageError, match="there is no policy 'own_parts'"):
        make_policy("own_parts:cues", load("embedded"))
    models = Models("relaygen", load("embedded"), LargeOnly())
    for model, policy in (("relaygen@own_parts:cues", None), (None, "own_parts:cues")):
        with pytest.raises(ApiError):
            models.pick(model, policy)
    assert "own_parts" not in sys.modules
