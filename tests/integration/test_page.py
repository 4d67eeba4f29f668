"""Goal: the page shows pending messages, their due times and past lateness. A user with the token can find a message,
cancel it, reschedule it or deliver it now. The page works on phone and desktop, in light and dark mode. Text of
producers never becomes markup. The refresh every three seconds loses no click and no typed text.

Method: a headless browser shows the page of two real processes. The test compares the page with the requests, and the
effect of its buttons with the topics. It controls the clock of the page if a refresh must happen during an action.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from postdate.wire.headers import AT, EVERY, ID, TOPIC, WINDOW
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Sent
from support.web.browser import DESK, PHONE, browser_page, check_layouts, open_view, picture
from support.web.http_steps import Client

_TOKEN = "the-token-of-this-test"  # noqa: S105
_EVIL = b"<img src=x onerror=document.title='evil'>"
_HALF_AN_HOUR_MS = 1_800_000
#: Milliseconds: the interval between two refreshes of the page.
_REFRESH_MS = 3_000


@pytest.fixture
def page() -> Iterator[Page]:
    with browser_page() as opened:
        yield opened


def send(
    deployment: SidecarDeployment, count: int, due_ms: int, step_ms: int, names: str, *more: tuple[str, bytes]
) -> list[Sent]:
    sender, sent = deployment.sender(), []
    for number in range(count):
        name, at_ms = f"{names}-{number}".encode(), due_ms + number * step_ms
        headers = [(TOPIC, deployment.targets[0].encode()), (AT, b"%d" % at_ms), (ID, name)]
        sent.append(sender.send(deployment.requests[0], Sent(deployment.targets[0], name, b"v", [*headers], at_ms)))
    headers = [(TOPIC, deployment.targets[0].encode()), (AT, b"%d" % due_ms), (ID, _EVIL), *more]
    sent.append(sender.send(deployment.requests[0], Sent(deployment.targets[0], _EVIL, b"v", [*headers], due_ms)))
    sender.flush()
    return sent


def start(deployment: SidecarDeployment, format_version: int = 2) -> list[Client]:
    """Starts two processes with two shards each, and returns clients of their APIs."""
    deployment.new_requests(4)
    deployment.new_target()
    (deployment.directory / "token").write_text(_TOKEN)
    clients = []
    for _ in range(2):
        sidecar = deployment.new_sidecar()
        sidecar.format_version = format_version
        clients.append(Client(free_port(), _TOKEN))
        sidecar.http = {"port": clients[-1].port, "token_file": str(deployment.directory / "token")}
        sidecar.start()
    for sidecar in deployment.sidecars:
        sidecar.wait_for_shards(2)
    return clients


def find(page: Page, query: str, shows: str) -> None:
    """Searches for an id or an origin, and waits until the result contains `shows`."""
    page.get_by_label("id, or origin").fill(query)
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#found")).to_contain_text(shows)


def test_the_page_shows_finds_stops_and_moves(deployment: SidecarDeployment, page: Page) -> None:
    clients = start(deployment)
    now_ms = int(time.time() * 1000)
    early = send(deployment, 5, now_ms, 0, "early")
    sent = send(deployment, 30, now_ms + _HALF_AN_HOUR_MS, 20_000, "order", (WINDOW, b"1m"))
    deployment.wait_for_ends(len(early))
    wait_until(lambda: clients[0].get("/api/v1/pending/count").json["count"] == len(sent), "all messages are pending")
    page.set_viewport_size(DESK)
    page.goto(f"http://127.0.0.1:{clients[0].port}/")
    expect(page.locator("#pending")).to_have_text("31")
    expect(page.locator("#load")).to_have_attribute("data-total", "31")
    expect(page.locator("#freshness")).to_have_text("4 shards, 2 processes")
    expect(page.locator("#shards tr")).to_have_count(4)
    expect(page.locator("#late")).to_contain_text("up to")
    page.get_by_role("button", name="two days").click()
    expect(page.locator("#load span")).to_have_count(48)
    page.get_by_role("button", name="next hour").click()

    open_view(page, "Messages")
    find(page, _EVIL.decode(), "onerror")
    expect(page.locator("#found")).to_contain_text(", in its window at ")
    expect(page.locator("#found img")).to_have_count(0)
    find(page, "order-4", sent[4].origin.decode())
    check_layouts(page, "page")

    change, token = page.locator("#change-dialog"), page.locator("#token-dialog")
    page.get_by_role("button", name="Cancel", exact=True).click()
    change.get_by_role("button", name="No").click()
    expect(change).to_be_hidden()
    page.set_viewport_size(PHONE)
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(change).to_be_visible()
    picture(page, "page-390-question")
    change.get_by_role("button", name="Cancel it").click()
    token.get_by_label("bearer token").fill(_TOKEN)
    token.get_by_role("button", name="Use token").click()
    expect(page.locator("#found")).to_contain_text(": cancelled")

    find(page, "order-5", sent[5].origin.decode())
    page.get_by_role("button", name="Reschedule").click()
    change.get_by_label("deliver at").fill(str(now_ms))
    change.get_by_role("button", name="Reschedule it").click()
    expect(page.locator("#found")).to_contain_text(": delivered")
    find(page, "order-6", sent[6].origin.decode())
    page.get_by_role("button", name="Deliver now").click()
    change.get_by_role("button", name="No").click()
    expect(change).to_be_hidden()
    expect(page.locator("#found")).to_contain_text("waiting")
    page.get_by_role("button", name="Deliver now").click()
    expect(change).to_contain_text("Deliver this message now?")
    expect(change.get_by_label("deliver at")).to_be_hidden()
    change.get_by_role("button", name="Deliver it").click()
    expect(page.locator("#found")).to_contain_text(": delivered")
    deployment.wait_for_ends(len(early) + 6)  # three controls and their messages
    find(page, sent[5].origin.decode(), ": delivered")
    wait_until(lambda: clients[1].get("/api/v1/pending/count").json["count"] == len(sent) - 3, "three are gone")
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
    assert _TOKEN not in kept
    expect(page).to_have_title("Messages · Postdate")


def test_a_schedule_is_paused_and_resumed(deployment: SidecarDeployment, page: Page) -> None:
    clients = start(deployment, format_version=3)
    headers = [(TOPIC, deployment.targets[0].encode()), (ID, b"nightly"), (EVERY, b"1h")]
    sender = deployment.sender()
    sent = sender.send(deployment.requests[0], Sent(deployment.targets[0], b"nightly", b"v", [*headers], 0))
    sender.flush()
    wait_until(lambda: clients[0].get("/api/v1/pending/count").json["count"] == 1, "the schedule is pending")
    page.goto(f"http://127.0.0.1:{clients[0].port}/#messages")
    change, token, found = (page.locator(selector) for selector in ("#change-dialog", "#token-dialog", "#found"))
    find(page, "nightly", sent.origin.decode())
    expect(found.get_by_role("button")).to_have_text(["Cancel", "Pause", "Trigger", "Backfill"])
    found.get_by_role("button", name="Pause").click()
    expect(change).to_contain_text("Pause this schedule?")
    change.get_by_role("button", name="Pause it").click()
    token.get_by_label("bearer token").fill(_TOKEN)
    token.get_by_role("button", name="Use token").click()
    expect(found).to_contain_text("paused by ")
    find(page, "nightly", "paused, due ")
    expect(found.get_by_role("button")).to_have_text(["Cancel", "Resume", "Trigger", "Backfill"])
    found.get_by_role("button", name="Resume").click()
    change.get_by_role("button", name="Resume it").click()
    expect(found).to_contain_text("resumed by ")
    expect(found.get_by_role("button")).to_have_text(["Cancel", "Pause", "Trigger", "Backfill"])


def test_no_answer_in_a_dialog_is_lost_and_no_late_answer_replaces_a_newer_one(
    deployment: SidecarDeployment, page: Page
) -> None:
    """An action is carried out if the user confirms it with the Enter key, or in a dialog that was closed and opened
    again within one frame. A late answer to an earlier search does not change the result of the current search."""
    clients = start(deployment)
    now_ms = int(time.time() * 1000)
    sent = send(deployment, 4, now_ms + _HALF_AN_HOUR_MS, 1_000, "order")
    wait_until(lambda: clients[0].get("/api/v1/pending/count").json["count"] == len(sent), "all messages are pending")
    page.goto(f"http://127.0.0.1:{clients[0].port}/#messages")
    expect(page.locator("#pending")).to_have_text("5")
    found, change, token = page.locator("#found"), page.locator("#change-dialog"), page.locator("#token-dialog")

    find(page, "order-0", sent[0].origin.decode())
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(change).to_be_visible()
    page.evaluate(
        "document.querySelector('#change-dialog [value=cancel]').click();"
        "document.querySelector('[data-action=cancel]').click();"
        "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
    )
    change.get_by_role("button", name="Cancel it").click()
    token.get_by_label("bearer token").fill(_TOKEN)
    token.get_by_label("bearer token").press("Enter")
    expect(found).to_contain_text(": cancelled")

    find(page, "order-1", sent[1].origin.decode())
    page.get_by_role("button", name="Reschedule").click()
    change.get_by_label("deliver at").fill(str(now_ms))
    change.get_by_label("deliver at").press("Enter")
    expect(found).to_contain_text(": delivered")

    held: list[Route] = []
    page.route(re.compile("id=order-2$"), lambda route: held.append(route))
    with page.expect_request(re.compile("id=order-2$")):
        page.get_by_label("id, or origin").fill("order-2")
        page.get_by_role("button", name="Find").click()
    find(page, "order-3", sent[3].origin.decode())
    found.get_by_role("button", name="Cancel", exact=True).evaluate("(button) => { button.dataset.seen = 'yes'; }")
    with page.expect_response(re.compile("id=order-2$")) as answered:
        held[0].continue_()
    answered.value.finished()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    expect(found.get_by_role("button", name="Cancel", exact=True)).to_have_attribute("data-seen", "yes")
    expect(found).to_contain_text(sent[3].origin.decode())


def test_a_refresh_loses_no_click_and_no_typed_text(deployment: SidecarDeployment, page: Page) -> None:
    clients = start(deployment)
    now_ms = int(time.time() * 1000)
    sent = send(deployment, 4, now_ms + _HALF_AN_HOUR_MS, 1_000, "order")
    wait_until(lambda: clients[0].get("/api/v1/pending/count").json["count"] == len(sent), "all messages are pending")
    page.clock.install()
    page.goto(f"http://127.0.0.1:{clients[0].port}/#messages")
    expect(page.locator("#pending")).to_have_text("5")

    def refresh() -> None:
        """Moves the clock of the page, which stands still otherwise, by one refresh."""
        page.locator("#pending").evaluate("(shown) => { shown.textContent = 'old'; }")
        page.clock.run_for(_REFRESH_MS)
        expect(page.locator("#pending")).to_have_text("5")

    page.clock.pause_at(time.time() + 60)
    what = page.get_by_label("id, or origin")
    what.press_sequentially("ord")
    refresh()
    what.press_sequentially("er-0")
    expect(what).to_have_value("order-0")

    def click_slowly(name: str) -> None:
        """Presses the mouse button, lets the page refresh, and releases the button."""
        page.get_by_role("button", name=name, exact=True).hover()
        page.mouse.down()
        refresh()
        page.mouse.up()

    click_slowly("Find")
    expect(page.locator("#found")).to_contain_text(sent[0].origin.decode())
    click_slowly("Reschedule")
    when = page.get_by_label("deliver at")
    when.fill("")
    when.press_sequentially(str(now_ms)[:5])
    refresh()
    when.press_sequentially(str(now_ms)[5:])
    expect(when).to_have_value(str(now_ms))
    click_slowly("Reschedule it")
    secret = page.get_by_label("bearer token")
    secret.press_sequentially(_TOKEN[:5])
    refresh()
    secret.press_sequentially(_TOKEN[5:])
    click_slowly("Use token")
    page.clock.resume()
    expect(page.locator("#found")).to_contain_text(": delivered")
