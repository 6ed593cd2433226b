"""The Markdown pages as the tests read them: fences, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^(```+)(\w*)[^\n]*\n(.*?)^\1[ \t]*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language and its text."""

    language: str
    text: str


@cache
def text_of(page: Path) -> str:
    return page.read_text("utf-8")


def fences(text: str) -> list[Fence]:
    return [Fence(match[2], match[3]) for match in _FENCE.finditer(text)]


def spans(text: str) -> list[str]:
    """Code inside of lines."""
    return [" ".join(match[2].split()) for match in _CODE.finditer(_FENCE.sub("", text))]


def links(text: str) -> list[str]:
    """Where links and images point to."""
    return _LINK.findall(_CODE.sub("", _FENCE.sub("", text)))


def tables(text: str) -> list[list[int]]:
    """For each table the number of cells in each of its rows."""
    blocks = re.findall(r"(?:^\|.*\n)+", _FENCE.sub("", text), re.MULTILINE)
    return [
        [len(re.findall(r"(?<!\\)\|", row)) - 1 for row in block.splitlines()] for block in blocks
    ]


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings."""
    found: dict[str, int] = {}
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        times = found.get(slug, 0)
        found[slug] = times + 1
        names.add(f"{slug}-{times}" if times else slug)
    return names
