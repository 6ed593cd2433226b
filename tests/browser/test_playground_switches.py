"""Policies, levels, sampling, and two answers side by side."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from relaygen.engines.scripted import ScriptedEngine

from ..serve.support import THINKING, Pair, pair, serving, until
from .asking import (
    ask,
    asked,
    bodies,
    finish,
)
from .conftest import Open

pytestmark = pytest.mark.browser


# Switches.


def test_one_model_alone(opened: Open, url: str) -> None:
    page = opened(url)
    sent = bodies(page)
    page.select_option("#policy", "large")
    relay = asked(page)
    assert sent[0]["relay"] == {"annotate": True, "policy": "large"}
    assert relay["tokens"]["small"] == 0
    assert page.locator(".arm h3").inner_text() == "large alone"
    assert page.locator(".small:not(.key)").count() == 0
    expect(page.locator(".arm .outcome")).to_be_empty()


def test_sampling_is_sent_only_where_it_was_set(opened: Open, url: str) -> None:
    page = opened(url)
    sent = bodies(page)
    asked(page)
    page.locator("#more summary").click()
    page.fill("#temperature", "0.3")
    page.fill("#longest", "20")
    relay = asked(page)
    assert not {"temperature", "max_tokens"} & set(sent[0])
    assert (sent[1]["temperature"], sent[1]["max_tokens"]) == (0.3, 20)
    assert relay["finish"] == "length"
    expect(page.locator(".arm .outcome")).to_contain_text("Cut at the length limit.")


def test_levels(opened: Open) -> None:
    served = pair("We add. Therefore it is 3. Done.", profile="embedded-calibrated")
    with serving(served) as url:
        page = opened(url)
        sent = bodies(page)
        level = page.get_by_label("Level")
        options = ["the server’s: careful", "careful", "balanced", "fast"]
        assert level.locator("option").all_text_contents() == options
        level.select_option("fast")
        assert asked(page)["level"] == "fast"
        assert page.locator(".arm h3").inner_text() == "relay, fast"
        expect(page.locator(".arm .outcome")).to_contain_text("Note: ")
        page.select_option("#policy", "large")
        expect(level).to_be_disabled()
        asked(page)
    assert [each["relay"].get("level") for each in sent] == ["fast", None]


def test_a_pair_without_levels_shows_none(opened: Open, url: str) -> None:
    expect(opened(url).get_by_label("Level")).to_be_hidden()


def test_an_example_is_only_put_into_the_field(opened: Open, url: str) -> None:
    page = opened(url)
    sent = bodies(page)
    page.get_by_role("button", name="primes").click()
    expect(page.get_by_label("Your question")).to_be_focused()
    assert "primes" in page.get_by_label("Your question").input_value()
    expect(page.locator("#result")).to_be_hidden()
    assert sent == []


def test_an_empty_question_is_not_asked(opened: Open, url: str) -> None:
    page = opened(url)
    sent = bodies(page)
    page.fill("#question", "  ")
    page.click("#go")
    expect(page.get_by_label("Your question")).to_be_focused()
    assert sent == []


# Side by side.


def slow_pair() -> Pair:
    large, small = (ScriptedEngine(THINKING, token_ms=30) for _ in range(2))
    return pair(large=large, small=small)


def test_both_answer_at_the_same_time(opened: Open) -> None:
    served = slow_pair()
    with serving(served) as url:
        page = opened(url)
        page.get_by_label("Side by side").check()
        expect(page.get_by_text("On a shared device two answers at once slow")).to_be_visible()
        ask(page)
        until(lambda: served.service.admission.running == 2)
        finish(page)
        assert page.locator(".arm h3").all_inner_texts() == ["relay", "large alone"]
        assert page.locator(".strip").count() == 2
        verdict = page.locator("#verdict")
        expect(verdict).to_contain_text("Measured on this one question: relay took")
        expect(verdict).to_contain_text(
            re.compile(r"\d×, (slower than|faster than|as fast as) the")
        )
        expect(verdict).to_contain_text("on a shared device each slowed the other")
        widths = page.locator(".mark.answer").evaluate_all(
            "all => all.map(e => e.parentElement.clientWidth)"
        )
        assert widths[0] == pytest.approx(widths[1], abs=2)


def test_one_after_the_other(opened: Open) -> None:
    with serving(slow_pair()) as url:
        page = opened(url)
        sent = bodies(page)
        page.get_by_label("Side by side").check()
        page.get_by_label("one after the other").check()
        ask(page)
        expect(page.locator(".arm").first.locator(".by").first).to_be_visible()
        expect(page.locator("[data-count=elapsed]").last).to_have_text("0.00 s")
        assert len(sent) == 1
        finish(page)
        assert [each["relay"].get("policy") for each in sent] == [None, "large"]
        expect(page.locator("#verdict")).to_contain_text("Measured on this one question")
        expect(page.locator("#verdict")).not_to_contain_text("at the same time")
