"""Reading the pages that reports are."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Checked(HTMLParser):
    """Every tag is closed, and nothing is fetched from anywhere."""

    VOID = ("meta", "br", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("link", "img", "iframe", "base", "object", "embed")
        for name, value in attrs:
            assert name not in ("src", "srcset", "action", "onload", "onclick")
            assert name != "href" or (value or "").startswith("#")
            assert not re.search(r"url\((?!#)", value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("line", "circle", "rect", "path")  # only SVG closes itself

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "script" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(page: str) -> str:
    checked = Checked()
    checked.feed(page)
    checked.close()
    assert checked.open == []
    return checked.text
