"""Stopping, and everything that can fail, in plain words."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from relaygen import EngineReplyError, EngineUnreachableError
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.serve._settings import Settings

from ..serve.support import CHAT, THINKING, pair, serving, until
from .asking import (
    REFUSED,
    ask,
    asked,
    finish,
    written,
)
from .conftest import Open

pytestmark = pytest.mark.browser

LONG = "We count. " * 400
KEY = "sk-test"


def test_stop_ends_the_work_and_keeps_what_was_written(opened: Open) -> None:
    served = pair(LONG, large=ScriptedEngine(LONG, token_ms=20), profile="embedded")
    with serving(served) as url:
        page = opened(url)
        ask(page)
        expect(page.locator(".answer .text")).to_contain_text("We count. We count.")
        page.get_by_role("button", name="Stop").click()
        finish(page)
        until(lambda: served.large.aborted == 1)
        until(lambda: served.service.admission.idle)
        assert LONG.startswith(written(page, ".answer").strip())
        expect(page.locator(".arm .outcome")).to_contain_text("Stopped")
        expect(page.locator("#news")).to_contain_text("stopped")
        expect(page.locator("#go")).to_be_focused()


def test_a_key_is_asked_for_used_and_forgotten(opened: Open) -> None:
    settings = Settings(api_keys=(KEY,), root_path="/llm")
    with serving(pair(settings=settings)) as url:
        page = opened(f"{url}/llm/", expected=REFUSED)
        expect(page.get_by_role("alert").first).to_have_text(
            "This server asks for an API key. Type it under More and try again."
        )
        expect(page.get_by_label("API key")).to_be_focused()
        page.keyboard.type("wrong")
        page.keyboard.press("Tab")
        expect(page.locator("#served")).to_be_empty()
        page.fill("#key", KEY)
        page.keyboard.press("Tab")
        expect(page.locator("#served")).to_contain_text("relaygen")
        expect(page.locator("#problem")).to_be_hidden()
        asked(page)
        assert page.locator(".mark").count() == 6
        kept = page.evaluate(
            "JSON.stringify([{...localStorage}, {...sessionStorage}]) + document.cookie"
        )
        assert KEY not in kept
        page.reload()
        expect(page.get_by_role("alert").first).to_contain_text("asks for an API key")


def test_a_server_that_is_gone(opened: Open) -> None:
    with serving(pair()) as url:
        page = opened(url, expected=REFUSED)
        expect(page.locator("#served")).to_contain_text("relaygen")
    ask(page)
    expect(page.get_by_role("alert").first).to_have_text(
        "The server cannot be reached. Is it still running?"
    )
    expect(page.locator("#go")).to_have_text("Ask")
    expect(page.locator("#result")).to_be_hidden()


def fails(page: Page, words: str) -> None:
    ask(page)
    expect(page.locator(".arm .problem")).to_contain_text(words)
    expect(page.locator("#go")).to_have_text("Ask")
    expect(page.locator("#news")).to_contain_text(words)


def test_an_engine_that_is_not_there(opened: Open) -> None:
    error = EngineUnreachableError("http://gpu:1 refused", retryable=False)
    large = ScriptedEngine(THINKING, failures=[Failure(error, request=None)])
    with serving(pair(large=large)) as url:
        page = opened(url, expected=REFUSED)
        expect(page.locator("#served")).to_contain_text("relaygen")
        fails(page, "The server is up, but cannot answer now. Try again ")
        expect(page.locator(".arm .problem")).to_contain_text("The server says: ")
        expect(page.locator("#share")).to_be_disabled()


def test_a_failure_in_the_middle_keeps_what_was_written(opened: Open) -> None:
    error = EngineReplyError("http://gpu:1 answered 500: garbage")
    large = ScriptedEngine(THINKING, failures=[Failure(error, token=4)])
    with serving(pair(large=large)) as url:
        page = opened(url)
        fails(page, "The generation broke off: large engine: its server answered 500: garbage.")
        assert written(page, ".thinking") != ""


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "The server is full. Try again in 7 s."),
        (400, "The server refused the request. The server says: no such thing."),
        (413, "The question is longer than the server accepts."),
        (502, "A model's engine failed. The server says: no such thing."),
    ],
)
def test_refusals_in_plain_words(opened: Open, url: str, status: int, words: str) -> None:
    page = opened(url, expected=REFUSED)
    reply = json.dumps({"error": {"message": "no such thing"}})
    headers = {"retry-after": "7"}
    page.route(f"**{CHAT}", lambda route: route.fulfill(status=status, body=reply, headers=headers))
    fails(page, words)


def test_a_proxy_that_answers_in_its_own_words(opened: Open, url: str) -> None:
    page = opened(url, expected=REFUSED)
    page.route(f"**{CHAT}", lambda route: route.fulfill(status=504, body="<h1>Gateway</h1>"))
    fails(page, "The server failed (504).")
