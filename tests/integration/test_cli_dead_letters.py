"""Goal: `postdate dead-letters requeue` requeues each dead letter once, with its id, and the message is delivered. A
second run repeats nothing, even if another producer has an open transaction.

Method: a real sidecar with a short retry budget for missing targets serves a real broker. The commands run as processes
or in this process, and a read_committed consumer reads the deliveries.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from postdate.cli import postdate as program
from postdate.sidecar.dead_letters import reading
from postdate.sidecar.errors import Exit
from postdate.wire.headers import ORIGIN, Headers
from support.brokers.broker import unique_name
from support.deployments.command import command_output
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import postdate, wait_until
from support.waiting.rounds import LONGER, expect, first_round_in_time
from support.waiting.timeouts import WAIT_TIMEOUT_S

BUDGET_MS = 300


@pytest.fixture
def requests(deployment: SidecarDeployment) -> str:
    """A request topic of four partitions that a sidecar serves."""
    name = deployment.new_requests(4)
    sidecar = deployment.new_sidecar(dispatch={"retry_budget_ms": BUDGET_MS})
    sidecar.start()
    sidecar.wait_for_shards(4)
    return name


def send(deployment: SidecarDeployment, requests: str, target: str, *options: str) -> str:
    """Sends a request with the command, and returns its origin."""
    return command_output(
        "send", "-b", deployment.bootstrap, "--requests", requests, "--topic", target, *options
    ).strip()


def listed(deployment: SidecarDeployment, requests: str, *options: str) -> dict[str, dict[str, object]]:
    output = command_output(
        "dead-letters", "list", "-b", deployment.bootstrap, "--requests", requests, "--output", "json", *options
    )
    return {dead_letter["origin"]: dead_letter for dead_letter in map(json.loads, output.splitlines())}


def requeued(deployment: SidecarDeployment, requests: str, *options: str) -> dict[str, tuple[str, str | None]]:
    common = ["-b", deployment.bootstrap, "--requests", requests, "--output", "json"]
    output = command_output("dead-letters", "requeue", *common, *options)
    return {row["origin"]: (row["status"], row["now"]) for row in map(json.loads, output.splitlines())}


def put_back(deployment: SidecarDeployment, requests: str, *options: str) -> dict[str, str]:
    """Requeues all selected dead letters, and returns the origin of the new request by the origin of the old one."""
    rows = requeued(deployment, requests, "--apply", *options)
    assert {status for status, _ in rows.values()} == {"put-back"}
    return {origin: now for origin, (_, now) in rows.items() if now is not None}


def create(deployment: SidecarDeployment, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_TIMEOUT_S)
    deployment.targets.append(topic)


def test_dead_letters_of_a_missing_target_are_delivered_after_requeue(
    deployment: SidecarDeployment, requests: str
) -> None:
    target, other = unique_name("missing"), unique_name("missing")
    message = ["--delay", "10ms", "-H", "a=1", "-H", "a", "--value", "pay!"]
    plain = send(deployment, requests, target, *message, "--key", "k")
    named = send(deployment, requests, target, *message, "--key", "k", "--id", "order-9")
    elsewhere = send(deployment, requests, other, *message)
    wait_until(lambda: len(listed(deployment, requests)) == 3, "all three are dead letters")
    dead_letters = listed(deployment, requests, "--target", target, "--reason", "unknown-target")
    assert set(dead_letters) == {plain, named}
    assert dead_letters[named]["id"] == "order-9"

    create(deployment, target)
    chosen = ["--target", target]
    assert requeued(deployment, requests, *chosen) == dict.fromkeys([plain, named], ("would-be-put-back", None))
    done = put_back(deployment, requests, *chosen)
    assert all(now.split("/")[:2] == origin.split("/")[:2] for origin, now in done.items()), "the same partition"

    reader = deployment.reader(target)
    reader.until(lambda: len(reader.records) == 2, "both are delivered")
    again = requeued(deployment, requests, *chosen, "--apply")
    assert again == {origin: ("put-back-before", now) for origin, now in done.items()}
    deployment.wait_for_ends(5)
    assert len(reader.to_end()) == 2, "once each"
    reader.close()
    data: Headers = [("a", b"1"), ("a", None)]
    for seen in reader.records:
        assert (seen.key, seen.value, seen.headers[:2]) == (b"k", b"pay!", data)
        assert [name for name, _ in seen.headers].count(ORIGIN) == 1
    assert {seen.origin.decode() for seen in reader.records} == {*done.values()}
    assert set(listed(deployment, requests)) == {plain, named, elsewhere}, "the dead letters stay on their topic"


def test_a_requeued_message_can_be_cancelled_by_its_id(deployment: SidecarDeployment, requests: str) -> None:
    target = unique_name("missing")
    origin = send(deployment, requests, target, "--delay", "10ms", "--id", "order-9")
    wait_until(lambda: origin in listed(deployment, requests), "it is a dead letter")
    create(deployment, target)
    (now,) = put_back(deployment, requests, "--delay", "1h").values()
    cancel = ["cancel", "-b", deployment.bootstrap, "--requests", requests, "--id", "order-9", "--wait-verdict"]
    assert postdate(*cancel).splitlines()[1] == f"cancelled {now}"


def test_requeue_waits_for_an_open_transaction_that_hides_requeued_requests(
    deployment: SidecarDeployment, requests: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requeued requests may follow the open transaction, so a run that does not wait for its end repeats them."""
    target = unique_name("missing")
    origin = send(deployment, requests, target, "--delay", "10ms", "--key", "k")
    wait_until(lambda: origin in listed(deployment, requests), "it is a dead letter")
    partition = int(origin.split("/")[1])
    named = {"transactional.id": unique_name("foreign"), "transaction.timeout.ms": 900_000}
    foreign = Producer({"bootstrap.servers": deployment.bootstrap, **named})
    foreign.init_transactions(WAIT_TIMEOUT_S)
    foreign.begin_transaction()
    foreign.produce(requests, b"never", partition=partition)
    assert foreign.flush(WAIT_TIMEOUT_S) == 0
    command = [
        "dead-letters",
        "requeue",
        "-b",
        deployment.bootstrap,
        "--requests",
        requests,
        "--apply",
        "--output",
        "json",
    ]

    def attempt(slower: int) -> None:
        """Runs the command in this process, with a short time-out."""
        monkeypatch.setattr(reading, "COMMAND_TIMEOUT_S", 4.0 * slower)
        refused = CliRunner().invoke(program, command)
        assert (refused.exit_code, refused.stdout) == (Exit.FAILED, "")
        expect("returns no records from offset" in refused.stderr, refused.stderr)

    first_round_in_time(attempt, LONGER)
    monkeypatch.undo()
    foreign.abort_transaction(WAIT_TIMEOUT_S)
    now = put_back(deployment, requests, "--delay", "1h")[origin]
    assert requeued(deployment, requests, "--apply") == {origin: ("put-back-before", now)}
