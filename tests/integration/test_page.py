"""Goal: a person sees on the page what is pending, when it comes and how late it was, finds a message, stops one and
moves another, with the token and not without; on a phone and on a desk, by day and by night; and nothing a producer
wrote is ever markup.

Method: a real browser without a window, over two real processes. What the page says is compared with what was sent, and
what it did with the topics.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.connectors.wire.headers import AT, ID, TOPIC
from support.bed import Bed
from support.browser import Page, browser_page
from support.http_steps import Client, free_port
from support.oracle import Sent
from support.sidecars import wait_until

_TOKEN = "the-token-of-this-test"  # noqa: S105
_EVIL = b"<img src=x onerror=document.title='evil'>"
_HALF_AN_HOUR_MS = 1_800_000
#: Where to put pictures of the page for a person to look at; none are taken without it.
_PICTURES = os.environ.get("POSTDATE_TEST_PICTURES", "")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser_page(tmp_path / "profile") as opened:
        yield opened


def send(bed: Bed, count: int, due_ms: int, step_ms: int, names: str) -> list[Sent]:
    sender, sent = bed.sender(), []
    for number in range(count):
        name, at_ms = f"{names}-{number}".encode(), due_ms + number * step_ms
        given = [(TOPIC, bed.targets[0].encode()), (AT, b"%d" % at_ms), (ID, name)]
        sent.append(sender.send(bed.requests[0], Sent(bed.targets[0], name, b"v", [*given], at_ms)))
    given = [(TOPIC, bed.targets[0].encode()), (AT, b"%d" % due_ms), (ID, _EVIL)]
    sent.append(sender.send(bed.requests[0], Sent(bed.targets[0], _EVIL, b"v", [*given], due_ms)))
    sender.flush()
    return sent


def start(bed: Bed) -> list[Client]:
    """Two processes with two shards each."""
    bed.new_requests(4)
    bed.new_target()
    (bed.directory / "token").write_text(_TOKEN)
    clients = []
    for _ in range(2):
        sidecar = bed.new_sidecar()
        clients.append(Client(free_port(), _TOKEN))
        sidecar.http = {"port": clients[-1].port, "token_file": str(bed.directory / "token")}
        sidecar.start()
    for sidecar in bed.sidecars:
        sidecar.wait_for_shards(2)
    return clients


def find(page: Page, what: str, shows: str) -> None:
    """Look for an id or an origin, and wait for what must be shown; what was shown before does not count."""
    page.fill("#what", what)
    page.run("document.querySelector('#found').replaceChildren(); document.querySelector('#find button').click()")
    page.wait_for(f"document.querySelector('#found').innerText.includes({shows!r})", f"{what} is found")


def confirm(page: Page) -> None:
    page.wait_for("document.querySelector('#change-dialog').open", "the page asks whether it is meant")
    if _PICTURES:
        page.photograph(Path(_PICTURES) / "page-390-question.png")
    page.click("#change-yes")


def fits(page: Page, width: int, scheme: str) -> None:
    """Nothing sticks out on a screen of this width; text and ground differ in the scheme."""
    page.size(width, 900, scheme)
    wide = page.run("document.documentElement.scrollWidth")
    assert wide <= width, f"{wide} px on a screen of {width}"
    ground = page.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
    ink = page.run("getComputedStyle(document.body).color.match(/\\d+/g).slice(0, 3).map(Number)")
    assert (sum(ground) > sum(ink)) == (scheme == "light")
    if _PICTURES:
        page.photograph(Path(_PICTURES) / f"page-{width}-{scheme}.png")


def test_the_page_shows_finds_stops_and_moves(bed: Bed, page: Page) -> None:
    clients = start(bed)
    now_ms = int(time.time() * 1000)
    early = send(bed, 5, now_ms, 0, "early")
    sent = send(bed, 30, now_ms + _HALF_AN_HOUR_MS, 20_000, "order")
    bed.wait_for_ends(len(early))
    wait_until(lambda: clients[0].get("/api/v1/pending/count").json["count"] == len(sent), "everything is held")
    page.size(1280, 900, "light")
    page.open(f"http://127.0.0.1:{clients[0].port}/")
    page.wait_for("document.querySelector('#pending')?.innerText === '31'", "all that is pending is shown")
    page.wait_for("document.querySelector('#load').dataset.total === '31'", "the load ahead is drawn")
    page.wait_for("document.querySelector('#freshness').innerText === '4 shards, 2 processes'", "all is fresh")
    page.wait_for("document.querySelectorAll('#shards tr').length === 4", "each shard has a row")
    page.wait_for("/^up\\s+to\\b/.test(document.querySelector('#late').innerText)", "it tells how late messages were")
    page.click("[data-load='1']")
    assert page.run("document.querySelectorAll('#load span').length") == 48
    page.click("[data-load='0']")

    find(page, _EVIL.decode(), "onerror")
    assert page.run("document.querySelectorAll('#found img').length") == 0
    find(page, "order-4", sent[4].origin.decode())
    for width in (390, 1280):
        for scheme in ("dark", "light"):
            fits(page, width, scheme)

    page.click("[data-action='cancel']")
    page.wait_for("document.querySelector('#change-dialog').open", "the page asks whether it is meant")
    page.click("#change-dialog [value='cancel']")
    page.wait_for("!document.querySelector('#change-dialog').open", "it was not meant")
    page.size(390, 700, "light")
    page.click("[data-action='cancel']")
    confirm(page)
    page.wait_for("document.querySelector('#token-dialog').open", "a change needs the token")
    page.fill("#token", _TOKEN)
    page.click("#token-dialog [value='ok']")
    page.wait_for("document.querySelector('#found').innerText.includes(': cancelled')", "the life shows the end")

    find(page, "order-5", sent[5].origin.decode())
    page.click("[data-action='reschedule']")
    page.wait_for("document.querySelector('#change-dialog').open", "the page asks for a time")
    page.fill("#when", str(now_ms))
    page.click("#change-yes")
    page.wait_for(
        "document.querySelector('#found').innerText.includes(': delivered')", "the move is followed to its end"
    )
    bed.wait_for_ends(len(early) + 4)  # two controls, and what they were for
    find(page, sent[5].origin.decode(), ": delivered")
    wait_until(lambda: clients[1].get("/api/v1/pending/count").json["count"] == len(sent) - 2, "two are gone")
    kept = page.run("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
    assert _TOKEN not in kept
    assert page.run("document.title") == "Postdate"
    assert page.complaints == []


def test_no_answer_in_a_dialog_is_lost_and_no_late_answer_replaces_a_newer_one(bed: Bed, page: Page) -> None:
    """What is confirmed with the Enter key, or in a dialog that was closed and opened again within one frame, happens;
    the answer to an earlier search, which comes late, changes nothing below the search that is shown."""
    clients = start(bed)
    now_ms = int(time.time() * 1000)
    sent = send(bed, 4, now_ms + _HALF_AN_HOUR_MS, 1_000, "order")
    wait_until(lambda: clients[0].get("/api/v1/pending/count").json["count"] == len(sent), "everything is held")
    page.size(1280, 900, "light")
    page.open(f"http://127.0.0.1:{clients[0].port}/")
    page.wait_for("document.querySelector('#pending')?.innerText === '5'", "all that is pending is shown")

    find(page, "order-0", sent[0].origin.decode())
    page.click("[data-action='cancel']")
    page.wait_for("document.querySelector('#change-dialog').open", "the page asks whether it is meant")
    dismiss = "document.querySelector('#change-dialog [value=cancel]').click()"
    page.run(f"{dismiss}; document.querySelector('[data-action=cancel]').click()")
    page.wait_for("new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true))))", "a frame passes")
    page.click("#change-yes")
    page.wait_for("document.querySelector('#token-dialog').open", "a change needs the token")
    page.fill("#token", _TOKEN)
    page.press_enter("#token")
    page.wait_for("document.querySelector('#found').innerText.includes(': cancelled')", "the life shows the end")

    find(page, "order-1", sent[1].origin.decode())
    page.click("[data-action='reschedule']")
    page.wait_for("document.querySelector('#change-dialog').open", "the page asks for a time")
    page.fill("#when", str(now_ms))
    page.press_enter("#when")
    page.wait_for("document.querySelector('#found').innerText.includes(': delivered')", "the life shows the end")

    page.run(
        "(() => { const real = window.fetch; window.fetch = (path, options) => !path.endsWith('order-2') ? "
        "real(path, options) : new Promise((done) => { window.answerLate = () => done(real(path, options)); }); })()"
    )
    page.fill("#what", "order-2")
    page.click("#find button")
    page.wait_for("Boolean(window.answerLate)", "the first search is sent")
    find(page, "order-3", sent[3].origin.decode())
    page.run("document.querySelector('#found [data-action=cancel]').dataset.seen = 'yes'; window.answerLate()")
    page.wait_for("fetch('/api/v1/pending?id=order-1').then((answer) => answer.ok)", "a later question is answered")
    page.wait_for("new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true))))", "a frame passes")
    assert page.run("document.querySelector('#found [data-action=cancel]').dataset.seen") == "yes"
    assert sent[3].origin.decode() in page.text("#found")
    assert page.complaints == []
