"""Takes the pictures of the playground that the docs show, of a running server.

    python scripts/playground_shots.py --url http://127.0.0.1:8000 --out docs/images

Each is a real generation by whatever pair that server has. Needs the extra ``[browser]`` and a
Chromium.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

PATIENCE_MS = 600_000  # a generation on a CPU
MOST_BYTES = 200_000
COLOURS = 256
DESK = {"width": 1120, "height": 900}
WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


def opened(browser: Browser, url: str, viewport: dict[str, int], scale: int = 1) -> Page:
    """The page, with a question in its field."""
    page = browser.new_page(
        viewport={"width": viewport["width"], "height": viewport["height"]},
        device_scale_factor=scale,
        reduced_motion="reduce",
        color_scheme="light",
    )
    page.goto(url)
    expect(page.locator("#served")).not_to_be_empty()
    page.get_by_role("button", name="pens and books").click()
    return page


def ask(page: Page) -> None:
    """Ask, wait for the end, and point at the first segment of the small model."""
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#go")).to_have_text("Stop")
    expect(page.locator("#go")).to_have_text("Ask", timeout=PATIENCE_MS)
    problems = [each for each in page.locator(".problem").all_inner_texts() if each]
    if problems:
        sys.exit(f"error: {problems[0]}")
    page.locator(".strip").first.focus()
    page.keyboard.press("ArrowRight")
    page.evaluate("scrollTo(0, 0)")
    page.mouse.move(0, 0)


def keep(page: Page, path: Path) -> None:
    """The whole page as a small file."""
    image = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path}: {image.width} x {image.height}, {size // 1000} kB")
    if size > MOST_BYTES:
        sys.exit(f"error: {path} has {size} bytes, more than {MOST_BYTES}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of relaygen serve")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    url = options.url.rstrip("/") + "/"
    path = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        page = opened(browser, url, DESK)
        ask(page)
        keep(page, options.out / "playground-light.png")
        page.emulate_media(color_scheme="dark")
        keep(page, options.out / "playground-dark.png")
        page = opened(browser, url, PHONE, scale=2)
        ask(page)
        keep(page, options.out / "playground-phone.png")
        page = opened(browser, url, WIDE)
        page.get_by_label("Side by side").check()
        page.get_by_label("one after the other").check()
        ask(page)
        keep(page, options.out / "playground-side-by-side.png")
        browser.close()


if __name__ == "__main__":
    main()
