"""Goal: one command counts all messages of a customer or a target, and another cancels them, even if the sidecar is
killed in the middle. The counts are exact, no selected message is delivered, and all other messages are.

Method: a real sidecar serves two partitions with thousands of messages. The test compares the counts of the commands
with the requests and with the dispatch log.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from postdate.wire.dispatch_log import BulkCancelled, BulkProgress, decode_record
from postdate.wire.headers import AT, ID, TOPIC, Headers
from support.deployments.command import call_postdate
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, wait_until
from support.oracles.exactly_once import Sent
from support.web.browser import DESK, PHONE, browser_page, check_layout, open_view
from support.web.http_steps import Client

_TOKEN = "the-token-of-this-test"  # noqa: S105
_COUNT = 12_000
_HOUR_MS = 3_600_000


def start(deployment: SidecarDeployment) -> tuple[Sidecar, Client, Path]:
    """Starts a process that serves two shards. Returns it, a client of its API and a configuration for the commands."""
    deployment.new_requests(2)
    deployment.new_target()
    deployment.new_target()
    token = deployment.directory / "token"
    token.write_text(_TOKEN)
    sidecar = deployment.new_sidecar(static=True)
    sidecar.format_version = 2
    client = Client(free_port(), _TOKEN)
    sidecar.http = {"port": client.port, "token_file": str(token)}
    sidecar.start()
    sidecar.wait_for_shards(2)
    config = deployment.directory / "client.toml"
    config.write_text("format_version = 2\n")
    return sidecar, client, config


def send(deployment: SidecarDeployment, target: str, count: int, due_ms: int, name: str = "") -> list[Sent]:
    """Sends messages without an id, or with ids that begin with `name`, and returns them."""
    sender, sent = deployment.sender(), []
    for number in range(count):
        key = f"{name}{number}".encode()
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), *([(ID, key)] if name else [])]
        sent.append(sender.send(deployment.requests[0], Sent(target, key, b"v", headers, due_ms)))
    sender.flush()
    return sent


def cancel(deployment: SidecarDeployment, config: Path, *options: str) -> dict[str, int]:
    """Runs `postdate cancel`, and returns the count of each of its controls, by origin."""
    return control(deployment, config, "cancel", *options)


def control(deployment: SidecarDeployment, config: Path, action: str, *options: str) -> dict[str, int]:
    """Runs a bulk control, and returns the count of each of its controls, by origin."""
    command = [
        action,
        "-b",
        deployment.bootstrap,
        "--requests",
        deployment.requests[0],
        "--config",
        str(config),
        "--output",
        "json",
    ]
    done = call_postdate(*command, *options, "--wait-verdict", "--timeout", "2m")
    assert done.exit_code == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {answer["verdict"] for answer in answers} == {"applied"}
    return {answer["origin"]: answer["count"] for answer in answers}


def dry_run(deployment: SidecarDeployment, client: Client, config: Path, *options: str) -> dict[str, int]:
    """Runs `postdate cancel --dry-run`, and returns its counts by target."""
    common = ["--url", f"http://127.0.0.1:{client.port}", "--requests", deployment.requests[0], "--config", str(config)]
    done = call_postdate("cancel", *common, *options, "--dry-run", "--output", "json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["exact"] is True
    counts: dict[str, int] = answer["targets"]
    return counts


def in_log(deployment: SidecarDeployment) -> tuple[Counter[str], dict[str, int], int]:
    """Returns the cancelled messages by control, the last count of each control, and the number of transactions."""
    ended: Counter[str] = Counter()
    last: dict[str, int] = {}
    steps = 0
    reader = deployment.reader(f"{deployment.requests[0]}.dispatch-log")
    try:
        for seen in reader.to_end():
            for fate in decode_record(seen.value).fates:
                if isinstance(fate, BulkCancelled):
                    ended[f"{deployment.requests[0]}/{seen.partition}/{fate.control}"] += 1
                elif isinstance(fate, BulkProgress):
                    last[f"{deployment.requests[0]}/{seen.partition}/{fate.offset}"] = fate.count
                    steps += 1
    finally:
        reader.close()
    return ended, last, steps


@pytest.mark.parametrize("is_killed", [False, True])
def test_all_messages_for_a_target_are_cancelled_and_no_other(deployment: SidecarDeployment, is_killed: bool) -> None:
    sidecar, client, config = start(deployment)
    chosen, other = deployment.targets
    later_ms = int(time.time() * 1000) + _HOUR_MS
    send(deployment, chosen, _COUNT, later_ms)
    kept = send(deployment, other, 50, int(time.time() * 1000) + 20_000)
    beyond = send(deployment, chosen, 20, later_ms + _HOUR_MS)
    wait_until(lambda: client.get("/api/v1/pending/count").json["count"] >= _COUNT + 20, "all messages are pending")
    selectors = ["--target", chosen, "--until", str(later_ms + 1)]
    assert dry_run(deployment, client, config, *selectors) == {chosen: _COUNT}
    if is_killed:
        sidecar.failpoints = "dispatch.committed=kill@7"
        sidecar.kill()
        sidecar.start()
        sidecar.wait_for_shards(2)
        sidecar.failpoints = ""
    counts = (
        cancel_beside_a_restart(deployment, sidecar, config, selectors)
        if is_killed
        else cancel(deployment, config, *selectors)
    )
    assert sum(counts.values()) == _COUNT
    ended, last, steps = in_log(deployment)
    assert ended == counts == last
    assert steps >= _COUNT // 2_000
    deployment.wait_for_ends(_COUNT + len(counts) + len(kept))
    assert dry_run(deployment, client, config, "--target", chosen) == {chosen: len(beyond)}


def cancel_beside_a_restart(
    deployment: SidecarDeployment, sidecar: Sidecar, config: Path, selectors: list[str]
) -> dict[str, int]:
    """Runs `cancel` while a failpoint kills the process, and starts the process again."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(cancel, deployment, config, *selectors)
        wait_until(lambda: not sidecar.is_alive(), "the process dies in the middle")
        sidecar.start()
        return future.result()


def test_a_customer_is_forgotten_with_one_command(deployment: SidecarDeployment) -> None:
    _, client, config = start(deployment)
    due_ms = int(time.time() * 1000) + _HOUR_MS
    for target in deployment.targets:
        send(deployment, target, 30, due_ms, f"customer-7/{target}/")
        send(deployment, target, 30, due_ms, f"customer-70/{target}/")
    wait_until(lambda: client.get("/api/v1/pending/count").json["count"] == 120, "all messages are pending")
    assert dry_run(deployment, client, config, "--id-prefix", "customer-7/") == dict.fromkeys(
        sorted(deployment.targets), 30
    )
    assert sum(cancel(deployment, config, "--id-prefix", "customer-7/").values()) == 60
    assert client.get("/api/v1/pending/selected?id_prefix=customer-7").json["count"] == 60


def test_messages_of_a_key_are_delivered_now_and_those_of_a_target_moved(deployment: SidecarDeployment) -> None:
    _, client, config = start(deployment)
    soon, other = deployment.targets
    due_ms = int(time.time() * 1000) + _HOUR_MS
    sent = send(deployment, soon, 300, due_ms)
    send(deployment, other, 300, due_ms)
    wait_until(lambda: client.get("/api/v1/pending/count").json["count"] == 600, "all messages are pending")
    assert sum(control(deployment, config, "reschedule", "--by", "2h", "--target", other).values()) == 300
    late = dry_run(
        deployment, client, config, "--from", str(due_ms + 2 * _HOUR_MS), "--until", str(due_ms + 2 * _HOUR_MS + 1)
    )
    assert late == {other: 300}
    assert sum(control(deployment, config, "deliver", "--key", "7", "--target", soon).values()) == 1
    assert sum(control(deployment, config, "deliver", "--target", soon).values()) == 299
    deployment.wait_for_ends(300 + 3 * 2)
    seen = deployment.reader(soon).to_end()
    assert {record.origin for record in seen} == {request.origin for request in sent}
    assert all(int(record.last("postdate-due")) < due_ms for record in seen)


def test_the_page_counts_confirms_and_cancels(deployment: SidecarDeployment) -> None:
    _, client, _ = start(deployment)
    send(deployment, deployment.targets[0], 40, int(time.time() * 1000) + _HOUR_MS, "order-")
    send(deployment, deployment.targets[1], 5, int(time.time() * 1000) + _HOUR_MS, "mail-")
    wait_until(lambda: client.get("/api/v1/pending/count").json["count"] == 45, "all messages are pending")
    with browser_page() as page:
        page.goto(f"http://127.0.0.1:{client.port}/")
        expect(page.locator("#pending")).to_have_text("45")
        open_view(page, "Messages")
        form, selected, question = page.locator("#select"), page.locator("#selected"), page.locator("#change-dialog")
        form.get_by_role("button", name="Count").click()
        expect(selected).to_contain_text("Fill in at least one field.")
        form.get_by_label("target").fill(deployment.targets[0])
        form.get_by_role("button", name="Count").click()
        expect(selected).to_contain_text(f"{deployment.targets[0]}: 40")
        for size in (PHONE, DESK):
            check_layout(page, size, "light", "page-select")
        selected.get_by_role("button", name="Cancel them").click()
        expect(question).to_contain_text("Cancel 40 messages?")
        question.get_by_role("button", name="No").click()
        assert client.get("/api/v1/pending/count").json["count"] == 45
        selected.get_by_role("button", name="Cancel them").click()
        question.get_by_role("button", name="Cancel them").click()
        page.locator("#token-dialog").get_by_label("bearer token").fill(_TOKEN)
        page.locator("#token-dialog").get_by_role("button", name="Use token").click()
        expect(selected).to_contain_text("40 messages cancelled")
    assert client.get("/api/v1/pending/count").json["count"] == 5
