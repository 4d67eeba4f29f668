"""A page in the system's headless Chromium. Playwright controls it, and waits for elements to be ready."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Page, ViewportSize, expect, sync_playwright

from support.deployments.programs import need_program
from support.waiting.timeouts import WAIT_TIMEOUT_S

expect.set_options(WAIT_TIMEOUT_S * 1_000)

PHONE, DESK = ViewportSize(width=390, height=900), ViewportSize(width=1280, height=900)
#: The directory for pictures of the pages, for a person to review; empty: no pictures are taken.
_PICTURES = os.environ.get("POSTDATE_TEST_PICTURES", "")


@contextmanager
def browser_page(*, runs_scripts: bool = True) -> Iterator[Page]:
    """Yields a page of a new browser. Skips the test if no browser is installed.

    Fails at the end if a script threw an error, or if the browser's console has an error or a warning.
    """
    program = need_program("chromium", "chromium")
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program) as browser:
        page = browser.new_page(java_script_enabled=runs_scripts)
        page.set_default_timeout(WAIT_TIMEOUT_S * 1_000)
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
    assert complaints == []


def open_view(page: Page, name: str) -> None:
    """Shows one of the views of a sidecar's page."""
    page.get_by_role("navigation").get_by_role("link", name=name).click()
    expect(page.get_by_role("region", name=name, exact=True)).to_be_focused()


def picture(page: Page, name: str) -> None:
    """Saves a picture of the whole page, if POSTDATE_TEST_PICTURES is set."""
    if _PICTURES:
        page.screenshot(path=Path(_PICTURES) / f"{name}.png", full_page=True)


def rgb_sum(page: Page, name: str) -> int:
    """Returns the lightness of a colour of the body: the sum of red, green and blue."""
    colour = str(page.locator("body").evaluate("(body, name) => getComputedStyle(body)[name]", name))
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3])


def check_layout(page: Page, size: ViewportSize, scheme: str, name: str) -> None:
    """Checks that the page fits the width of the screen, and that the background is lighter than the text in the scheme
    `light`, and darker in `dark`."""
    page.set_viewport_size(size)
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert (rgb_sum(page, "backgroundColor") > rgb_sum(page, "color")) == (scheme == "light")
    picture(page, f"{name}-{size['width']}-{scheme}")


def check_layouts(page: Page, name: str) -> None:
    """Calls `check_layout` for phone and desktop, dark and light. The last layout is that of a light desktop."""
    for size in (PHONE, DESK):
        for scheme in ("dark", "light"):
            check_layout(page, size, scheme, name)
