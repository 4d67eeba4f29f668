"""Goal: the views of the page list pending messages, show recurring schedules with their latest and next occurrences,
requeue dead letters, hold and release, and show the log of actions. A user can work with the keyboard alone, and a
refresh does not move the focus.

Method: a headless browser shows the page of two real processes. The test checks the effect of each action in the API
and on the topics.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Page, expect

from postdate.wire.headers import AT, CRON, EVERY, ID, TOPIC, ZONE, Headers
from support.brokers.broker import unique_name
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Sent
from support.waiting.timeouts import WAIT_TIMEOUT_S
from support.web.browser import browser_page, check_layouts, open_view
from support.web.http_steps import Client

_TOKEN = "the-token-of-this-test"  # noqa: S105
_HOUR_MS = 3_600_000
_REFRESH_MS = 3_000


@pytest.fixture
def page() -> Iterator[Page]:
    with browser_page() as opened:
        yield opened


def start(deployment: SidecarDeployment) -> list[Client]:
    """Starts two processes with one shard each, and returns clients of their APIs."""
    deployment.new_requests(2)
    deployment.new_target()
    deployment.new_target()
    (deployment.directory / "token").write_text(_TOKEN)
    clients = []
    for _ in range(2):
        sidecar = deployment.new_sidecar(
            dispatch={"retry_budget_ms": 300}, topic={"messages_per_second_max": [f"{deployment.targets[1]}=50"]}
        )
        sidecar.format_version = 3
        clients.append(Client(free_port(), _TOKEN))
        sidecar.http = {"port": clients[-1].port, "token_file": str(deployment.directory / "token")}
        sidecar.start()
    for sidecar in deployment.sidecars:
        sidecar.wait_for_shards(1)
    return clients


def send(deployment: SidecarDeployment, name: str, target: int, *more: tuple[str, bytes]) -> Sent:
    return send_to(deployment, deployment.targets[target], name, *more)


def send_to(deployment: SidecarDeployment, target: str, name: str, *more: tuple[str, bytes]) -> Sent:
    sender = deployment.sender()
    headers: Headers = [(TOPIC, target.encode()), (ID, name.encode()), *more]
    sent = sender.send(deployment.requests[0], Sent(target, name.encode(), b"v", headers, 0))
    sender.flush()
    return sent


def at(due_ms: int) -> tuple[str, bytes]:
    return AT, b"%d" % due_ms


def dead_letters(client: Client) -> dict[str, int]:
    """Returns the number of dead letters by reason."""
    return {group["reason"]: group["count"] for group in client.get("/api/v1/dead-letters").json["groups"]}


def create_target(deployment: SidecarDeployment, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_TIMEOUT_S)


def give_token(page: Page) -> None:
    token = page.locator("#token-dialog")
    token.get_by_label("bearer token").fill(_TOKEN)
    token.get_by_role("button", name="Use token").click()


def confirm(page: Page, question: str, button: str) -> None:
    change = page.locator("#change-dialog")
    expect(change).to_contain_text(question)
    change.get_by_role("button", name=button).click()


def test_pending_messages_are_listed_by_target_and_time(deployment: SidecarDeployment, page: Page) -> None:
    clients = start(deployment)
    soon_ms = int(time.time() * 1000) + _HOUR_MS
    for number in range(55):
        send(deployment, f"order-{number:02}", 0, at(soon_ms + number * 1_000))
    for number in range(3):
        send(deployment, f"mail-{number}", 1, at(soon_ms + number * _HOUR_MS))
    wait_until(lambda: clients[0].get("/api/v1/pending/count").json["count"] == 58, "all messages are pending")
    page.goto(f"http://127.0.0.1:{clients[0].port}/#messages")
    form, rows, count = page.locator("#select"), page.locator("#listed tr"), page.locator("#listed-count")
    expect(count).to_contain_text("50 messages, more follow")
    more = page.get_by_role("button", name="Show more")
    more.click()
    expect(count).to_contain_text("58 messages, as of")
    expect(rows).to_have_count(58)
    expect(rows.nth(50).get_by_role("button")).to_be_focused()
    expect(more).to_be_hidden()
    dues = rows.locator("td:first-child").all_inner_texts()
    assert dues == sorted(dues)

    form.get_by_label("target").fill(deployment.targets[1])
    form.get_by_label("due before").fill("90m")
    form.get_by_role("button", name="List").click()
    expect(count).to_contain_text("1 message, as of")
    expect(rows).to_contain_text(["mail-0"])
    form.get_by_label("target").fill("")
    form.get_by_label("due before").fill("")
    form.get_by_label("id begins with").fill("order-5")
    form.get_by_label("id begins with").press("Enter")
    expect(count).to_contain_text("5 messages, as of")
    form.get_by_label("key").fill("no such key")
    form.get_by_role("button", name="List").click()
    expect(count).to_contain_text("0 messages, as of")
    form.get_by_label("key").fill("")
    form.get_by_role("button", name="List").click()
    expect(count).to_contain_text("5 messages, as of")
    check_layouts(page, "page-messages")
    rows.get_by_role("button", name="order-52").click()
    expect(page.locator("#found")).to_contain_text("order-52")
    expect(page.locator("#found")).to_be_focused()
    page.locator("#found").get_by_role("button", name="Cancel").click()
    confirm(page, "Cancel this message?", "Cancel it")
    give_token(page)
    expect(page.locator("#found")).to_contain_text(": cancelled")
    expect(page.locator("#found")).to_be_focused()
    open_view(page, "Log")
    page.locator("#actions").get_by_role("button").click()
    expect(page.locator("#found")).to_contain_text("id order-52")


def test_schedules_are_found_shown_and_controlled(deployment: SidecarDeployment, page: Page) -> None:
    clients = start(deployment)
    send(deployment, "order", 0, at(int(time.time() * 1000) + _HOUR_MS))
    send(deployment, "beat", 0, (EVERY, b"1s"))
    nightly = send(deployment, "nightly", 1, (CRON, b"30 9 * * *"), (ZONE, b"Asia/Kolkata"))
    send(deployment, "night-shift", 1, (EVERY, b"12h"))
    wait_until(lambda: clients[0].get("/api/v1/pending/count").json["count"] == 4, "all messages are pending")
    page.goto(f"http://127.0.0.1:{clients[0].port}/")
    open_view(page, "Schedules")
    count, lanes, shown = (page.locator(selector) for selector in ("#schedules-count", "#lanes > li", "#schedule"))
    expect(count).to_contain_text("3 schedules, as of")
    expect(lanes).to_have_count(3)
    for text in ("every 1s", "every 12h", "At 09:30 every day (30 9 * * *, Asia/Kolkata)"):
        expect(lanes.filter(has_text=text)).to_have_count(1)
    night = page.get_by_role("listitem").filter(has_text="nightly")
    assert night.locator(".lane i").count() in (6, 7), "the strip begins with the present hour"
    page.get_by_role("button", name="28 days").click()
    expect(night.locator(".lane i")).to_have_count(10)
    expect(night.locator(".lane b")).to_have_count(1)
    expect(night.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"04:00:00Z, .*, and more$"))

    form = page.locator("#schedules-form")
    form.get_by_label("id begins with").fill("nigh")
    form.get_by_label("id begins with").press("Enter")
    expect(count).to_contain_text("2 schedules, as of")
    page.get_by_role("button", name="nightly").click()
    expect(shown).to_contain_text("active, at 09:30 every day (30 9 * * *, Asia/Kolkata)")
    upcoming = shown.get_by_role("table", name="Next 10")
    expect(upcoming.locator("tbody tr")).to_have_count(10)
    expect(upcoming).to_contain_text("04:00:00Z")
    expect(upcoming).to_contain_text("09:30:00")
    expect(shown).to_contain_text("no occurrence yet")

    shown.get_by_role("button", name="Pause").click()
    confirm(page, "Pause this schedule?", "Pause it")
    give_token(page)
    expect(shown).to_contain_text("paused, at 09:30")
    expect(night.locator(".next")).to_have_text("paused")
    expect(shown.get_by_role("table", name="Next, once it is resumed")).to_be_visible()
    shown.get_by_role("button", name="Resume").click()
    confirm(page, "Resume this schedule?", "Resume it")
    expect(shown).to_contain_text("active, at 09:30")
    shown.get_by_role("button", name="Trigger").click()
    confirm(page, "Deliver this schedule once more, now?", "Trigger it")
    expect(shown).to_contain_text("triggered by ")
    shown.get_by_role("button", name="Backfill").click()
    page.locator("#change-dialog").get_by_label("each nominal time from").fill("-48h")
    confirm(page, "Deliver this schedule again for times that have passed?", "Backfill it")
    expect(shown).to_contain_text("backfilled until ")
    shown.get_by_role("button", name="Backfill").click()
    page.locator("#change-dialog").get_by_label("each nominal time from").fill("2020-01-01T00:00:00Z")
    page.locator("#change-dialog").get_by_label("to, included").fill("2020-01-01T01:00:00Z")
    page.locator("#change-dialog").get_by_role("button", name="Backfill it").click()
    expect(shown).to_contain_text(" was refused")
    page.get_by_role("button", name="nightly").click()
    expect(shown).to_contain_text("active, at 09:30")

    form.get_by_label("id begins with").fill("")
    form.get_by_role("button", name="List").click()
    page.get_by_role("button", name="beat").click()
    expect(shown.get_by_role("table", name="Latest, newest first")).to_contain_text("delivered")
    check_layouts(page, "page-schedules")
    page.get_by_role("button", name="nightly").click()
    expect(shown).to_contain_text("Asia/Kolkata")
    shown.get_by_role("button", name="Cancel").click()
    confirm(page, "All its occurrences end.", "Cancel it")
    expect(shown).to_contain_text(f"{nightly.origin.decode()}: cancelled")
    expect(night).to_have_count(0)


def test_dead_letters_are_grouped_and_requeued(deployment: SidecarDeployment, page: Page) -> None:
    clients = start(deployment)
    missing = unique_name("missing")
    origins = [send_to(deployment, missing, f"lost-{number}", (AT, b"1")).origin.decode() for number in range(3)]
    send(deployment, "bad", 0, (AT, b"soon"))
    wait_until(lambda: dead_letters(clients[0]) == {"unknown-target": 3, "bad-time": 1}, "all four have died")
    page.goto(f"http://127.0.0.1:{clients[0].port}/")
    open_view(page, "Dead letters")
    groups, plan = page.locator("#groups tr"), page.locator("#requeue")
    expect(groups).to_contain_text([f"{missing}: 3", "not shown: 1"])
    expect(page.locator("#letters tr")).to_have_count(4)
    expect(page.locator("#letters")).not_to_contain_text("soon")

    page.get_by_role("button", name="Requeue those with unknown-target").click()
    give_token(page)
    expect(plan).to_contain_text("unknown-target: 3 dead letters can be requeued")
    expect(plan).to_contain_text(f"do not exist: {missing}")
    expect(plan).to_be_focused()
    check_layouts(page, "page-letters")
    create_target(deployment, missing)
    plan.get_by_role("button", name="Requeue 3").click()
    confirm(page, "Requeue 3 dead letters?", "No")
    assert clients[0].get("/api/v1/pending/count").json["count"] == 0
    plan.get_by_label("new time for all").fill("1h")
    plan.get_by_role("button", name="Requeue 3").click()
    confirm(page, "due at 1h", "Requeue them")
    expect(plan).to_contain_text("3 dead letters requeued")
    for origin in origins:
        expect(plan).to_contain_text(f"{origin} is now ")
    wait_until(lambda: clients[1].get("/api/v1/pending/count").json["count"] == 3, "they are pending again")
    page.get_by_role("button", name="Requeue those with unknown-target").click()
    expect(plan).to_contain_text("no dead letter can be requeued")
    expect(plan).to_contain_text("3 dead letters had been requeued before.")

    page.get_by_role("button", name="Requeue those with bad-time").click()
    expect(plan).to_contain_text("1 dead letter cannot be requeued: it would be refused again: bad-time.")
    plan.get_by_label("new time for all").fill("2h")
    plan.get_by_role("button", name="Check again").click()
    expect(plan).to_contain_text("bad-time: 1 dead letter can be requeued")
    page.locator("#letters").get_by_role("button", name="lost-1").click()
    expect(page.locator("#found")).to_contain_text(f"{origins[1]}: dead")


def test_holds_are_set_and_released_with_the_keyboard_alone(deployment: SidecarDeployment, page: Page) -> None:
    clients = start(deployment)
    target = deployment.targets[0]
    page.clock.install()
    page.goto(f"http://127.0.0.1:{clients[0].port}/")
    expect(page.locator("#freshness")).to_have_text("2 shards, 2 processes")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(6):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Holds and rates")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Holds and rates", exact=True)).to_be_focused()
    expect(page.locator("#rates")).to_contain_text("50")

    page.keyboard.press("Tab")
    expect(page.get_by_label("what")).to_be_focused()
    page.keyboard.type("one")
    page.keyboard.press("Tab")
    page.keyboard.type(target[:5])
    page.clock.run_for(_REFRESH_MS)
    page.keyboard.type(target[5:])
    page.keyboard.press("Tab")
    expect(page.get_by_label("where").locator("option")).to_have_count(3)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    change = page.locator("#change-dialog")
    expect(change).to_contain_text(f"Hold the target {target}?")
    page.keyboard.press("Escape")
    expect(change).to_be_hidden()
    expect(page.get_by_role("button", name="Hold", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(change.get_by_role("button", name="No")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("bearer token")).to_be_focused()
    page.keyboard.type(_TOKEN)
    page.keyboard.press("Tab")
    page.keyboard.type("Ann Müller")
    page.keyboard.press("Enter")
    expect(page.locator("#hold-result")).to_contain_text(f"Held the target {target} on 2 shards.")
    held = [shard["held"] for shard in clients[1].get("/api/v1/shards").json["shards"]]
    assert held == [[f"target {target}"]] * 2
    release = page.get_by_role("button", name=f"Release target {target}")
    expect(page.locator("#holds")).to_contain_text("all 2")
    check_layouts(page, "page-holds")

    release.focus()
    page.clock.run_for(_REFRESH_MS)
    expect(release).to_be_focused()
    page.keyboard.press("Enter")
    expect(change).to_contain_text(f"Release the target {target}?")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#holds-none")).to_have_text("Nothing is held.")
    expect(page.locator("#hold-result")).to_be_focused()
    assert all(not shard["held"] for shard in clients[1].get("/api/v1/shards").json["shards"])

    open_view(page, "Log")
    rows = page.locator("#actions tr")
    expect(rows).to_have_count(2)
    expect(rows).to_contain_text([f"Ann Müller127.0.0.1releasetarget {target}2 shards changed", "hold"])
    expect(page.locator("#actions-count")).not_to_contain_text("did not answer")
    check_layouts(page, "page-log")
    actions = clients[1].get("/api/v1/actions").json["actions"]
    assert [(action["action"], action["who"], action["answer"]["shards"]) for action in actions] == [
        ("release", "Ann Müller", 2),
        ("hold", "Ann Müller", 2),
    ], "another process shows each action once, too"
