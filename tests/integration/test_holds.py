"""Goal: a held message is not delivered, whatever happens to its process, and no other message waits. After the release
each message is delivered once.

Method: two real processes share the shards of a request topic. An operator holds delivery of three shards and one
target of the fourth, and then the intake. Messages fall due meanwhile, one process is killed, and the other drained.
The oracle compares the topics with the requests.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from click.testing import CliRunner, Result

from postdate.cli import postdate as program
from postdate.sidecar.errors import Exit
from postdate.wire.headers import AT, ID, TOPIC
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, wait_until
from support.oracles.exactly_once import Sent
from support.web.http_steps import Client, value_of

SHARDS = 4
#: A session longer than the test: shards move only if a process hands them over, and not because the group evicts it.
_PATIENT = {"session.timeout.ms": "280000"}
_TOKEN = "the-token-of-this-test"  # noqa: S105


@pytest.fixture
def sidecars(deployment: SidecarDeployment) -> list[Sidecar]:
    """Two processes with two shards each. The second is a static member whose session does not expire in the test."""
    deployment.new_requests(SHARDS)
    deployment.new_target()
    deployment.new_target()
    (deployment.directory / "token").write_text(_TOKEN)
    sidecars = [deployment.new_sidecar(), deployment.new_sidecar(static=True, consumer=_PATIENT)]
    for sidecar in sidecars:
        sidecar.http = {"port": free_port(), "token_file": str(deployment.directory / "token")}
        sidecar.start()
    for sidecar in sidecars:
        sidecar.wait_for_shards(2)
    return sidecars


def client(sidecar: Sidecar) -> Client:
    return Client(int(str(sidecar.http["port"])), _TOKEN)


def send(deployment: SidecarDeployment, target: str, count: int, names: str) -> list[Sent]:
    """Sends messages for one target, due now and spread over the partitions, and returns them."""
    sender, sent = deployment.sender(), []
    due_ms = int(time.time() * 1000)
    for number in range(count):
        name = f"{names}-{number}".encode()
        headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), (ID, name)]
        sent.append(sender.send(deployment.requests[0], Sent(target, name, b"v", [*headers], due_ms)))
    sender.flush()
    return sent


def command(deployment: SidecarDeployment, *arguments: str, exit_code: int = 0) -> Result:
    """Runs a command with the options for broker, group and token, and checks its exit code."""
    options = [
        "-b",
        deployment.bootstrap,
        "--group-id",
        deployment.group_id,
        "--token-file",
        str(deployment.directory / "token"),
    ]
    result = CliRunner().invoke(program, [*arguments, *options])
    assert result.exit_code == exit_code, result.output
    return result


def pending(sidecar: Sidecar, query: str = "") -> int:
    """Returns the pending messages of all processes, queried from one; -1 if a process did not answer."""
    answer = client(sidecar).get(f"/api/v1/pending/count{query}").json
    return -1 if answer["not_asked"] else int(answer["count"])


def held(sidecar: Sidecar) -> dict[int, Any]:
    """Returns the holds of each running shard by partition, queried from one process."""
    shards = client(sidecar).get("/api/v1/shards").json["shards"]
    return {shard["partition"]: shard["held"] for shard in shards if shard["state"] == "RUNNING"}


def test_a_hold_follows_its_shard_and_each_message_leaves_once(
    deployment: SidecarDeployment, sidecars: list[Sidecar]
) -> None:
    (requests,), (target, other) = deployment.requests, deployment.targets
    first, second = sidecars
    command(deployment, "hold", "delivery", f"{requests}/0", f"{requests}/1", f"{requests}/2")
    command(deployment, "hold", "target", other, f"{requests}/3")
    for absent in (f"{requests}/99", "absent"):
        refused = command(deployment, "hold", "intake", f"{requests}/0", absent, exit_code=Exit.USAGE)
        assert f"{absent} names no shard" in refused.output, "and shard 0 stays as it is"
    assert held(first) == {0: ["delivery"], 1: ["delivery"], 2: ["delivery"], 3: [f"target {other}"]}
    requested = send(deployment, target, 40, "a") + send(deployment, other, 40, "b")
    unheld = [sent for sent in requested if sent.target == target and _shard(sent) == 3]
    deployment.wait_for_ends(len(unheld))
    wait_until(lambda: pending(second) == len(requested) - len(unheld), "the other messages are read and wait")
    wait_until(
        lambda: sum(value_of(client(sidecar).samples(), "postdate_held", what="delivery") for sidecar in sidecars) == 3,
        "the metrics show three held shards",
    )
    assert "is held by an operator: delivery" in client(first).get("/readyz").text + client(second).get("/readyz").text
    cancelled = next(sent for sent in requested if _shard(sent) == 0)
    assert client(second).post("/api/v1/cancel", {"origin": cancelled.origin.decode()}).status == 202
    deployment.wait_for_ends(len(unheld) + 2)

    first.kill()
    # Until the second process has them, the shards of the killed process do not answer.
    command(deployment, "hold", "delivery", f"{requests}/99", exit_code=Exit.USAGE)
    second.wait_for_shards(SHARDS)
    wait_until(lambda: len(held(second)) == SHARDS, "the second process has all shards")
    assert held(second) == {0: ["delivery"], 1: ["delivery"], 2: ["delivery"], 3: [f"target {other}"]}
    wait_until(
        lambda: pending(second) == len(requested) - len(unheld) - 1, "it holds the messages of the killed process"
    )
    parked = sum(_shard(sent) == 3 and sent.target == other for sent in requested)
    wait_until(
        lambda: client(second).get("/api/v1/pending/count").json["parked"] == parked, "held messages are parked again"
    )
    wait_until(lambda: client(second).get("/api/v1/pending/count").json["exact"], "it has read all requests")
    counted = command(deployment, "pending", "count", "--until", "now")
    assert int(counted.output) == pending(second), "overdue messages count, whatever they wait for"
    unparked = command(deployment, "pending", "count", "--state", "waiting", "--until", str(int(time.time() * 1000)))
    assert int(unparked.output) == pending(second) - parked
    assert "nobody would deliver" in client(second).post("/api/v1/drain", {}).text

    first.start()
    for sidecar in sidecars:
        sidecar.wait_for_shards(2)
    command(deployment, "release", "delivery")
    command(deployment, "release", "target", other)
    assert set(map(tuple, held(first).values())) == {()}
    deployment.wait_for_ends(len(requested) + 1)
    waiting = _hold_intake_and_drain(deployment, first, second, len(requested) + 1)
    deployment.judge([sent for sent in [*requested, *waiting] if sent is not cancelled], silent=[cancelled])


def _hold_intake_and_drain(deployment: SidecarDeployment, first: Sidecar, second: Sidecar, ended: int) -> list[Sent]:
    """Sends requests while the intake is held, and drains the second process.

    Returns the requests after the release. By then all shards have moved to the first process.
    """
    requests, target = deployment.requests[0], deployment.targets[0]
    assert client(first).post("/api/v1/hold", {"what": "intake"}, Authorization="Bearer no").status == 401
    command(deployment, "hold", "intake", requests)
    waiting = send(deployment, target, 20, "c")
    named = ["--url", f"http://127.0.0.1:{client(second).port}", "--token-file", str(deployment.directory / "token")]
    drained = CliRunner().invoke(program, ["drain", *named])
    assert drained.exit_code == 0, drained.output
    assert "hands over 2 shards" in drained.output
    first.wait_for_shards(SHARDS)
    second.wait_for_shards(0)
    assert "the process was drained" in client(second).get("/readyz").text
    assert client(second).get("/healthz").status == 200
    assert pending(first) == 0
    assert command(deployment, "hold", "list").stdout.count("held: intake") == SHARDS
    command(deployment, "release", "intake")
    deployment.wait_for_ends(ended + len(waiting))
    assert second.stop() == 0
    return waiting


def _shard(sent: Sent) -> int:
    return int(sent.origin.split(b"/")[1])
