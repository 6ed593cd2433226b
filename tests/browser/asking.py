"""Using the playground as a person does, and reading what it shows."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
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


def wrote(text: str, model: str = "large", stage: str = "answer") -> dict[str, Any]:
    """The chunk of one token."""
    delta = {"content" if stage == "answer" else "reasoning_content": text}
    relay = {"model": model, "stage": stage}
    return {"choices": [{"delta": delta, "finish_reason": None}], "relay": relay}


def happened(event: str, **told: Any) -> dict[str, Any]:
    """The chunk of something beside the text."""
    relay = {"event": event, **told}
    return {"choices": [{"delta": {}, "finish_reason": None}], "relay": relay}


def handed(target: str, token: int, *, cue: str = "So", why: str = "cue") -> dict[str, Any]:
    """The chunk of a hand-off before the token of this number."""
    source = "large" if target == "small" else "small"
    told = {"source": source, "target": target, "kind": "lead", "why": why, "cue": cue}
    return happened("handoff", **told, token=token, discarded=0, seconds=0.01)


def summed(large: int, small: int = 0, **more: Any) -> dict[str, Any]:
    """The last chunk."""
    tokens = {"large": large, "small": small, "inserted": 0, "discarded": 0}
    summary = {
        "policy": "relay",
        "tokens": tokens,
        "handoffs": 0,
        "fallbacks": 0,
        "paused": None,
        "estimate": {"speedup": None, "large_alone": None},
        "finish": "stop",
        "notes": [],
        **more,
    }
    return {"choices": [], "relay": summary}


def streamed(page: Page, chunks: list[dict[str, Any]]) -> None:
    """Let the chat route answer with these chunks."""
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

    def answer(route: Route) -> None:
        route.fulfill(body=body, content_type="text/event-stream")

    page.route(f"**{CHAT}", answer)


def fulfilled(page: Page, texts: list[str], **more: Any) -> None:
    """Let the chat route tell these texts, by the large and the small model in turn."""
    chunks: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        model = ("large", "small")[number % 2]
        if number:
            chunks.append(handed(model, number))
        chunks.append(wrote(text, model))
    small = len(texts) // 2
    last = summed(len(texts) - small, small, **{"handoffs": len(texts) - 1, **more})
    streamed(page, [*chunks, last])


def saved(page: Page, folder: Path) -> Path:
    """The file that the page makes."""
    with page.expect_download() as caught:
        page.get_by_role("button", name="Save as a page").click()
    path = folder / caught.value.suggested_filename
    caught.value.save_as(path)
    return path


def serious(page: Page) -> list[str]:
    """What axe finds that keeps somebody out."""
    page.evaluate(files("axe_core_python").joinpath("axe.min.js").read_text("utf-8"))
    found: list[dict[str, Any]] = page.evaluate("axe.run().then(found => found.violations)")
    return [
        f"{each['id']}: {[node['html'] for node in each['nodes']]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
