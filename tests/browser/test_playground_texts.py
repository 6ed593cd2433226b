"""Texts that could break the page: long, foreign, hostile, empty; in the page and in a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .asking import (
    ask,
    classes,
    count,
    finish,
    handed,
    happened,
    saved,
    streamed,
    summed,
    written,
    wrote,
)
from .conftest import Open

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"
ARABIC, HEBREW = "الجواب هو 42.", "התשובה היא 42."


def shown(page: Page, chunks: list[dict[str, object]]) -> None:
    streamed(page, chunks)
    ask(page)
    finish(page)


def elements(page: Page) -> int:
    found: int = page.locator("*").count()
    return found


def test_ten_thousand_tokens_of_one_writer_are_few_elements(opened: Open, url: str) -> None:
    page = opened(url)
    shown(page, [wrote("One."), summed(1)])
    before = elements(page)
    shown(page, [*(wrote(" 数字") for _ in range(10_000)), summed(10_000)])
    assert elements(page) == before
    assert count(page, "large") == "10000"
    assert len(written(page, ".answer")) == 30_000


def test_ten_thousand_lines_are_one_element_each(opened: Open, url: str) -> None:
    page = opened(url)
    shown(page, [wrote("One."), summed(1)])
    before = elements(page)
    shown(page, [*(wrote(f"{n}.\n") for n in range(10_000)), summed(10_000)])
    assert elements(page) - before <= 2 * 10_000
    assert page.locator(".mark").count() == 1


@pytest.mark.parametrize("text", [ARABIC, HEBREW])
def test_a_line_has_the_direction_of_its_letters(
    opened: Open, url: str, tmp_path: Path, text: str
) -> None:
    page = opened(url)
    streamed(page, [wrote(f"English.\n{text}"), summed(2)])
    ask(page, text)
    finish(page)
    side = """e => {
        const range = document.createRange();
        range.selectNodeContents(e);
        const box = e.closest(".text, h1, h2").getBoundingClientRect();
        const { left, right } = range.getBoundingClientRect();
        return left - box.left < box.right - right ? "left" : "right";
    }"""
    assert page.locator(".answer .line").first.evaluate(side) == "left"
    assert page.locator(".answer .line").last.evaluate(side) == "right"
    assert page.locator("#asked").evaluate(side) == "right"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    file = page.context.new_page()
    file.goto(saved(page, tmp_path).as_uri())
    assert file.locator("h1").evaluate(side) == "right"
    assert file.locator(".text").text_content() == f"English.\n{text}"


def test_letters_of_every_script_arrive_whole(opened: Open, url: str, tmp_path: Path) -> None:
    page = opened(url)
    text = "四十二 👩‍👩‍👧‍👦 é e\u0301 \u202eabc\u202c ๆ 🇩🇪 " + "𝔘" * 100
    page.fill("#question", text)
    streamed(page, [*(wrote(char) for char in text), summed(len(text))])
    page.press("#question", "Control+Enter")
    finish(page)
    assert written(page, ".answer") == text
    html = saved(page, tmp_path).read_text("utf-8")
    assert "\ufffd" not in html
    assert text in html


def test_markup_in_text_cue_and_reason_stays_text(opened: Open, url: str, tmp_path: Path) -> None:
    page = opened(url)
    chunks = [
        wrote(f"{EVIL}</div></style> {EVIL}", stage="reasoning"),
        handed("small", 1, cue=EVIL),
        wrote(f'"{EVIL}', "small", "reasoning"),
        handed("large", 2, cue="", why=f'"><i>{EVIL}'),
        wrote(f"</textarea>{EVIL}"),
        summed(2, 1, handoffs=2, notes=[EVIL], paused=EVIL),
    ]
    streamed(page, chunks)
    ask(page, f"</title></style>{EVIL}")
    finish(page)
    page.locator(".strip").focus()
    caption = page.locator(".caption")
    page.keyboard.press("ArrowRight")
    expect(caption).to_contain_text(f"cue “{EVIL}”")
    page.keyboard.press("ArrowRight")
    expect(caption).to_contain_text(f'"><i>{EVIL}')
    page.locator(".by").nth(1).hover()
    expect(caption).to_contain_text(EVIL)
    assert page.locator("main :is(img, script, i)").count() == 0
    assert page.locator(".by.large b").text_content() == EVIL

    file = page.context.new_page()
    file.goto(saved(page, tmp_path).as_uri())
    assert file.locator("img, script, i, textarea").count() == 0
    assert file.title() == f"RelayGen: </title></style>{EVIL}"[:90]
    titles = [each.get_attribute("title") or "" for each in file.locator(".mark").all()]
    assert f"cue “{EVIL}”" in titles[1]
    assert f'"><i>{EVIL}' in titles[2]
    assert file.locator(".text").nth(1).text_content() == f"</textarea>{EVIL}"


def test_thinking_without_an_answer(opened: Open, url: str, tmp_path: Path) -> None:
    page = opened(url)
    shown(page, [wrote("Hm.", stage="reasoning"), summed(1, finish="length")])
    expect(page.locator(".thinking .text")).to_have_text("Hm.")
    expect(page.locator("section.answer")).to_be_hidden()
    expect(page.locator(".stages")).to_contain_text("thinking")
    expect(page.locator(".answering")).to_be_hidden()
    expect(page.locator(".arm .outcome")).to_contain_text("Cut at the length limit.")
    file = page.context.new_page()
    file.goto(saved(page, tmp_path).as_uri())
    assert file.locator("h3").all_inner_texts() == ["Thinking"]
    assert file.locator(".answering").count() == 0


def test_nothing_at_all(opened: Open, url: str) -> None:
    page = opened(url)
    shown(page, [summed(1)])
    expect(page.locator(".arm .outcome")).to_contain_text("It wrote nothing.")
    expect(page.locator("section.answer")).to_be_hidden()
    page.locator(".strip").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".caption")).to_contain_text("Point at the strip")


def test_a_relay_without_a_handoff_says_what_to_do(opened: Open, url: str) -> None:
    page = opened(url)
    shown(page, [wrote("Nothing here is easy."), summed(4)])
    expect(page.locator(".arm .outcome")).to_contain_text("No cue fired in this text")
    assert classes(page, ".mark") == ["mark large answer"]
    assert count(page, "utilization") == "100 %"


def test_an_inserted_end_of_the_thinking_is_nobodys(opened: Open, url: str) -> None:
    page = opened(url)
    chunks = [
        *(wrote(" Hm.", stage="reasoning") for _ in range(4)),
        happened(
            "insertion", marker="end_of_thinking", text="</think>", tokens=3, why="repetition"
        ),
        happened("stage", stage="answer", token=7),
        wrote("42."),
        summed(5, tokens={"large": 5, "small": 0, "inserted": 3, "discarded": 0}),
    ]
    shown(page, chunks)
    places = page.locator(".mark").evaluate_all(
        "all => all.map(e => ['--from', '--tokens'].map(n => +e.style.getPropertyValue(n)))"
    )
    assert places == [[0, 4], [4, 3], [7, 1]]
    assert classes(page, ".mark")[1] == "mark inserted reasoning"
    assert (count(page, "large"), count(page, "utilization")) == ("5", "100 %")
    page.locator(".strip").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".caption")).to_have_text("2 of 3 · 3 tokens inserted to end the thinking")


def test_a_long_question_does_not_push_the_answer_away(opened: Open, url: str) -> None:
    page = opened(url)
    streamed(page, [wrote("No."), summed(1)])
    ask(page, "Is it?\n" * 300)
    finish(page)
    box = page.locator("#asked").bounding_box()
    assert box is not None
    assert box["height"] < 250
    page.emulate_media(media="print")
    box = page.locator("#asked").bounding_box()
    assert box is not None
    assert box["height"] > 2000


def test_a_cue_of_white_space_is_told_by_its_reason(opened: Open, url: str) -> None:
    page = opened(url)
    shown(
        page, [wrote("A.\n\n"), handed("small", 1, cue="\n\n"), wrote("B.", "small"), summed(1, 1)]
    )
    page.locator(".strip").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".caption")).to_have_text(
        re.compile(r" · a cue announced an easy sentence · ")
    )
