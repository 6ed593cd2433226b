"""A headless Chromium, and pages that must stay silent."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from relaygen.mock import MockConfig, Trace
from relaygen.mock import serving as mock_engine

from ..served import serving as relay_server
from .asking import PATTERN, TEXT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]

NAMES = ("chromium", "chromium-browser", "google-chrome")

Open = Callable[..., "Page"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, NAMES)), None)
    assert path is not None, f"a Chromium is needed: one of {', '.join(NAMES)}"
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Open]:
    """Opens the playground at an address. In the end nothing may have complained: no error, no
    warning, no breach of the page's policy; but for messages that begin as `expected`."""
    from playwright.sync_api import expect

    contexts, troubles = [], []

    def open_page(url: str, *, expected: str = "", **options: Any) -> Page:
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()

        def hear(message: ConsoleMessage) -> None:
            known = expected and message.text.startswith(expected)
            if message.type in ("error", "warning") and not known:
                troubles.append(message.text)

        page.on("console", hear)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(url)
        if not expected:
            expect(page.locator("#served")).not_to_be_empty()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    trace = Trace("sum", tuple(token.encode() for token in re.findall(PATTERN, TEXT)), True)
    log = tmp_path_factory.mktemp("relay") / "log"
    with (
        mock_engine(MockConfig(trace=trace, token_ms=3)) as large,
        mock_engine(MockConfig(trace=trace, token_ms=1)) as small,
    ):
        arguments = ["--large", large, "--small", small, "--profile", "qwen3-32b+1.7b"]
        with relay_server([*arguments, "--pause", "off"], log) as served:
            yield f"{served}/"
