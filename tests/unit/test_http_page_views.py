"""Goal: the page shows the right thing for answers that real processes give rarely, or only after a long time.

Method: a real browser without a window loads the page's files; the test answers the requests to the API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from postdate.sidecar.http.page_files import _TYPES, PATHS, _contents
from support.browser import browser_page, picture

_HOST = "http://postdate.test"
_REFRESH_MS = 3_000
_UNKNOWN = "\N{EN DASH}"
_NARROW_PX = 380


class Answers:
    """The answers of the API by path; `delivered` is the number of occurrences that the only shard has delivered."""

    def __init__(self, page: Page) -> None:
        self.at_ms = 1_800_000_000_000
        self.delivered = 0
        self.more: dict[str, dict[str, Any]] = {}
        page.route(f"{_HOST}/**", self._answer)

    def _answer(self, route: Route) -> None:
        path = route.request.url.removeprefix(_HOST).partition("?")[0].partition("#")[0]
        if path in PATHS:
            name = PATHS[path]
            route.fulfill(body=_contents[name], content_type=_TYPES[name.rpartition(".")[2]])
            return
        route.fulfill(json=self.more.get(path) or self._shards())

    def _shards(self) -> dict[str, Any]:
        self.at_ms += _REFRESH_MS
        shard = {
            "topic": "postdate.requests",
            "partition": 0,
            "process": "localhost:8080",
            "state": "RUNNING",
            "fates": {"occurred": self.delivered},
            "lateness": {"bounds_ms": [1_000], "counts": [self.delivered, 0]},
            "load": [{"from_ms": self.at_ms, "step_ms": 60_000, "counts": [1] + [0] * 59}],
        }
        return {"at_ms": self.at_ms, "shards": [shard], "not_asked": []}


@pytest.fixture
def page() -> Iterator[Page]:
    with browser_page() as opened:
        opened.clock.install(time=1_800_000_000)
        opened.set_viewport_size({"width": _NARROW_PX, "height": 900})
        yield opened


def test_a_rate_of_zero_needs_a_whole_window(page: Page) -> None:
    """A schedule with one occurrence in ten seconds had a rate of 0 between two refreshes."""
    answers = Answers(page)
    page.goto(f"{_HOST}/")
    rate = page.locator("#rate")
    expect(rate).to_have_text(_UNKNOWN)
    page.clock.run_for(_REFRESH_MS)
    expect(page.locator("#load")).to_have_attribute("data-total", "1")
    for _ in range(2):
        expect(rate).to_have_text(_UNKNOWN)
        page.clock.run_for(_REFRESH_MS)
    answers.delivered = 1
    page.clock.run_for(_REFRESH_MS)
    expect(rate).to_have_text("0.1")
    load = page.get_by_role("region", name="Upcoming load")
    expect(load).to_contain_text("A recurring schedule counts with its next occurrence only.")
    picture(page, "overview")
