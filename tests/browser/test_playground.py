"""The playground in a real browser, over ``relaygen serve`` and two mock engines."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from .asking import (
    ANSWER,
    QUESTION,
    REASONING,
    ask,
    asked,
    classes,
    count,
    finish,
    fulfilled,
    written,
)
from .conftest import Open

pytestmark = pytest.mark.browser


# Text, strip, counters.


def test_thinking_and_answer_arrive_apart_and_say_who_wrote_them(opened: Open, url: str) -> None:
    page = opened(url)
    asked(page)
    assert written(page, ".thinking") == REASONING
    assert written(page, ".answer") == ANSWER
    assert page.locator("#asked").inner_text() == QUESTION
    assert page.locator(".text img, .text script, .text b:not(.by > b)").count() == 0
    assert {each.split()[1] for each in classes(page, ".thinking .by")} == {"large", "small"}
    assert set(classes(page, ".answer .by")) == {"by small"}


def test_the_models_differ_in_more_than_colour(opened: Open, url: str) -> None:
    page = opened(url)
    asked(page)
    styles = {}
    for model in ("large", "small"):
        text, mark = page.locator(f".by.{model}").first, page.locator(f".mark.{model}").first
        styles[model] = (
            text.evaluate("e => getComputedStyle(e).color"),
            text.evaluate("e => getComputedStyle(e).textDecorationLine"),
            mark.evaluate("e => e.getBoundingClientRect().height"),
        )
    assert styles["large"][0] != styles["small"][0]
    assert (styles["large"][1], styles["small"][1]) == ("none", "underline")
    assert styles["large"][2] > 1.4 * styles["small"][2]


def test_the_cue_is_marked_where_the_large_model_wrote_it(opened: Open, url: str) -> None:
    page = opened(url)
    asked(page)
    told = page.locator(".by.large b")
    assert told.all_text_contents() == ["So", "Now", "Therefore", "Wait,"]


def test_the_strip_has_a_mark_as_wide_as_its_segment(opened: Open, url: str) -> None:
    page = opened(url)
    relay = asked(page)
    marks = page.locator(".mark").evaluate_all(
        "all => all.map(e => [e.className, +e.style.getPropertyValue('--from'),"
        " +e.style.getPropertyValue('--tokens'), e.getBoundingClientRect().width])"
    )
    total = relay["tokens"]["large"] + relay["tokens"]["small"]
    assert [mark[1] for mark in marks] == [sum(m[2] for m in marks[:n]) for n in range(len(marks))]
    assert sum(mark[2] for mark in marks) == total
    for model in ("large", "small"):
        assert sum(m[2] for m in marks if model in m[0].split()) == relay["tokens"][model]
    whole = page.locator(".strip").evaluate("e => e.getBoundingClientRect().width")
    for _, _, tokens, width in marks:
        assert width == pytest.approx(whole * tokens / total, abs=1)
    assert marks[-1][0] == "mark small answer"


def test_a_band_shows_where_the_answer_begins(opened: Open, url: str) -> None:
    page = opened(url)
    asked(page)
    box, mark = (
        page.locator(".answering").bounding_box(),
        page.locator(".mark.answer").bounding_box(),
    )
    assert box is not None
    assert mark is not None
    assert (box["x"], box["width"]) == pytest.approx((mark["x"], mark["width"]), abs=1)
    assert page.locator(".answering").inner_text() == "answer"


def test_the_counters_are_the_servers(opened: Open, url: str) -> None:
    page = opened(url)
    relay = asked(page)
    assert count(page, "large") == str(relay["tokens"]["large"])
    assert count(page, "small") == str(relay["tokens"]["small"])
    assert count(page, "discarded") == str(relay["tokens"]["discarded"])
    assert count(page, "handoffs") == str(relay["handoffs"]) == "9"
    assert count(page, "utilization") == f"{100 * relay['utilization']:.0f} %"
    assert float(count(page, "pace")) > 0
    assert re.fullmatch(r"[\d.]+ s", count(page, "elapsed"))


def test_what_it_gained_or_lost_is_always_said(opened: Open, url: str) -> None:
    page = opened(url)
    speedup = asked(page)["estimate"]["speedup"]
    word = "slower than" if round(speedup, 2) < 1 else "faster than"
    said = page.locator(".arm .outcome")
    expect(said).to_contain_text(f"{speedup:.2f}×, {word} the large model alone")
    expect(said).to_be_visible()


def test_a_loss_is_not_hidden(opened: Open, url: str) -> None:
    page = opened(url)
    fulfilled(page, ["A text."], estimate={"speedup": 0.5, "large_alone": 2.0})
    ask(page)
    finish(page)
    said = "Estimate: 0.50×, slower than the large model alone (about 2.0 s)."
    expect(page.locator(".arm .outcome")).to_contain_text(said)


def test_thousands_of_segments(opened: Open, url: str) -> None:
    page = opened(url)
    fulfilled(page, [f" Part {n}." + "\n" * (n % 7 == 0) for n in range(3000)])
    ask(page)
    finish(page)
    assert page.locator(".mark").count() == page.locator(".by").count() == 3000
    assert page.locator(".answer .line").count() == 430
    assert count(page, "large") == count(page, "small") == "1500"
    page.locator(".strip").focus()
    page.keyboard.press("End")
    expect(page.locator(".caption")).to_contain_text("3000 of 3000 · small model · 1 token")
    page.locator(".strip").hover(position={"x": 1, "y": 10})
    expect(page.locator(".caption")).to_contain_text(re.compile(r"^\d of 3000"))


# Why the models changed.


def test_the_keyboard_goes_along_the_strip(opened: Open, url: str) -> None:
    page = opened(url)
    asked(page)
    strip, caption = page.locator(".strip"), page.locator(".caption")
    page.locator("#share").focus()
    for _ in range(2):  # over the heading of the thinking
        page.keyboard.press("Shift+Tab")
    expect(strip).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(caption).to_contain_text("2 of 10 · small model · ")
    expect(caption).to_contain_text("cue “So”")
    assert re.search(r"\d+ tokens in [\d.]+\ss .* hand-off [\d.]+\ss", caption.inner_text())
    assert strip.get_attribute("aria-valuenow") == "2"
    assert strip.get_attribute("aria-valuetext") == caption.inner_text().replace(" · ", ", ")
    assert page.locator(".by.on").all_text_contents() == ["we add the tens first."]
    assert classes(page, ".mark.on") == ["mark small reasoning on"]
    page.keyboard.press("ArrowRight")
    expect(caption).to_contain_text("the sentence ended")
    page.keyboard.press("End")
    expect(caption).to_contain_text("10 of 10 · small model")
    expect(caption).to_contain_text("the thinking is over")
    page.keyboard.press("ArrowRight")
    assert strip.get_attribute("aria-valuenow") == "10"
    page.keyboard.press("Home")
    expect(caption).to_contain_text("1 of 10 · large model")
    page.keyboard.press("Escape")
    expect(caption).to_contain_text("Point at the strip")
    assert page.locator(".on").count() == 0


def test_the_pointer_shows_the_same_in_strip_and_text(opened: Open, url: str) -> None:
    page = opened(url)
    asked(page)
    caption = page.locator(".caption")
    page.locator(".mark").nth(3).hover(force=True)
    expect(caption).to_contain_text("4 of 10 · small model")
    assert page.locator(".by.on").all_text_contents() == ["the ones make 12."]
    page.get_by_text("we add the tens first.").hover()
    expect(caption).to_contain_text("2 of 10 · small model")
    page.locator("h1").hover()
    expect(caption).to_contain_text("Point at the strip")


def test_enter_brings_the_segments_text_into_view(opened: Open, url: str) -> None:
    page = opened(url)
    fulfilled(page, [f"Segment {n}.\n" for n in range(400)])
    ask(page)
    finish(page)
    page.locator(".strip").focus()
    page.keyboard.press("End")
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Segment 399.")).to_be_in_viewport()
