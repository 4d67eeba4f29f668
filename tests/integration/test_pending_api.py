"""Goal: an operator can query any process for all pending messages, follow a message from acceptance to its end, and
cancel or reschedule it, over HTTP and on the command line.

Method: two real sidecars share the partitions of a request topic on a real broker. The test compares their lists with
the requests, and the effects of controls with the topics.
"""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from click.testing import CliRunner, Result

from postdate.cli import postdate as program
from postdate.wire.headers import AT, DELAY, ID, TOPIC, Headers
from support.deployments.examples import keda_trigger
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Sent
from support.web.http_steps import Client

_TOKEN = "the-token-of-this-test"  # noqa: S105
_HOUR_MS = 3_600_000
SECRETS = (b"a-secret-value", b"a-secret-key", b"a-secret-header")


@pytest.fixture
def clients(deployment: SidecarDeployment) -> list[Client]:
    """Clients of the APIs of two processes with two shards each."""
    deployment.new_requests(4)
    deployment.new_target()
    token_file = deployment.directory / "token"
    token_file.write_text(_TOKEN)
    clients = []
    for _ in range(2):
        sidecar = deployment.new_sidecar()
        sidecar.http = {"port": free_port(), "token_file": str(token_file)}
        sidecar.start()
        clients.append(Client(int(str(sidecar.http["port"])), _TOKEN))
    for sidecar in deployment.sidecars:
        sidecar.wait_for_shards(2)
    return clients


def send(deployment: SidecarDeployment, count: int, due_ms: int) -> list[Sent]:
    """Sends messages due a second apart, and returns them. Their ids are their keys, which spread over partitions."""
    sender, sent = deployment.sender(), []
    (requests,), (target,) = deployment.requests, deployment.targets
    for number in range(count):
        name = b"order-%d" % number
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % (due_ms + number * 1000)), (ID, name)]
        headers.append(("h", SECRETS[2]))
        headers.append(("postdate-key", SECRETS[1]))
        sent.append(sender.send(requests, Sent(target, name, SECRETS[0], headers, due_ms + number * 1000)))
    sender.flush()
    return sent


def command(*arguments: str, exit_code: int = 0) -> Result:
    """Runs `postdate pending` in this process, and checks its exit code."""
    result = CliRunner().invoke(program, ["pending", *arguments])
    assert result.exit_code == exit_code, result.stderr
    return result


def urls(clients: list[Client]) -> list[str]:
    return [part for client in clients for part in ("--url", f"http://127.0.0.1:{client.port}")]


def listed(clients: list[Client], *options: str) -> list[dict[str, Any]]:
    """Returns the entries that `postdate pending list` prints for all processes."""
    lines = command("list", *urls(clients), "--output", "json", "--all", *options).stdout.splitlines()
    return [json.loads(line) for line in lines]


def history(clients: list[Client], origin: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(command("get", *urls(clients), origin, "--output", "json").stdout)
    return answer


def counted(clients: list[Client], *options: str) -> int:
    """Returns the count that `postdate pending count` prints, or -1 if it is a lower bound."""
    output = command("count", *urls(clients), *options).stdout
    return -1 if "or more" in output else int(output)


def test_pending_messages_are_listed_counted_moved_and_cancelled(
    deployment: SidecarDeployment, clients: list[Client]
) -> None:
    (requests,), (target,) = deployment.requests, deployment.targets
    due_ms = int(time.time() * 1000) + _HOUR_MS // 2
    sent = send(deployment, 30, due_ms)
    wait_until(lambda: counted(clients) == len(sent), "all messages are pending")
    entries = listed(clients)
    assert [(entry["due_ms"], entry["id"], entry["origin"], entry["target"]) for entry in entries] == [
        (request.due_ms, request.id.decode(), request.origin.decode(), target) for request in sent
    ]
    window = ["--from", str(due_ms + 5_000), "--until", str(due_ms + 10_000)]
    assert [entry["id"] for entry in listed(clients, *window)] == [f"order-{number}" for number in range(5, 10)]
    assert counted(clients, *window) == 5
    assert counted(clients, "--target", "another") == 0
    assert (counted(clients, "--until", "now"), counted(clients, "--from", "now")) == (0, len(sent))
    nothing = command("list", *urls(clients), "--id", "order-4711")
    assert (nothing.stdout, "no pending message matches; for a request that has ended" in nothing.stderr) == ("", True)
    assert [entry["origin"] for entry in listed(clients, "--id", "order-7")] == [sent[7].origin.decode()]
    assert listed(clients, "--origin", sent[8].origin.decode())[0]["id"] == "order-8"
    assert "only the first 3 are listed" in command("list", *urls(clients), "--max", "3").stderr

    moved, stopped = sent[3].origin.decode(), sent[4].origin.decode()
    by_origin = clients[0].post("/api/v1/deliver", {"origin": moved})
    by_id = clients[1].post("/api/v1/cancel", {"id": "order-4"})
    assert (by_origin.status, by_id.status) == (202, 202), (by_origin.text, by_id.text)
    deployment.wait_for_ends(4)
    wait_until(lambda: history(clients, stopped)["state"] == "cancelled", "the cancel is in the log")
    wait_until(lambda: history(clients, moved)["state"] == "delivered", "the delivery is in the log")
    answer = history(clients, moved)
    assert (answer["state"], [event["fate"] for event in answer["events"]]) == ("delivered", ["moved", "delivered"])
    assert answer["events"][0]["by"] == by_origin.json["origin"]
    assert answer["request"]["target"] == target
    assert history(clients, by_id.json["origin"])["state"] == "applied"
    assert history(clients, sent[5].origin.decode())["state"] == "waiting"
    wait_until(lambda: counted(clients) == len(sent) - 2, "two are gone")
    assert "no record of a request" in command("get", *urls(clients), f"{requests}/0/99999", exit_code=1).stderr
    _assert_no_payload(deployment, clients, entries)


def _assert_no_payload(deployment: SidecarDeployment, clients: list[Client], entries: list[dict[str, Any]]) -> None:
    """Fails if an answer, a metric or a log line contains a key, a value or a header of a message, or the token."""
    shown = [json.dumps(entries), *(sidecar.all_logs() for sidecar in deployment.sidecars)]
    for client in clients:
        shown += [client.get(path).text for path in ("/metrics", "/readyz", "/api/v1/pending")]
    for secret in SECRETS:
        assert secret.decode() not in "".join(shown)
        assert _TOKEN not in "".join(shown)


def test_an_autoscaler_reads_how_many_messages_of_all_processes_are_due_soon(
    deployment: SidecarDeployment, clients: list[Client]
) -> None:
    """The autoscaler sends the query of the KEDA example.

    Overdue messages count. Messages that are due later, or for other targets, do not count.
    """
    trigger, other = keda_trigger(), deployment.new_target()
    url = urlsplit(trigger["url"])
    query = urlencode({**dict(parse_qsl(url.query)), "target": deployment.targets[0]})
    assert clients[0].post("/api/v1/hold", {"what": "delivery"}).status == 200
    now_ms, sender = int(time.time() * 1000), deployment.sender()
    groups = [
        (deployment.targets[0], -_HOUR_MS, 7),
        (deployment.targets[0], 60_000, 20),
        (deployment.targets[0], _HOUR_MS, 30),
        (other, 60_000, 40),
    ]
    for target, ahead_ms, count in groups:
        for number in range(count):
            headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % (now_ms + ahead_ms))]
            sender.send(deployment.requests[0], Sent(target, b"%d" % number, b"x", headers, now_ms + ahead_ms))
    sender.flush()
    wait_until(lambda: counted(clients) == 97, "all messages are pending")

    def read(client: Client) -> dict[str, Any]:
        answer = client.get(f"{url.path}?{query}")
        assert answer.status == 200, answer.text
        body: dict[str, Any] = answer.json
        return body

    assert [read(client)[trigger["valueLocation"]] for client in clients] == [27, 27]
    deployment.sidecars[0].kill()
    answer = read(clients[1])
    assert answer["not_asked"], "the shards of a killed process are named until the other process has taken them over"
    assert answer[trigger["valueLocation"]] == sum(shard["count"] for shard in answer["shards"]) < 27
    answers = [answer]

    def is_whole() -> bool:
        answers.append(read(clients[1]))
        return answers[-1]["exact"] and not answers[-1]["not_asked"]

    wait_until(is_whole, "the other process answers for all shards")
    assert answers[-1][trigger["valueLocation"]] == 27


def test_listing_a_backlog_delays_no_delivery(deployment: SidecarDeployment, clients: list[Client]) -> None:
    """Messages leave when they are due, although the whole backlog is listed and counted again and again."""
    (requests,), (target,) = deployment.requests, deployment.targets
    sender = deployment.sender()
    to = (TOPIC, target.encode())
    for number in range(20_000):
        sender.send(requests, Sent(target, b"%d" % number, b"x" * 100, [to, (DELAY, b"30m")]))
    sender.flush()
    wait_until(lambda: counted(clients) == 20_000, "all messages are pending")
    now_ms = int(time.time() * 1000)
    due = []
    for number in range(40):
        headers: Headers = [to, (AT, b"%d" % (now_ms + number * 50))]
        due.append(sender.send(requests, Sent(target, b"%d" % number, b"due", headers, now_ms + number * 50)))
    sender.flush()
    rounds = 0
    while rounds < 3 or time.time() * 1000 < now_ms + 2_000:
        for client in clients:
            answer = client.get("/api/v1/pending?limit=1000&target=another")
            assert answer.status == 200, answer.text
            assert client.get("/api/v1/pending/count?until=2100-01-01T00:00:00Z").status == 200
        rounds += 1
    deployment.wait_for_ends(len(due))
    deployment.judge(due)
