"""Goal: the page shows what the API answers in cases that real processes rarely cause: refusals, entries of an older
process, and dead letters that were not read. A refusal keeps the text that the user typed.

Method: a real browser loads the files of the page, and a function of the test answers its requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from postdate.sidecar.http.api import page_files
from support.web.browser import browser_page, picture

_FILES = Path(page_files.__file__).parent / "page"
_ORIGIN = "requests/0/7"
#: Milliseconds: the interval between two refreshes of the page.
_REFRESH_MS = 3_000
_SCHEDULE = {
    "origin": _ORIGIN, "id": "nightly", "target": "orders", "state": "waiting", "due_ms": 1_900_000_000_000,
    "chosen_ms": 1_900_000_000_000, "paused": False, "schedule": {"every": "1h"}, "next_ms": [1_900_000_000_000],
    "occurrence": 1,
}  # fmt: skip
_SHARDS: dict[str, Any] = {"at_ms": 1_900_000_000_000, "shards": [], "not_asked": []}
_STUB = """
window.fetch = async (path, options) => {
  const [status, body] = await window.answer(path, options.body ?? "");
  return new Response(JSON.stringify(body), { status });
};
"""


class Answers:
    """Answers a request by its path without the query, and records it with its body. No entry is parked."""

    def __init__(self) -> None:
        self.by_path: dict[str, tuple[int, Any]] = {"shards": (200, _SHARDS)}
        self.requests: list[tuple[str, Any]] = []

    def __call__(self, path: str, body: str) -> tuple[int, Any]:
        parts = urlsplit(path)
        name = parts.path.removeprefix("/api/v1/")
        self.requests.append((name, json.loads(body) if body else None))
        if "state=parked" in parts.query:
            return 200, {"entries": [], "cursor": None, "not_asked": []}
        return self.by_path[name]


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def page(answers: Answers) -> Iterator[Page]:
    def file(route: Route) -> None:
        route.fulfill(path=_FILES / (urlsplit(route.request.url).path.rpartition("/")[2] or "index.html"))

    with browser_page() as opened:
        opened.expose_function("answer", answers)
        opened.add_init_script(_STUB)
        opened.route("http://page.test/**", file)
        yield opened


def open_at(page: Page, view: str) -> None:
    page.goto(f"http://page.test/#{view}")


def give_token(page: Page, token: str) -> None:
    dialog = page.locator("#token-dialog")
    dialog.get_by_label("bearer token").fill(token)
    dialog.get_by_role("button", name="Use token").click()


def test_only_times_of_an_action_are_shown_as_times(page: Page, answers: Answers) -> None:
    asked = {"id": "1234567890123", "from": "1900000000000"}
    action = {"at_ms": 1, "who": None, "address": "a", "action": "cancel", "asked": asked, "status": 202, "answer": {}}
    answers.by_path["actions"] = 200, {"actions": [action], "not_asked": []}
    open_at(page, "actions")
    expect(page.locator("#actions")).to_contain_text("id 1234567890123, from 2030-03-17 17:46:40Z")


def test_a_schedule_of_an_older_process_is_shown_and_its_pause_reaches_the_strip(page: Page, answers: Answers) -> None:
    answers.by_path["pending"] = 200, {"entries": [_SCHEDULE], "cursor": None, "not_asked": []}
    history = {"origin": _ORIGIN, "state": "pending", "events": [], "complete": True, "entry": _SCHEDULE}
    answers.by_path[f"requests/{_ORIGIN}"] = 200, history
    open_at(page, "schedules")
    page.get_by_role("button", name="nightly").click()
    section, lane = page.locator("#schedule"), page.locator("#lanes .lane")
    expect(section).to_contain_text("active, every 1h, for orders")
    answers.by_path[f"requests/{_ORIGIN}"] = 200, {**history, "entry": {**_SCHEDULE, "paused": True}}
    section.get_by_role("button", name="Refresh").click()
    expect(lane).to_have_class(re.compile("paused"))
    page.locator("[data-strip]").first.click()
    expect(lane).to_have_class(re.compile("paused"))


@pytest.mark.parametrize("width", [380, 600, 1280])
def test_no_label_of_the_calendar_is_cut(page: Page, answers: Answers, width: int) -> None:
    answers.by_path["pending"] = 200, {"entries": [_SCHEDULE], "cursor": None, "not_asked": []}
    page.clock.install(time="2026-11-27T18:00:00Z")  # the last day has 10.7 % of the axis
    page.set_viewport_size({"width": width, "height": 900})
    open_at(page, "schedules")
    expect(page.locator("#lanes .lane")).to_have_count(1)
    for button in page.locator("[data-strip]").all():
        button.click()
        assert page.locator("#axis").evaluate("(axis) => axis.scrollWidth <= axis.clientWidth")
        assert page.locator("#axis span").count() > 2
    picture(page, f"calendar-{width}")


def test_a_rate_of_zero_needs_a_whole_window(page: Page, answers: Answers) -> None:
    """A rate over one refresh would mostly be 0 for a schedule with one occurrence in ten seconds."""
    load = [{"from_ms": _SHARDS["at_ms"], "step_ms": 60_000, "counts": [1] + [0] * 59}]
    part = {"topic": "requests", "partition": 0, "process": "localhost:8080", "state": "RUNNING", "load": load}
    page.clock.install(time=_SHARDS["at_ms"] / 1_000)
    page.set_viewport_size({"width": 380, "height": 900})

    def refresh(number: int, delivered: int) -> None:
        shard = {**part, "fates": {"occurred": delivered}, "lateness": {"bounds_ms": [1], "counts": [delivered, 0]}}
        at_ms = _SHARDS["at_ms"] + number * _REFRESH_MS
        answers.by_path["shards"] = 200, {"at_ms": at_ms, "shards": [shard], "not_asked": []}
        page.clock.run_for(_REFRESH_MS) if number else open_at(page, "overview")
        expect(page.locator("#late")).to_contain_text("up to 1 ms" if delivered else "No deliveries yet.")

    rate = page.locator("#rate")
    for number in range(4):
        refresh(number, 0)
        expect(rate).to_have_text("\N{EN DASH}")
    refresh(4, 1)
    expect(rate).to_have_text("0.1")
    expect(page.locator("#load").locator("xpath=..")).to_contain_text("counts with its next occurrence only.")
    picture(page, "overview")
    for number in range(5, 11):
        refresh(number, 1)
    expect(rate).to_have_text("0")


def test_typed_times_outlive_a_refusal_and_a_token_outlives_a_name(page: Page, answers: Answers) -> None:
    history = {
        "origin": _ORIGIN,
        "state": "pending",
        "events": [],
        "complete": True,
        "entry": {**_SCHEDULE, "extras": []},
    }
    answers.by_path["pending"] = 200, {"entries": [_SCHEDULE], "cursor": None, "not_asked": []}
    answers.by_path[f"requests/{_ORIGIN}"] = 200, history
    answers.by_path["backfill"] = 400, {"error": "start is no time"}
    open_at(page, "schedules")
    page.locator("#token-button").click()
    give_token(page, "a-token")
    page.locator("#token-button").click()
    page.get_by_label("name", exact=False).locator("visible=true").fill("Ann")
    page.get_by_role("button", name="Use token").click()
    expect(page.locator("#token-button")).to_have_text("Token set")
    page.get_by_role("button", name="nightly").click()
    section, dialog = page.locator("#schedule"), page.locator("#change-dialog")
    section.get_by_role("button", name="Backfill").click()
    page.locator("#start").fill("yesterday")
    dialog.get_by_role("button", name="Backfill it").click()
    expect(section).to_contain_text("start is no time")
    page.get_by_role("button", name="nightly").click()
    section.get_by_role("button", name="Backfill").click()
    expect(page.locator("#start")).to_have_value("yesterday")
    expect(page.locator("#end")).to_have_value("now")
    dialog.locator("[value='cancel']").click()


def test_a_refused_bulk_control_is_reported_at_once(page: Page, answers: Answers) -> None:
    shard = {"topic": "requests", "partition": 0}
    selection = {"count": 2, "exact": True, "targets": {"orders": 2}, "shards": [shard], "not_asked": []}
    answers.by_path["pending/selected"] = 200, selection
    answers.by_path["pending"] = 200, {"entries": [], "cursor": None, "not_asked": []}
    answers.by_path["cancel/selected"] = 202, {"controls": [{"origin": _ORIGIN}]}
    refused = {"state": "dead", "request": {"refused": "limit-exceeded"}, "events": []}
    answers.by_path[f"requests/{_ORIGIN}"] = 200, refused
    open_at(page, "messages")
    page.locator("#select [name='target']").fill("orders")
    page.locator("#select button[value='count']").click()
    page.get_by_role("button", name="Cancel them").click()
    page.locator("#change-yes").click()
    give_token(page, "a-token")
    expect(page.locator("#selected")).to_contain_text(f"{_ORIGIN} was refused as limit-exceeded.")


def test_a_requeue_names_letters_that_were_not_read_and_keeps_its_new_time(page: Page, answers: Answers) -> None:
    final = ("bad-action", "bad-headers")
    group = {"reason": "expired", "count": 1, "targets": [], "newest_ms": 5, "oldest_ms": 5}
    dead_letter = {"origin": _ORIGIN, "id": None, "died_ms": 5, "reason": "expired", "target": "orders"}
    listed = {
        "topic": "requests",
        "groups": [group, *({**group, "reason": reason} for reason in final)],
        "letters": [dead_letter],
        "complete": False,
    }
    planned: dict[str, Any] = {"requeued": 1, "requeued_before": 0, "outcomes": [], "missing_targets": [], "with_id": 0}
    answers.by_path["dead-letters"] = 200, listed
    parts = {"complete": False, "has_more": False, "older_unread": True}
    answers.by_path["dead-letters/requeue"] = 200, planned | parts
    open_at(page, "letters")
    expect(page.locator("#groups button")).to_have_count(1)
    picture(page, "letters")
    page.get_by_role("button", name="Requeue those with expired").click()
    give_token(page, "a-token")
    region = page.locator("#requeue")
    expect(region).to_contain_text("There are older dead letters, which were not read.")
    expect(region).not_to_contain_text("Repeat it")
    answers.by_path["dead-letters/requeue"] = 400, {"error": "at is no time"}
    region.locator("input").fill("tomorrow")
    region.get_by_role("button", name="Check again").click()
    expect(region).to_contain_text("at is no time")
    expect(region.locator("input")).to_have_value("tomorrow")
