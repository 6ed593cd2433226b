"""Used otherwise than planned: twice, half, by touch, by keyboard, in two tabs, on another server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from relaygen.engines.scripted import ScriptedEngine
from relaygen.serve._settings import Settings

from ..serve.support import CHAT, THINKING, Pair, pair, serving, until
from .asking import (
    REFUSED,
    ask,
    asked,
    bodies,
    count,
    finish,
    fulfilled,
    happened,
    saved,
    streamed,
    summed,
    written,
    wrote,
)
from .conftest import Open

pytestmark = pytest.mark.browser

LONG = "We count. " * 400
MODELS = "**/v1/models"


def slow(script: str = LONG) -> Pair:
    return pair(script, large=ScriptedEngine(script, token_ms=20), profile="embedded")


# Twice and half.


def test_asking_again_while_the_server_is_looked_at_asks_once(opened: Open, url: str) -> None:
    page = opened(url)
    sent = bodies(page)
    held: list[Route] = []
    page.route(MODELS, lambda route: held.append(route))
    ask(page)
    page.press("#question", "Control+Enter")
    expect(page.locator("#go")).to_have_text("Stop")
    until(lambda: page.evaluate("1") == 1 and len(held) == 1)
    held[0].continue_()
    finish(page)
    assert (len(held), len(sent)) == (1, 1)


def test_it_can_be_stopped_before_the_server_has_answered(opened: Open, url: str) -> None:
    page = opened(url)
    held: list[Route] = []
    page.route(MODELS, lambda route: held.append(route))
    ask(page)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#go")).to_have_text("Ask")
    expect(page.locator("#result")).to_be_hidden()
    expect(page.locator("#problem")).to_be_hidden()
    page.unroute(MODELS)
    asked(page)


def test_ctrl_enter_while_it_writes_changes_nothing(opened: Open) -> None:
    with serving(slow()) as url:
        page = opened(url)
        sent = bodies(page)
        ask(page)
        expect(page.locator(".answer .text")).to_contain_text("We count. We count.")
        page.fill("#question", "Another one?")
        page.press("#question", "Control+Enter")
        expect(page.locator("#go")).to_have_text("Stop")
        expect(page.locator("#asked")).not_to_have_text("Another one?")
        page.click("#go")
        finish(page)
        ask(page, "Another one?")
        expect(page.locator("#asked")).to_have_text("Another one?")
        page.click("#go")
        finish(page)
        assert len(sent) == 2


def test_a_second_that_was_never_asked_is_not_said_to_be_done(opened: Open, tmp_path: Path) -> None:
    with serving(slow()) as url:
        page = opened(url)
        page.get_by_label("Side by side").check()
        page.get_by_label("one after the other").check()
        ask(page)
        expect(page.locator(".answer .text").first).to_contain_text("We count. We count.")
        page.click("#go")
        finish(page)
        expect(page.locator("#news")).to_have_text(
            re.compile(r"^relay stopped: \d+ tokens\. large alone was not asked\.$")
        )
        said = page.locator(".arm .outcome").all_inner_texts()
        assert said == [
            "Stopped: this is what was written until then.",
            "Not asked: it was stopped before.",
        ]
        expect(page.locator("#verdict")).to_be_empty()
        assert "Not asked: it was stopped before." in saved(page, tmp_path).read_text("utf-8")


def test_reloading_ends_the_work(opened: Open) -> None:
    served = slow()
    with serving(served) as url:
        page = opened(url)
        ask(page)
        expect(page.locator(".answer .text")).to_contain_text("We count. We count.")
        page.reload()
        until(lambda: served.large.aborted == 1)
        until(lambda: served.service.admission.idle)
        expect(page.locator("#go")).to_have_text("Ask")


def test_two_tabs_do_not_disturb_one_another(opened: Open) -> None:
    served = slow("We count. " * 40)
    with serving(served) as url:
        first, second = opened(url), opened(url)
        for page in (first, second):
            ask(page)
        until(lambda: served.service.admission.running == 2)
        for page in (first, second):
            finish(page)
            assert written(page, ".answer") == "We count. " * 40


def test_one_of_two_fails(opened: Open, url: str, tmp_path: Path) -> None:
    page = opened(url, expected=REFUSED)
    expect(page.locator("#served")).not_to_be_empty()
    reply = json.dumps({"error": {"message": "no engine"}})

    def second(route: Route) -> None:
        if '"large"' in (route.request.post_data or ""):
            route.fulfill(status=503, body=reply)
        else:
            route.continue_()

    page.route(f"**{CHAT}", second)
    page.get_by_label("Side by side").check()
    ask(page)
    finish(page)
    expect(page.locator(".arm .problem").first).to_be_hidden()
    expect(page.locator(".arm .problem").last).to_contain_text("The server says: no engine.")
    expect(page.locator("#verdict")).to_be_empty()
    assert "The server says: no engine." in saved(page, tmp_path).read_text("utf-8")


# Other servers.


def test_the_server_is_another_one_by_now(opened: Open) -> None:
    with serving(pair()) as url, serving(pair(profile="embedded", policy="large")) as other:
        page = opened(url)
        expect(page.locator("#served")).to_contain_text("qwen3")
        page.route(
            "**/v1/*", lambda route: route.continue_(url=route.request.url.replace(url, other))
        )
        page.route(f"**{CHAT}", lambda route: route.continue_(url=f"{other}{CHAT}"))
        asked(page)
        expect(page.locator("#served")).to_contain_text("profile embedded")
        expect(page.locator(".arm h3")).to_have_text("large alone")


def test_a_server_that_is_gone_takes_nothing_away(opened: Open, tmp_path: Path) -> None:
    with serving(pair()) as url:
        page = opened(url, expected=REFUSED)
        expect(page.locator("#served")).to_contain_text("relaygen")
        asked(page)
    text = written(page, ".thinking")
    ask(page)
    expect(page.locator("#problem")).to_contain_text("The server cannot be reached.")
    expect(page.locator("#go")).to_have_text("Ask")
    assert written(page, ".thinking") == text
    assert "--large: light-dark(#" in saved(page, tmp_path).read_text("utf-8")


def test_something_else_answers_there(opened: Open, url: str) -> None:
    page = opened(url)
    page.route(MODELS, lambda route: route.fulfill(body="<h1>It works!</h1>"))
    ask(page)
    expect(page.locator("#problem")).to_contain_text("What answers here is not RelayGen.")


def test_a_garbled_stream(opened: Open, url: str) -> None:
    page = opened(url)
    body = f'data: {json.dumps(wrote("Yes"))}\n\ndata: {{"choices"\n\n'
    page.route(f"**{CHAT}", lambda route: route.fulfill(body=body))
    ask(page)
    expect(page.locator(".arm .problem")).to_contain_text("garbled the stream")
    assert written(page, ".answer") == "Yes"


@pytest.mark.parametrize("key", ["ключ", "two words"])
def test_a_key_that_no_header_can_hold(opened: Open, key: str) -> None:
    with serving(pair(settings=Settings(api_keys=("sk-test",)))) as url:
        page = opened(url, expected=REFUSED)
        expect(page.locator("#key")).to_be_focused()
        page.fill("#key", key)
        page.keyboard.press("Tab")
        expect(page.locator("#problem")).to_contain_text("An API key has only letters")
        page.fill("#key", " sk-test ")
        page.keyboard.press("Tab")
        expect(page.locator("#served")).to_contain_text("relaygen")
        asked(page)


# Fields.


def test_a_value_out_of_bounds_is_shown_and_not_sent(opened: Open, url: str) -> None:
    page = opened(url)
    sent = bodies(page)
    page.locator("#more summary").click()
    page.fill("#temperature", "7")
    page.locator("#more summary").click()
    page.fill("#question", "Why?")
    page.click("#go")
    expect(page.locator("#temperature")).to_be_focused()
    page.press("#question", "Control+Enter")
    expect(page.locator("#temperature")).to_be_focused()
    assert sent == []
    page.fill("#temperature", "0.75")
    asked(page)
    assert sent[0]["temperature"] == 0.75


def test_stop_works_whatever_is_in_the_fields(opened: Open) -> None:
    with serving(slow()) as url:
        page = opened(url)
        ask(page)
        expect(page.locator(".answer .text")).to_contain_text("We count. We count.")
        page.locator("#more summary").click()
        page.fill("#temperature", "7")
        page.get_by_role("button", name="Stop").click()
        finish(page)
        expect(page.locator(".arm .outcome")).to_contain_text("Stopped")


# Fingers, keys, paper.


def test_a_finger_on_the_strip_shows_the_segment_below_it(opened: Open, url: str) -> None:
    page = opened(url, viewport={"width": 390, "height": 844}, has_touch=True)
    fulfilled(page, [f"Segment {n}.\n" for n in range(4)])
    ask(page)
    finish(page)
    page.locator(".strip").tap(position={"x": 220, "y": 20})
    expect(page.locator(".caption")).to_contain_text("3 of 4 · large model")
    page.get_by_text("Segment 1.").tap()
    expect(page.locator(".caption")).to_contain_text("2 of 4 · small model")


def test_enter_opens_a_folded_thinking(opened: Open, url: str) -> None:
    page = opened(url)
    asked(page)
    page.locator("details.thinking summary").click()
    expect(page.locator(".thinking .text")).to_be_hidden()
    page.locator(".strip").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".thinking .by").first).to_be_in_viewport()


def test_the_segment_that_is_written_is_told_as_it_grows(opened: Open) -> None:
    with serving(slow()) as url:
        page = opened(url)
        ask(page)
        expect(page.locator(".mark")).to_have_count(1)
        page.locator(".strip").focus()
        tokens = re.compile(r"^1 of 1 · large model · (\d+) tokens? in")
        caption = page.locator(".caption")
        expect(caption).to_have_text(tokens)
        before, told = caption.inner_text(), page.locator(".strip").get_attribute("aria-valuetext")
        expect(caption).not_to_have_text(before)
        expect(caption).to_have_text(tokens)
        assert page.locator(".strip").get_attribute("aria-valuetext") == told
        page.click("#go")
        finish(page)
        page.locator(".strip").focus()
        found = tokens.match(caption.inner_text())
        assert found is not None
        assert found[1] == count(page, "large")


def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(
    opened: Open, url: str
) -> None:
    page = opened(url)
    page.get_by_label("Side by side").check()
    page.locator("#more summary").click()
    ask(page)
    finish(page)
    page.locator("#question").focus()
    page.keyboard.press("Shift+Tab")
    places = []
    name = "e => e.id || e.name || e.className || e.textContent.trim()"
    while page.evaluate("document.activeElement !== document.body"):
        place = page.locator(":focus")
        places.append(place.evaluate(name))
        assert place.evaluate("e => getComputedStyle(e).outlineStyle") == "solid", places
        page.keyboard.press("Tab")
    form = ["question", "go", "link", "link", "link", "policy", "race", "order"]
    more = ["More", "temperature", "longest", "key"]
    assert places == ["theme", *form, *more, *2 * ["strip", "Thinking"], "share"]


@pytest.mark.parametrize(
    "size",
    [{"width": 320, "height": 568}, {"width": 640, "height": 360}],
    ids=["narrow", "zoomed to 200 %"],
)
def test_nothing_is_cut_off_where_there_is_little_room(
    opened: Open, url: str, size: dict[str, int], tmp_path: Path
) -> None:
    page = opened(url, viewport=size, device_scale_factor=2)
    page.get_by_label("Side by side").check()
    page.locator("#more summary").click()
    tokens = {"large": 12_345, "small": 23_456, "inserted": 0, "discarded": 12_345}
    last = summed(1, tokens=tokens, handoffs=2_345)
    streamed(page, [wrote("x" * 400), happened("stage", stage="answer", token=1), last])
    ask(page, "x" * 300)
    finish(page)
    page.locator(".strip").first.focus()
    assert fits(page)
    for name in ("large", "discarded", "elapsed"):
        box = page.locator(f"[data-count={name}]").first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= size["width"]
    file = page.context.new_page()
    file.goto(saved(page, tmp_path).as_uri())
    for details in file.locator("details").all():
        details.evaluate("e => { e.open = true; }")
    assert fits(file)


def fits(page: Page) -> bool:
    found: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return found


def test_paper_is_white(opened: Open, url: str, tmp_path: Path) -> None:
    page = opened(url, color_scheme="dark")
    asked(page)
    file = page.context.new_page()
    file.goto(saved(page, tmp_path).as_uri())
    page.click("#theme")
    page.click("#theme")
    expect(page.locator("#theme")).to_have_text("Colours: dark")
    for each in (page, file):
        colour = "e => getComputedStyle(e).color"
        dark = each.locator(".by.large").first.evaluate(colour)
        each.emulate_media(media="print")
        light = each.locator(".by.large").first.evaluate(colour)
        assert dark != light == "rgb(106, 79, 196)"
        adjust = "e => getComputedStyle(e).printColorAdjust"
        assert each.locator(".mark").first.evaluate(adjust) == "exact"
    expect(page.locator("form")).to_be_hidden()
    expect(page.locator(".answer .text")).to_be_visible()


def test_a_saved_file_needs_no_network(opened: Open, tmp_path: Path) -> None:
    with serving(pair(THINKING)) as url:
        page = opened(url)
        asked(page)
        path = saved(page, tmp_path)
    page.context.set_offline(True)
    file = page.context.new_page()
    asked_for: list[str] = []
    file.on("request", lambda request: asked_for.append(request.url))
    file.goto(path.as_uri())
    assert asked_for == [path.as_uri()]
    shown = "e => [getComputedStyle(e).color, getComputedStyle(e).textDecorationLine]"
    assert file.locator(".by.large").first.evaluate(shown) == ["rgb(106, 79, 196)", "none"]
    assert file.locator(".by.small").first.evaluate(shown) == ["rgb(13, 122, 111)", "underline"]
    heights = [
        file.locator(f".mark.{model}").first.evaluate("e => e.clientHeight")
        for model in ("large", "small")
    ]
    assert heights[0] > 1.4 * heights[1] > 10
    with file.expect_event("requestfailed") as failed:
        file.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://x/'}))")
    assert failed.value.failure == "csp"
