"""Links resolve, and every command line that a page shows exists as it is written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import pytest

from relaygen.cli import main as program

from .docs import PAGES, ROOT, anchors, fences, links, spans, tables, text_of

SHELL = ("sh", "bash", "shell", "console", "text", "")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
_CHECKED = (click.Choice, click.types.IntParamType, click.types.FloatParamType)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        assert target.is_relative_to(ROOT), f"{name(page)}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(text_of(target)), f"{name(page)}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tables_are_whole(page: Path) -> None:
    for rows in tables(text_of(page)):
        assert len(set(rows)) == 1, (name(page), rows)


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    told = {(index.parent / link.partition("#")[0]).resolve() for link in links(text_of(index))}
    for page in PAGES:
        if "results" not in page.parts or page.name == "README.md":
            assert page in {*told, index}, name(page)


def shown(text: str) -> list[str]:
    """Commands of this program in shell fences and indented blocks, each on one line."""
    blocks = [fence.text for fence in fences(text) if fence.language in SHELL]
    blocks += re.findall(r"^    (relaygen .*)$", text, re.MULTILINE)
    found = []
    for block in blocks:
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            found += [" ".join(part) for part in _parts(line) if part[:1] == ["relaygen"]]
    return found


def _parts(line: str) -> list[list[str]]:
    """The words of each command of a line, without assignments in front and without quotes."""
    line = line.strip().removeprefix("$ ")
    if not re.match(r"(?:[A-Za-z_]+=\S* |echo .*\| *)*relaygen ", line):
        return []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;<>"):
            parts.append([])
        elif parts[-1] or not _ASSIGNMENT.fullmatch(word):
            parts[-1].append(word.replace(" ", "_"))  # one word, whatever is in it
    return parts


def check(line: str, *, values: bool = True) -> None:
    """Fail where there is no such command or option, or a value is none of an option's.

    Args:
        line: of the shell, one command.
        values: whether values, arguments and required options are looked at too.
    """
    words = line.split()
    command: click.Command = program
    # As the program makes it: a command keeps the help option of its first context.
    context = click.Context(command, info_name=words.pop(0), **command.context_settings)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        below = command.get_command(context, words[0])
        assert below is not None, f"{line}: there is no command {words[0]}"
        command, context = below, click.Context(below, parent=context, info_name=words.pop(0))
    given, rest, _ = command.make_parser(context).parse_args(list(words))
    if not values:
        return
    takes = any(isinstance(each, click.Argument) for each in command.params)
    assert takes or set(rest) <= {"…"}, f"{line}: {rest} is no option"
    for option in command.params:
        value = given.get(option.name or "")
        for each in value if isinstance(value, list) else [value]:
            convert: Callable[..., Any] = option.type.convert
            if isinstance(each, str) and isinstance(option.type, _CHECKED):
                convert(each, option, context)
        whole = "…" not in line and "--help" not in words and isinstance(option, click.Option)
        assert not (whole and option.required and value is None), f"{line}: lacks {option.opts}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_what_the_program_takes(page: Path) -> None:
    for line in shown(text_of(page)):
        check(line)
    for span in spans(text_of(page)):
        if span.startswith("relaygen ") and "'" not in span and '"' not in span:
            check(span, values=False)


def test_commands_are_found() -> None:
    text = """
```sh
KEY=a relaygen serve --large … \\
   --small x  # a remark
echo "a b" | relaygen run --json | jq .usage
relaygen chat & relaygen plan
make relaygen
```
"""
    assert shown(text) == [
        "relaygen serve --large … --small x",
        "relaygen run --json",
        "relaygen chat",
        "relaygen plan",
    ]
    assert sum(len(shown(text_of(page))) for page in PAGES) > 40


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("relaygen runn", "no command runn"),
        ("relaygen run --huge x", "--huge"),
        ("relaygen run --seed", "requires an argument"),
        ("relaygen run --seed five x", "five"),
        ("relaygen serve --pause never", "never"),
        ("relaygen chat x", "is no option"),
        ("relaygen eval --data x", "--out"),
        ("relaygen profile showw embedded", "no command showw"),
    ],
)
def test_a_command_that_is_none_is_found(line: str, said: str) -> None:
    with pytest.raises((AssertionError, click.UsageError)) as caught:
        check(line)
    error = caught.value
    assert said in (error.format_message() if isinstance(error, click.UsageError) else str(error))


def test_links_and_anchors_are_found() -> None:
    text = "# A `b` & c\n## A b\n## A b\n[x](y.md#z) ![i](j.svg)\n`[n](o)`\n```\n[p](q)\n# r\n```\n"
    assert links(text) == ["y.md#z", "j.svg"]
    assert anchors(text) == {"a-b--c", "a-b", "a-b-1"}
    rows = "x\n| a | b |\n| - | - |\n| `c\\|d` | e |\n| f | g | h |\n\n| i |\n"
    assert tables(rows) == [[2, 2, 2, 3], [1]]
