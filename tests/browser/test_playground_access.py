"""For everyone: barriers, colours, phones, screen readers; and the page's own policy."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from relaygen.engines.scripted import ScriptedEngine

from ..serve.support import pair, serving
from .asking import (
    ask,
    asked,
    finish,
    serious,
)
from .conftest import Open

pytestmark = pytest.mark.browser

LONG = "We count. " * 400
PHONE = {"viewport": {"width": 360, "height": 740}}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_barrier(opened: Open, url: str, scheme: str) -> None:
    page = opened(url, color_scheme=scheme)
    assert serious(page) == []
    page.get_by_label("Side by side").check()
    page.locator("#more summary").click()
    ask(page)
    finish(page)
    page.locator(".strip").first.focus()
    page.keyboard.press("ArrowRight")
    assert serious(page) == []


def test_the_colours_follow_the_system_until_one_is_chosen(opened: Open, url: str) -> None:
    page = opened(url, color_scheme="dark")

    def ground() -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    dark = ground()
    page.emulate_media(color_scheme="light")
    light = ground()
    assert dark != light
    button = page.locator("#theme")
    expect(button).to_have_text("Colours: system")
    button.click()
    expect(button).to_have_text("Colours: light")
    button.click()
    expect(button).to_have_text("Colours: dark")
    assert ground() == dark
    page.reload()
    expect(button).to_have_text("Colours: dark")
    assert ground() == dark
    button.click()
    assert ground() == light


def test_a_phone_needs_no_sideways_scrolling(opened: Open, url: str) -> None:
    page = opened(url, **PHONE)

    def width() -> int:
        found: int = page.evaluate("document.documentElement.scrollWidth")
        return found

    assert width() <= 360
    page.get_by_label("Side by side").check()
    page.locator("#more summary").click()
    page.fill("#question", "x" * 300)
    page.click("#go")
    finish(page)
    page.locator(".strip").first.focus()
    assert width() <= 360
    for strip in page.locator(".strip").all():
        box = strip.bounding_box()
        assert box is not None
        assert 280 < box["width"] <= 360


def test_a_screen_reader_is_told_the_beginning_and_the_end(opened: Open, url: str) -> None:
    page = opened(url)
    news = page.locator("#news")
    assert news.get_attribute("role") == "status"
    assert page.locator("[aria-live=assertive]").count() == 0
    page.evaluate(
        "window.heard = []; new MutationObserver(() => heard.push(document.getElementById('news').textContent))"
        ".observe(document.getElementById('news'), {childList: true})"
    )
    asked(page)
    heard = page.evaluate("heard")
    assert heard[0] == "Writing."
    assert re.fullmatch(r"relay is done: \d+ tokens\.", heard[-1])
    assert len(heard) <= 3


def test_those_who_want_no_motion_get_none(opened: Open) -> None:
    served = pair(LONG, large=ScriptedEngine(LONG, token_ms=20), profile="embedded")
    with serving(served) as url:
        for wish, name in (("no-preference", "blink"), ("reduce", "none")):
            page = opened(url, reduced_motion=wish)
            ask(page)
            line = page.locator(".line.now")
            expect(line).to_be_visible()
            assert line.evaluate("e => getComputedStyle(e, '::after').animationName") == name
            page.click("#go")
            finish(page)


def test_markup_cannot_be_made_from_text(opened: Open, url: str) -> None:
    page = opened(url, expected="This document requires 'TrustedHTML'")
    made = page.evaluate(
        "() => { try { document.body.innerHTML = '<p>made</p>'; return 'made'; }"
        " catch (error) { return error.name; } }"
    )
    assert made == "TypeError"
