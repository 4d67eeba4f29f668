"""Goal: a query to any process, or by a broker address, covers all pending messages of the deployment; a process that
is down is named and spoils nothing. A worker whose port another program uses still delivers, and nobody queries that
port.

Method: a process, two workers of a parent, and a third process that is killed in the end share the shards of one
request topic. What they list, count and tell together is compared with what was sent.
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
#: Longer than the test: the group goes on to name the process that was killed.
_PATIENT = {"session.timeout.ms": "280000"}


@pytest.fixture
def sidecars(env: SidecarDeployment) -> Iterator[list[Sidecar]]:
    """A process, a parent of two workers, and a process that is killed later: four members, two shards each."""
    env.new_requests(SHARDS)
    env.new_target()
    token_file = env.directory / "token"
    token_file.write_text(_TOKEN)
    made = [env.new_sidecar(consumer=_PATIENT) for _ in range(3)]
    made[1].workers = 2
    for sidecar in made:
        port = free_ports(2) if sidecar.workers > 1 else free_port()
        sidecar.http = {"port": port, "token_file": str(token_file)}
        sidecar.start()
    for sidecar in made:
        sidecar.wait_for_shards(2 * sidecar.workers)
    yield made
    made[1].stop()


def send(env: SidecarDeployment) -> list[Sent]:
    """Messages due a second apart, spread over the partitions by their ids."""
    (requests,), (target,) = env.requests, env.targets
    first_ms = int(time.time() * 1000) + _HALF_AN_HOUR_MS
    sender, sent = env.sender(), []
    for number in range(MESSAGES):
        name, due_ms = b"order-%d" % number, first_ms + number * 1000
        given = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), (ID, name)]
        sent.append(sender.send(requests, Sent(target, name, b"v", [*given], due_ms)))
    sender.flush()
    return sent


def command(env: SidecarDeployment, *arguments: str, **environment: str) -> Result:
    """`postdate pending` with nothing but a broker and the group."""
    words = [arguments[0], "-b", env.bootstrap, "--group-id", env.group_id, *arguments[1:]]
    result = CliRunner().invoke(program, ["pending", *words], env=environment)
    assert result.exit_code == 0, result.stderr
    return result


def paged(client: Client) -> list[str]:
    """All ids, page after page, as one process tells them."""
    found: list[str] = []
    cursor = ""
    while True:
        page = client.get(f"/api/v1/pending?limit=7{cursor}").json
        assert page["not_asked"] == []
        assert len(page["entries"]) <= 7
        found += [entry["id"] for entry in page["entries"]]
        if page["cursor"] is None:
            return found
        cursor = f"&cursor={page['cursor']}"


def lives(client: Client, sent: list[Sent]) -> set[str]:
    """The states of some requests of all shards, as one process tells them."""
    return {client.get(f"/api/v1/requests/{each.origin.decode()}").json["state"] for each in sent[:20]}


def _named(page: Any) -> set[tuple[str, int]]:
    return {(shard["topic"], shard["partition"]) for shard in page["not_asked"]}


def test_every_process_answers_for_all_and_one_that_is_down_is_named(
    env: SidecarDeployment, sidecars: list[Sidecar]
) -> None:
    sent = send(env)
    ids = [each.id.decode() for each in sent]
    first, parent, doomed = (Client(int(str(sidecar.http["port"]))) for sidecar in sidecars)
    clients = [first, parent, Client(parent.port + 1), doomed]
    wait_until(
        lambda: first.get("/api/v1/pending/count").json["count"] == MESSAGES, "everything is held, by one's word"
    )
    parts = [client.get("/api/v1/pending/count?scope=process").json for client in clients]
    assert [len(part["shards"]) for part in parts] == [2, 2, 2, 2]
    assert sum(part["count"] for part in parts) == MESSAGES
    for client in clients:
        assert paged(client) == ids
        assert [entry["id"] for entry in client.get("/api/v1/pending?id=order-31").json["entries"]] == ["order-31"]
        assert lives(client, sent) == {"waiting"}
        assert client.get(f"/api/v1/requests/{env.requests[0]}/0/99999").status == 404

    listed = command(env, "list", "--all", "--output", "json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in listed] == ids
    assert command(env, "count").stdout == f"{MESSAGES}\n"
    assert "waiting" in command(env, "get", sent[3].origin.decode()).stdout
    assert len(command(env, "list", "--max", "10", "--output", "json").stdout.splitlines()) == 10

    missing = {(shard["topic"], shard["partition"]) for shard in parts[3]["shards"]}
    sidecars[2].kill()
    told = first.get("/api/v1/pending?limit=1000")
    assert told.status == 200, told.text
    assert _named(told.json) == missing
    assert len(told.json["entries"]) == MESSAGES - parts[3]["count"]
    assert all(f"127.0.0.1:{doomed.port} holds it" in shard["why"] for shard in told.json["not_asked"])
    counted = command(env, "count")
    assert counted.stdout == f"{MESSAGES - parts[3]['count']} or more\n"
    assert "on the queried shards" in command(env, "list", "--until", "now").stderr
    assert counted.stderr.count("is UNKNOWN and was not queried") == len(missing)


def test_processes_and_commands_query_by_tls(env: SidecarDeployment) -> None:
    env.new_requests(SHARDS)
    env.new_target()
    authority, token_file = Authority(env.directory / "authority"), env.directory / "token"
    key, cert = authority.issue("members", "IP:127.0.0.1")
    token_file.write_text(_TOKEN)
    made = [env.new_sidecar() for _ in range(2)]
    files = {"tls_cert_file": cert, "tls_key_file": key, "tls_ca_file": authority.ca, "token_file": token_file}
    for sidecar in made:
        sidecar.http = {"port": free_port(), **{name: str(file) for name, file in files.items()}}
        sidecar.start()
    for sidecar in made:
        sidecar.wait_for_shards(SHARDS // 2)
    send(env)
    first, second = (Client(int(str(sidecar.http["port"])), ca=authority.ca) for sidecar in made)

    def told(client: Client) -> tuple[int, int]:
        answer = client.get("/api/v1/pending/count").json
        return answer["count"], len(answer["not_asked"])

    wait_until(lambda: told(first) == (MESSAGES, 0) == told(second), "both answer for all shards")
    assert command(env, "count", POSTDATE_HTTP_TLS_CA_FILE=str(authority.ca)).stdout == f"{MESSAGES}\n"
    with pytest.raises((OSError, HTTPException)):
        Client(first.port).get("/healthz")


def _are_without_port(asked: Client) -> bool:
    shards = asked.get("/api/v1/pending?limit=1000").json["not_asked"]
    return len(shards) == SHARDS // 2 and all(shard["why"].endswith("holds it and serves no port") for shard in shards)


def test_a_worker_without_its_port_delivers_and_the_program_on_the_port_gets_no_queries(env: SidecarDeployment) -> None:
    env.new_requests(SHARDS)
    env.new_target()
    parent = env.new_sidecar()
    parent.workers, port = 2, free_ports(2)
    parent.http = {"port": port}
    with socket.create_server(("127.0.0.1", port + 1)) as stranger:
        parent.start()
        parent.wait_for_shards(SHARDS)
        assert f"port {port + 1} of 127.0.0.1 is taken: this process delivers" in parent.log_text()
        send(env)
        wait_until(lambda: _are_without_port(Client(port)), "the one that has its port knows the group as it is now")
        assert command(env, "count").stderr.count("holds it and serves no port") == SHARDS // 2
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()
    wait_until(Client(port + 1).listens, "the worker has its port")
    assert Client(port + 1).get("/readyz").text == "ready\n"
    parent.stop()
