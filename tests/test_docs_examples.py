"""The worked examples run straight out of the pages, as a reader would run them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from relaygen import EngineReplyError, Relay, Sampling
from relaygen._imported import made
from relaygen._types import Constraint
from relaygen.cli import main as program
from relaygen.cli._config import read
from relaygen.cli._options import PairOptions
from relaygen.engines import SegmentRequest
from relaygen.engines.base import Engine
from relaygen.engines.detect import DetectedEngine
from relaygen.engines.scripted import ScriptedEngine
from relaygen.evaluate._arms import parse_arms
from relaygen.profiles import problems

from .docs import ROOT, Fence, fences, text_of

DOCS = ROOT / "docs"
PAGES = ("engines.md", "policies.md")
LONGEST = 60


def examples(page: str) -> list[tuple[str, str, str]]:
    """File name, code, and what it prints, of a page's Python."""
    blocks = fences(text_of(DOCS / page))
    found = []
    for place, block in enumerate(blocks):
        if block.language == "python":
            named = re.match(r"# (\w+\.py)\n", block.text)
            after = blocks[place + 1] if place + 1 < len(blocks) else Fence("none", "")
            printed = after.text if after.language == "" else ""
            found.append((named[1] if named else "example.py", block.text, printed))
    return found


EXAMPLES = [(page, *example) for page in PAGES for example in examples(page)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reader's folder with the files that the pages say to save."""
    for _, name, code, _ in EXAMPLES:
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for _, name, _, _ in EXAMPLES:
        sys.modules.pop(name.removesuffix(".py"), None)


def relaygen(line: str, typed: str | None = None) -> Result:
    words = re.findall(r'"[^"]*"|\S+', line)
    return CliRunner().invoke(program, [word.strip('"') for word in words[1:]], input=typed)


@pytest.mark.parametrize(
    ("page", "name", "code", "printed"), EXAMPLES, ids=[f"{one[0]}-{one[1]}" for one in EXAMPLES]
)
def test_an_example_prints_what_the_page_says(
    page: str, name: str, code: str, printed: str, folder: Path
) -> None:
    assert code.count("\n") < LONGEST
    path = folder / name
    path.write_text(code)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        runpy.run_path(str(path), run_name="__main__")
    assert shown.getvalue() == printed


def test_the_pages_have_their_examples() -> None:
    names = [(page, name) for page, name, _, printed in EXAMPLES if printed]
    assert names == [
        ("engines.md", "parrot.py"),
        ("policies.md", "items.py"),
        ("policies.md", "example.py"),
    ]


def test_every_field_of_a_request_is_told() -> None:
    page = text_of(DOCS / "engines.md").split("\n## What a request asks for\n")[1]
    rows = [line for line in page.split("\n## ")[0].splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    told = [name.strip("`") for name, *_ in cells]
    assert sorted(told) == sorted(field.name for field in dataclasses.fields(SegmentRequest))
    assert all(does and ignored for _, does, ignored in cells)


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({}, False),
        ({"sampling": Sampling(temperature=1.5, top_p=0.1)}, False),
        ({"constraint": Constraint("json_object")}, True),
        ({"sampling": Sampling(logit_bias={1: 5.0})}, True),
        ({"sampling": Sampling(presence_penalty=1.0)}, True),
    ],
)
def test_the_made_up_engine_refuses_what_it_cannot_do(asked: dict[str, Any], refused: bool) -> None:
    parrot = made("parrot:Parrot", "large", Engine)
    with Relay(parrot, parrot, policy="large") as pair:
        if not refused:
            assert pair.generate("salt", **asked).answer == "First salt."
            return
        with pytest.raises(EngineReplyError, match="a parrot takes no") as caught:
            pair.generate("salt", **asked)
        assert caught.value.refused


def test_the_made_up_engine_on_the_command_line() -> None:
    lines = [
        line
        for fence in fences(text_of(DOCS / "engines.md"))
        for line in fence.text.splitlines()
        if line.startswith("relaygen run")
    ]
    assert len(lines) == 3
    for line in lines:
        result = relaygen(line)
        assert result.exit_code == 0, result.output
        assert result.stdout == "First salt. Then and. Then pepper.\n"


def test_a_made_up_engine_and_a_made_up_policy_together() -> None:
    pair = "--large parrot:Parrot --small parrot:Parrot"
    assert "6 hand-offs" in relaygen(f'relaygen run {pair} "salt and pepper"').stderr
    result = relaygen(f'relaygen run {pair} --policy items:ListItems "salt and pepper"')
    assert result.stdout == "First salt. Then and. Then pepper.\n"
    assert "0 hand-offs" in result.stderr


def test_a_chat_takes_a_made_up_policy() -> None:
    line = "relaygen chat --large parrot:Parrot --small parrot:Parrot"
    result = relaygen(line, "/policy items:ListItems\n/policy items:Nothing\nsalt\n")
    assert result.exit_code == 0
    assert "policy list-items" in result.stderr
    assert "items has no function 'Nothing'" in result.stderr
    assert "First salt." in result.stdout


def test_a_made_up_policy_is_an_arm_and_a_policy_of_the_server() -> None:
    _, policy = PairOptions("http://a:1", "http://b:2", policy="items:ListItems").plan()
    assert policy.name == "list-items"
    arms = parse_arms(["large", "small", "items:ListItems", "random:0.3"])
    assert arms[2].policy == "items:ListItems"


def test_an_engine_with_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU0_KEY", "secret")
    engine = made("mine:large", "large", Engine)
    assert isinstance(engine, DetectedEngine)
    assert engine.url == "http://gpu0:8001"


def test_toml_is_a_profile_or_a_file_of_the_server(tmp_path: Path) -> None:
    server = program.get_command(None, "serve")  # type: ignore[arg-type]
    assert server is not None
    known = {each.name for each in server.params}
    profiles = 0
    for page in sorted(DOCS.glob("*.md")):
        for fence in fences(text_of(page)):
            if fence.language != "toml":
                continue
            if "thinking" in fence.text:
                assert problems(fence.text) == [], page
                profiles += 1
            else:
                (tmp_path / "file.toml").write_text(fence.text)
                keys = read(tmp_path / "file.toml")
                assert {key.replace("-", "_") for key in keys} <= known, page
    assert profiles == 1


def test_the_figure_shows_what_happens() -> None:
    svg = ElementTree.parse(DOCS / "images" / "relay.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    drawn: list[tuple[str, str]] = []
    for element in svg:
        kind = element.get("class", "")
        if element.tag == f"{space}rect" and kind in ("large", "small"):
            drawn.append((kind, ""))
        elif element.tag == f"{space}text" and kind in ("", "of-large") and drawn:
            role, text = drawn[-1]
            drawn[-1] = (role, f"{text} {element.text}")
    script = "<think>\n" + "".join(text for _, text in drawn[:-1]).strip()
    script = script.replace(" </think>", "\n</think>") + f"\n\n{drawn[-1][1].strip()}"
    engines = ScriptedEngine(script), ScriptedEngine(script)
    with Relay(*engines, profile="qwen3-32b+1.7b") as pair:
        segments = pair.generate("What is 17 + 25?").segments
    written = [(each.role, each.text.removeprefix("<think>").split()) for each in segments]
    assert written == [(role, text.split()) for role, text in drawn]
    assert [each.cue for each in segments] == ["", "Therefore", "", "Now", "", ""]
