"""Goal: a held message is not delivered, whatever happens to its process; nothing else waits; and after the release
each leaves once.

Method: two real processes share the shards of a request topic. Delivery of all shards but one and one target, and then
the intake, are held; messages fall due meanwhile, a process is killed, another drained, and the topics are compared
with what was asked.
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
#: Longer than anything here is waited for: what it hands over sooner, it hands over by itself.
_PATIENT = {"session.timeout.ms": "280000"}
_TOKEN = "the-token-of-this-test"  # noqa: S105


@pytest.fixture
def sidecars(env: SidecarDeployment) -> list[Sidecar]:
    """Two processes with two shards each; the second is a static member, whom the group would miss for long."""
    env.new_requests(SHARDS)
    env.new_target()
    env.new_target()
    (env.directory / "token").write_text(_TOKEN)
    made = [env.new_sidecar(), env.new_sidecar(static=True, consumer=_PATIENT)]
    for sidecar in made:
        sidecar.http = {"port": free_port(), "token_file": str(env.directory / "token")}
        sidecar.start()
    for sidecar in made:
        sidecar.wait_for_shards(2)
    return made


def client(sidecar: Sidecar) -> Client:
    return Client(int(str(sidecar.http["port"])), _TOKEN)


def send(env: SidecarDeployment, target: str, count: int, names: str) -> list[Sent]:
    """Messages for one target that are due at once, spread over the partitions."""
    sender, sent = env.sender(), []
    due_ms = int(time.time() * 1000)
    for number in range(count):
        name = f"{names}-{number}".encode()
        given = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), (ID, name)]
        sent.append(sender.send(env.requests[0], Sent(target, name, b"v", [*given], due_ms)))
    sender.flush()
    return sent


def command(env: SidecarDeployment, *arguments: str, exit_code: int = 0) -> Result:
    """A command with a broker, the group and the token."""
    options = ["-b", env.bootstrap, "--group-id", env.group_id, "--token-file", str(env.directory / "token")]
    result = CliRunner().invoke(program, [*arguments, *options])
    assert result.exit_code == exit_code, result.output
    return result


def pending(sidecar: Sidecar, query: str = "") -> int:
    """What all processes hold, by one's word; -1 while somebody has not answered."""
    told = client(sidecar).get(f"/api/v1/pending/count{query}").json
    return -1 if told["not_asked"] else int(told["count"])


def held(sidecar: Sidecar) -> dict[int, Any]:
    """What is held of each shard, by one's word."""
    shards = client(sidecar).get("/api/v1/shards").json["shards"]
    return {shard["partition"]: shard["held"] for shard in shards if shard["state"] == "RUNNING"}


def test_a_hold_follows_its_shard_and_each_message_leaves_once(env: SidecarDeployment, sidecars: list[Sidecar]) -> None:
    (requests,), (target, other) = env.requests, env.targets
    one, two = sidecars
    command(env, "hold", "delivery", f"{requests}/0", f"{requests}/1", f"{requests}/2")
    command(env, "hold", "target", other, f"{requests}/3")
    assert "is not a shard" in command(env, "hold", "delivery", f"{requests}/99", exit_code=Exit.USAGE).output
    assert held(one) == {0: ["delivery"], 1: ["delivery"], 2: ["delivery"], 3: [f"target {other}"]}
    asked = send(env, target, 40, "a") + send(env, other, 40, "b")
    free = [each for each in asked if each.target == target and _shard(each) == 3]
    env.wait_for_ends(len(free))
    wait_until(lambda: pending(two) == len(asked) - len(free), "the rest was read and waits")
    wait_until(
        lambda: sum(value_of(client(each).samples(), "postdate_held", what="delivery") for each in sidecars) == 3,
        "three are held, say the metrics",
    )
    assert "is held by an operator: delivery" in client(one).get("/readyz").text + client(two).get("/readyz").text
    stopped = next(each for each in asked if _shard(each) == 0)
    assert client(two).post("/api/v1/cancel", {"origin": stopped.origin.decode()}).status == 202
    env.wait_for_ends(len(free) + 2)

    one.kill()
    two.wait_for_shards(SHARDS)
    wait_until(lambda: len(held(two)) == SHARDS, "the other one has all shards")
    assert held(two) == {0: ["delivery"], 1: ["delivery"], 2: ["delivery"], 3: [f"target {other}"]}
    wait_until(lambda: pending(two) == len(asked) - len(free) - 1, "it holds what the other one held")
    parked = sum(_shard(each) == 3 and each.target == other for each in asked)
    wait_until(
        lambda: client(two).get("/api/v1/pending/count").json["parked"] == parked, "what is held is parked again"
    )
    wait_until(lambda: client(two).get("/api/v1/pending/count").json["exact"], "it has read all requests")
    counted = command(env, "pending", "count", "--until", "now")
    assert int(counted.output) == pending(two), "what is late is told, for whatever reason it is"
    unparked = command(env, "pending", "count", "--state", "waiting", "--until", str(int(time.time() * 1000)))
    assert int(unparked.output) == pending(two) - parked
    assert "nobody would deliver" in client(two).post("/api/v1/drain", {}).text

    one.start()
    for sidecar in sidecars:
        sidecar.wait_for_shards(2)
    command(env, "release", "delivery")
    command(env, "release", "target", other)
    assert set(map(tuple, held(one).values())) == {()}
    env.wait_for_ends(len(asked) + 1)
    waiting = _hold_intake_and_drain(env, one, two, len(asked) + 1)
    env.judge([each for each in [*asked, *waiting] if each is not stopped], silent=[stopped])


def _hold_intake_and_drain(env: SidecarDeployment, one: Sidecar, two: Sidecar, ended: int) -> list[Sent]:
    """Requests that nobody reads until the intake is released, by when their shards have moved to one process."""
    requests, target = env.requests[0], env.targets[0]
    assert client(one).post("/api/v1/hold", {"what": "intake"}, Authorization="Bearer no").status == 401
    command(env, "hold", "intake", requests)
    waiting = send(env, target, 20, "c")
    named = ["--url", f"http://127.0.0.1:{client(two).port}", "--token-file", str(env.directory / "token")]
    drained = CliRunner().invoke(program, ["drain", *named])
    assert drained.exit_code == 0, drained.output
    assert "hands over 2 shards" in drained.output
    one.wait_for_shards(SHARDS)
    two.wait_for_shards(0)
    assert "the process was drained" in client(two).get("/readyz").text
    assert client(two).get("/healthz").status == 200
    assert pending(one) == 0
    assert command(env, "hold", "list").stdout.count("held: intake") == SHARDS
    command(env, "release", "intake")
    env.wait_for_ends(ended + len(waiting))
    assert two.stop() == 0
    return waiting


def _shard(sent: Sent) -> int:
    return int(sent.origin.split(b"/")[1])
