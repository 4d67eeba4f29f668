"""Goal: an operator finds every pending message in any process, follows one from acceptance to its end, and cancels or
moves it, over HTTP and from the command line.

Method: two real sidecars share the partitions of a request topic on a real broker; what they list is compared with what
was sent, and what a control did with the topics.
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
def clients(env: SidecarDeployment) -> list[Client]:
    """Two processes with two shards each."""
    env.new_requests(4)
    env.new_target()
    token_file = env.directory / "token"
    token_file.write_text(_TOKEN)
    found = []
    for _ in range(2):
        sidecar = env.new_sidecar()
        sidecar.http = {"port": free_port(), "token_file": str(token_file)}
        sidecar.start()
        found.append(Client(int(str(sidecar.http["port"])), _TOKEN))
    for sidecar in env.sidecars:
        sidecar.wait_for_shards(2)
    return found


def send(env: SidecarDeployment, count: int, due_ms: int) -> list[Sent]:
    """Messages due a second apart, spread over the partitions by their ids, which are their keys."""
    sender, sent = env.sender(), []
    (requests,), (target,) = env.requests, env.targets
    for number in range(count):
        name = b"order-%d" % number
        given: Headers = [(TOPIC, target.encode()), (AT, b"%d" % (due_ms + number * 1000)), (ID, name)]
        given.append(("h", SECRETS[2]))
        given.append(("postdate-key", SECRETS[1]))
        sent.append(sender.send(requests, Sent(target, name, SECRETS[0], given, due_ms + number * 1000)))
    sender.flush()
    return sent


def command(*arguments: str, exit_code: int = 0) -> Result:
    """What `postdate pending` does, run in this process."""
    result = CliRunner().invoke(program, ["pending", *arguments])
    assert result.exit_code == exit_code, result.stderr
    return result


def urls(clients: list[Client]) -> list[str]:
    return [part for client in clients for part in ("--url", f"http://127.0.0.1:{client.port}")]


def listed(clients: list[Client], *options: str) -> list[dict[str, Any]]:
    """What `postdate pending list` prints for all processes together."""
    lines = command("list", *urls(clients), "--output", "json", "--all", *options).stdout.splitlines()
    return [json.loads(line) for line in lines]


def history(clients: list[Client], origin: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(command("get", *urls(clients), origin, "--output", "json").stdout)
    return told


def counted(clients: list[Client], *options: str) -> int:
    """What `postdate pending count` prints; -1 while that is a lower bound."""
    shown = command("count", *urls(clients), *options).stdout
    return -1 if "or more" in shown else int(shown)


def test_pending_messages_are_listed_counted_moved_and_cancelled(env: SidecarDeployment, clients: list[Client]) -> None:
    (requests,), (target,) = env.requests, env.targets
    due_ms = int(time.time() * 1000) + _HOUR_MS // 2
    sent = send(env, 30, due_ms)
    wait_until(lambda: counted(clients) == len(sent), "everything is held")
    every = listed(clients)
    assert [(entry["due_ms"], entry["id"], entry["origin"], entry["target"]) for entry in every] == [
        (each.due_ms, each.id.decode(), each.origin.decode(), target) for each in sent
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
    env.wait_for_ends(4)
    wait_until(lambda: history(clients, stopped)["state"] == "cancelled", "the cancel is in the log")
    wait_until(lambda: history(clients, moved)["state"] == "delivered", "the delivery is in the log")
    told = history(clients, moved)
    assert (told["state"], [event["fate"] for event in told["events"]]) == ("delivered", ["moved", "delivered"])
    assert told["events"][0]["by"] == by_origin.json["origin"]
    assert told["request"]["target"] == target
    assert history(clients, by_id.json["origin"])["state"] == "applied"
    assert history(clients, sent[5].origin.decode())["state"] == "waiting"
    wait_until(lambda: counted(clients) == len(sent) - 2, "two are gone")
    assert "no record of a request" in command("get", *urls(clients), f"{requests}/0/99999", exit_code=1).stderr
    _assert_no_payload(env, clients, every)


def _assert_no_payload(env: SidecarDeployment, clients: list[Client], every: list[dict[str, Any]]) -> None:
    """No answer, metric or log line holds a key, a value or a header of a message."""
    shown = [json.dumps(every), *(sidecar.all_logs() for sidecar in env.sidecars)]
    for client in clients:
        shown += [client.get(path).text for path in ("/metrics", "/readyz", "/api/v1/pending")]
    for secret in SECRETS:
        assert secret.decode() not in "".join(shown)
        assert _TOKEN not in "".join(shown)


def test_an_autoscaler_reads_how_many_messages_of_all_processes_are_due_soon(
    env: SidecarDeployment, clients: list[Client]
) -> None:
    """It sends the query of the example for KEDA: what is due already counts; what is due later, or for others, not."""
    trigger, other = keda_trigger(), env.new_target()
    asked = urlsplit(trigger["url"])
    query = urlencode({**dict(parse_qsl(asked.query)), "target": env.targets[0]})
    assert clients[0].post("/api/v1/hold", {"what": "delivery"}).status == 200
    now_ms, sender = int(time.time() * 1000), env.sender()
    groups = [
        (env.targets[0], -_HOUR_MS, 7),
        (env.targets[0], 60_000, 20),
        (env.targets[0], _HOUR_MS, 30),
        (other, 60_000, 40),
    ]
    for target, ahead_ms, count in groups:
        for number in range(count):
            given: Headers = [(TOPIC, target.encode()), (AT, b"%d" % (now_ms + ahead_ms))]
            sender.send(env.requests[0], Sent(target, b"%d" % number, b"x", given, now_ms + ahead_ms))
    sender.flush()
    wait_until(lambda: counted(clients) == 97, "everything is held")

    def read(client: Client) -> dict[str, Any]:
        answer = client.get(f"{asked.path}?{query}")
        assert answer.status == 200, answer.text
        found: dict[str, Any] = answer.json
        return found

    assert [read(client)[trigger["valueLocation"]] for client in clients] == [27, 27]
    env.sidecars[0].kill()
    told = read(clients[1])
    assert told["not_asked"], "the shards of a killed process are named until the other one has taken them over"
    assert told[trigger["valueLocation"]] == sum(shard["count"] for shard in told["shards"]) < 27
    answers = [told]

    def is_whole() -> bool:
        answers.append(read(clients[1]))
        return answers[-1]["exact"] and not answers[-1]["not_asked"]

    wait_until(is_whole, "the other process answers for all shards")
    assert answers[-1][trigger["valueLocation"]] == 27


def test_listing_a_backlog_delays_no_delivery(env: SidecarDeployment, clients: list[Client]) -> None:
    """While the whole backlog is listed and counted over and over, what falls due leaves."""
    (requests,), (target,) = env.requests, env.targets
    sender = env.sender()
    to = (TOPIC, target.encode())
    for number in range(20_000):
        sender.send(requests, Sent(target, b"%d" % number, b"x" * 100, [to, (DELAY, b"30m")]))
    sender.flush()
    wait_until(lambda: counted(clients) == 20_000, "everything is held")
    now_ms = int(time.time() * 1000)
    due = []
    for number in range(40):
        given: Headers = [to, (AT, b"%d" % (now_ms + number * 50))]
        due.append(sender.send(requests, Sent(target, b"%d" % number, b"due", given, now_ms + number * 50)))
    sender.flush()
    looks = 0
    while looks < 3 or time.time() * 1000 < now_ms + 2_000:
        for client in clients:
            answer = client.get("/api/v1/pending?limit=1000&target=another")
            assert answer.status == 200, answer.text
            assert client.get("/api/v1/pending/count?until=2100-01-01T00:00:00Z").status == 200
        looks += 1
    env.wait_for_ends(len(due))
    env.judge(due)
