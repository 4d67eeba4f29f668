"""A page in the system's Chromium without a window, driven by Playwright, which waits for elements to be ready."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import ConsoleMessage, Page, expect, sync_playwright

from support.patience import PATIENCE_S
from support.programs import need_program

expect.set_options(PATIENCE_S * 1_000)


@contextmanager
def browser_page() -> Iterator[Page]:
    """A page of a browser of its own; skips the test if there is none.

    At the end, nothing that scripts threw and nothing that the browser refused or warned of may be left.
    """
    program = need_program("chromium", "chromium")
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program) as browser:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_S * 1_000)
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
    assert complaints == []
