"""A generation as a file of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .asking import (
    ANSWER,
    QUESTION,
    REASONING,
    ask,
    count,
    finish,
    saved,
    serious,
)
from .conftest import Open

pytestmark = pytest.mark.browser


def test_a_shared_file_opens_without_server_and_script(
    opened: Open, url: str, tmp_path: Path
) -> None:
    page = opened(url)
    page.get_by_label("Side by side").check()
    ask(page)
    finish(page)
    path = saved(page, tmp_path)
    html = path.read_text("utf-8")
    assert "<script" not in html
    assert "<img" not in html
    assert not re.search(r"https?:|src=|url\(", html.replace("&lt;img src=x", ""))

    shared = page.context.new_page()
    asked_for: list[str] = []
    shared.on("request", lambda request: asked_for.append(request.url))
    shared.goto(path.as_uri())
    assert asked_for == [path.as_uri()]
    assert shared.locator("h1").inner_text() == QUESTION
    assert shared.locator("h2").all_inner_texts() == ["relay", "large alone"]
    texts = shared.locator(".text").all_text_contents()
    assert texts == [REASONING, ANSWER, REASONING, ANSWER]
    for strip, shown in zip(
        shared.locator(".strip").all(), page.locator(".strip").all(), strict=True
    ):
        assert strip.locator(".mark").count() == shown.locator(".mark").count()
    second = shared.locator(".strip").first.locator(".mark").nth(1)
    assert "cue “So”" in (second.get_attribute("title") or "")
    assert second.evaluate("e => e.getBoundingClientRect().height") > 10
    for name in ("large", "small"):
        expect(shared.locator("section").first).to_contain_text(
            f"{name} {count(page, name)} tokens"
        )
    for told in page.locator("#verdict p").all_inner_texts():
        expect(shared.get_by_text(told)).to_be_visible()
    expect(shared.locator("section").first).to_contain_text("the large model alone (about")
    assert shared.locator("tbody tr").count() == 12
    assert serious(shared) == []
