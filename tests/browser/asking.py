"""Using the playground as a person does, and reading what it shows."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..serve.support import CHAT, events

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, Route

QUESTION = 'What is 17 + 25, <b>really</b> & "exactly"?'
REASONING = (
    "We need the sum of 17 and 25. So we add the tens first. That makes 30. Now the ones make 12. "
    "And <b>30</b> & 12 are 42. Therefore the sum is 42.\n\n"
    "Let me look at <img src=x onerror=alert(1)> once more. Wait, it is harmless.\n"
)
ANSWER = "The sum is 42: <script>alert(2)</script></style> \"quoted\" & 'done'."
TEXT = f"<think>\n{REASONING}</think>\n\n{ANSWER}"
PATTERN = r"</?think>|\n+| ?\w+| ?[^\w\s]|\s"
REFUSED = "Failed to load resource"
"""What Chromium writes to its console for every status from 400 on."""


def ask(page: Page, question: str = QUESTION) -> None:
    page.fill("#question", question)
    page.press("#question", "Control+Enter")


def finish(page: Page) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#go")).to_have_text("Ask", timeout=60_000)
    expect(page.locator("#share")).to_be_enabled()


def asked(page: Page, question: str = QUESTION) -> dict[str, Any]:
    """Ask and wait; gives the summary that the server sent."""
    with page.expect_response(f"**{CHAT}") as caught:
        ask(page, question)
    finish(page)
    found = events(caught.value.text())
    assert found[-1] == "[DONE]"
    relay: dict[str, Any] = found[-2]["relay"]
    return relay


def written(page: Page, place: str) -> str:
    """A text as people read it: its lines."""
    lines: list[str] = page.locator(f"{place} .line").all_text_contents()
    return "\n".join(lines)


def count(page: Page, name: str) -> str:
    return page.locator(f"[data-count={name}]").first.inner_text().replace("\xa0", " ")


def bodies(page: Page) -> list[dict[str, Any]]:
    """The bodies of the chats from now on."""
    found: list[dict[str, Any]] = []

    def hear(request: Request) -> None:
        if request.url.endswith(CHAT):
            body: Any = request.post_data_json
            found.append(body)

    page.on("request", hear)
    return found


def classes(page: Page, selector: str) -> list[str]:
    return [each.get_attribute("class") or "" for each in page.locator(selector).all()]


def fulfilled(page: Page, texts: list[str], **more: Any) -> None:
    """Let the chat route tell these texts, by the large and the small model in turn."""
    lines: list[dict[str, Any]] = []

    def chunk(delta: dict[str, str], relay: dict[str, Any]) -> None:
        lines.append({"choices": [{"delta": delta, "finish_reason": None}], "relay": relay})

    for number, text in enumerate(texts):
        source, target = ("small", "large") if number % 2 == 0 else ("large", "small")
        if number:
            told: dict[str, Any] = {
                "source": source,
                "target": target,
                "why": "cue",
                "cue": "So",
                "kind": "lead",
            }
            told |= {"event": "handoff", "token": number, "discarded": 0, "seconds": 0.01}
            chunk({}, told)
        chunk({"content": text}, {"model": target, "stage": "answer"})
    small = len(texts) // 2
    summary = {
        "policy": "relay",
        "tokens": {"large": len(texts) - small, "small": small, "inserted": 0, "discarded": 0},
        "handoffs": len(texts) - 1,
        "fallbacks": 0,
        "paused": None,
        "estimate": {"speedup": None, "large_alone": None},
        "finish": "stop",
        "notes": [],
        **more,
    }
    lines.append({"choices": [], "relay": summary})
    body = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"

    def answer(route: Route) -> None:
        route.fulfill(body=body, content_type="text/event-stream")

    page.route(f"**{CHAT}", answer)


def serious(page: Page) -> list[str]:
    """What axe finds that keeps somebody out."""
    page.evaluate(files("axe_core_python").joinpath("axe.min.js").read_text("utf-8"))
    found: list[dict[str, Any]] = page.evaluate("axe.run().then(found => found.violations)")
    return [
        f"{each['id']}: {[node['html'] for node in each['nodes']]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
