"""Goal: a query to any process, or by a broker address, covers all pending messages of the deployment. The answer names
a process that is down, and contains the messages of all others. A worker whose port another program uses still
delivers, and no process queries that port.

Method: one process, two workers of a parent, and another process that is killed at the end share the shards of one
request topic. The test compares their lists, counts and histories with the requests.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any

import pytest
from click.testing import CliRunner, Result

from postdate.cli import postdate as program
from postdate.wire.headers import AT, ID, TOPIC
from support.brokers.certificates import Authority
from support.deployments.ports import free_port, free_ports
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, wait_until
from support.oracles.exactly_once import Sent
from support.web.http_steps import Client

SHARDS, MESSAGES = 8, 60
_TOKEN = "the-token-of-this-test"  # noqa: S105
_HALF_AN_HOUR_MS = 1_800_000
#: A session longer than the test, so the killed process stays a member of the group.
_PATIENT = {"session.timeout.ms": "280000"}


@pytest.fixture
def sidecars(deployment: SidecarDeployment) -> Iterator[list[Sidecar]]:
    """A process, a parent of two workers, and a process that is killed later: four members with two shards each."""
    deployment.new_requests(SHARDS)
    deployment.new_target()
    token_file = deployment.directory / "token"
    token_file.write_text(_TOKEN)
    sidecars = [deployment.new_sidecar(consumer=_PATIENT) for _ in range(3)]
    sidecars[1].workers = 2
    for sidecar in sidecars:
        port = free_ports(2) if sidecar.workers > 1 else free_port()
        sidecar.http = {"port": port, "token_file": str(token_file)}
        sidecar.start()
    for sidecar in sidecars:
        sidecar.wait_for_shards(2 * sidecar.workers)
    yield sidecars
    sidecars[1].stop()


def send(deployment: SidecarDeployment) -> list[Sent]:
    """Sends messages due a second apart, spread over the partitions by their ids, and returns them."""
    (requests,), (target,) = deployment.requests, deployment.targets
    first_ms = int(time.time() * 1000) + _HALF_AN_HOUR_MS
    sender, sent = deployment.sender(), []
    for number in range(MESSAGES):
        name, due_ms = b"order-%d" % number, first_ms + number * 1000
        headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), (ID, name)]
        sent.append(sender.send(requests, Sent(target, name, b"v", [*headers], due_ms)))
    sender.flush()
    return sent


def command(deployment: SidecarDeployment, *arguments: str, **environment: str) -> Result:
    """Runs `postdate pending` with a broker and the group as its only connection options."""
    words = [arguments[0], "-b", deployment.bootstrap, "--group-id", deployment.group_id, *arguments[1:]]
    result = CliRunner().invoke(program, ["pending", *words], env=environment)
    assert result.exit_code == 0, result.stderr
    return result


def paged(client: Client) -> list[str]:
    """Returns the ids of all pending messages, read page by page from one process."""
    ids: list[str] = []
    cursor = ""
    while True:
        page = client.get(f"/api/v1/pending?limit=7{cursor}").json
        assert page["not_asked"] == []
        assert len(page["entries"]) <= 7
        ids += [entry["id"] for entry in page["entries"]]
        if page["cursor"] is None:
            return ids
        cursor = f"&cursor={page['cursor']}"


def states(client: Client, sent: list[Sent]) -> set[str]:
    """Returns the states of some requests of all shards, read from one process."""
    return {client.get(f"/api/v1/requests/{request.origin.decode()}").json["state"] for request in sent[:20]}


def _named(page: Any) -> set[tuple[str, int]]:
    return {(shard["topic"], shard["partition"]) for shard in page["not_asked"]}


def test_every_process_answers_for_all_and_one_that_is_down_is_named(
    deployment: SidecarDeployment, sidecars: list[Sidecar]
) -> None:
    sent = send(deployment)
    ids = [request.id.decode() for request in sent]
    first, parent, doomed = (Client(int(str(sidecar.http["port"]))) for sidecar in sidecars)
    clients = [first, parent, Client(parent.port + 1), doomed]
    wait_until(lambda: first.get("/api/v1/pending/count").json["count"] == MESSAGES, "one process counts all messages")
    parts = [client.get("/api/v1/pending/count?scope=process").json for client in clients]
    assert [len(part["shards"]) for part in parts] == [2, 2, 2, 2]
    assert sum(part["count"] for part in parts) == MESSAGES
    for client in clients:
        assert paged(client) == ids
        assert [entry["id"] for entry in client.get("/api/v1/pending?id=order-31").json["entries"]] == ["order-31"]
        assert states(client, sent) == {"waiting"}
        assert client.get(f"/api/v1/requests/{deployment.requests[0]}/0/99999").status == 404

    listed = command(deployment, "list", "--all", "--output", "json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in listed] == ids
    assert command(deployment, "count").stdout == f"{MESSAGES}\n"
    assert "waiting" in command(deployment, "get", sent[3].origin.decode()).stdout
    assert len(command(deployment, "list", "--max", "10", "--output", "json").stdout.splitlines()) == 10

    missing = {(shard["topic"], shard["partition"]) for shard in parts[3]["shards"]}
    sidecars[2].kill()
    answer = first.get("/api/v1/pending?limit=1000")
    assert answer.status == 200, answer.text
    assert _named(answer.json) == missing
    assert len(answer.json["entries"]) == MESSAGES - parts[3]["count"]
    assert all(f"127.0.0.1:{doomed.port} holds it" in shard["why"] for shard in answer.json["not_asked"])
    counted = command(deployment, "count")
    assert counted.stdout == f"{MESSAGES - parts[3]['count']} or more\n"
    assert "on the queried shards" in command(deployment, "list", "--until", "now").stderr
    assert counted.stderr.count("is UNKNOWN and was not queried") == len(missing)


def test_processes_and_commands_query_by_tls(deployment: SidecarDeployment) -> None:
    deployment.new_requests(SHARDS)
    deployment.new_target()
    authority, token_file = Authority(deployment.directory / "authority"), deployment.directory / "token"
    key, cert = authority.issue("members", "IP:127.0.0.1")
    token_file.write_text(_TOKEN)
    sidecars = [deployment.new_sidecar() for _ in range(2)]
    files = {"tls_cert_file": cert, "tls_key_file": key, "tls_ca_file": authority.ca, "token_file": token_file}
    for sidecar in sidecars:
        sidecar.http = {"port": free_port(), **{name: str(file) for name, file in files.items()}}
        sidecar.start()
    for sidecar in sidecars:
        sidecar.wait_for_shards(SHARDS // 2)
    send(deployment)
    first, second = (Client(int(str(sidecar.http["port"])), ca=authority.ca) for sidecar in sidecars)

    def count(client: Client) -> tuple[int, int]:
        answer = client.get("/api/v1/pending/count").json
        return answer["count"], len(answer["not_asked"])

    wait_until(lambda: count(first) == (MESSAGES, 0) == count(second), "both answer for all shards")
    assert command(deployment, "count", POSTDATE_HTTP_TLS_CA_FILE=str(authority.ca)).stdout == f"{MESSAGES}\n"
    with pytest.raises((OSError, HTTPException)):
        Client(first.port).get("/healthz")


def _are_without_port(client: Client) -> bool:
    shards = client.get("/api/v1/pending?limit=1000").json["not_asked"]
    return len(shards) == SHARDS // 2 and all(shard["why"].endswith("holds it and serves no port") for shard in shards)


def test_a_worker_without_its_port_delivers_and_the_program_on_the_port_gets_no_queries(
    deployment: SidecarDeployment,
) -> None:
    deployment.new_requests(SHARDS)
    deployment.new_target()
    parent = deployment.new_sidecar()
    parent.workers, port = 2, free_ports(2)
    parent.http = {"port": port}
    with socket.create_server(("127.0.0.1", port + 1)) as stranger:
        parent.start()
        parent.wait_for_shards(SHARDS)
        assert f"port {port + 1} of 127.0.0.1 is taken: this process delivers" in parent.log_text()
        send(deployment)
        wait_until(lambda: _are_without_port(Client(port)), "the worker with a port knows the present members")
        assert command(deployment, "count").stderr.count("holds it and serves no port") == SHARDS // 2
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()
    wait_until(Client(port + 1).listens, "the worker has its port")
    assert Client(port + 1).get("/readyz").text == "ready\n"
    parent.stop()
