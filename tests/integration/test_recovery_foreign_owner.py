"""Goal: if another deployment takes one shard, the other shards of the process continue, and an operator can resume the
lost shard.

Method: a process serves two request topics. A second deployment, whose group name sorts first, starts to serve one of
them. The shard of the first process must stop and name the new group, while the other shard delivers. Then the second
deployment is stopped, and an operator resumes the shard. Each message must arrive once.
"""

from __future__ import annotations

import json
import time

from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.command import command_output
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, postdate, wait_until
from support.oracles.exactly_once import Sender, Sent


def _send(sender: Sender, requests: str, target: str) -> Sent:
    due_ms = int(time.time() * 1000) + 200
    headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
    return sender.send(requests, Sent(target, b"k", b"v", headers, due_ms), 0)


def _status(sidecar: Sidecar, requests: str) -> tuple[str, str]:
    """Returns the state of the topic's only shard, and the reason."""
    output = command_output("shard", "status", "--data", str(sidecar.data_dir), "--output", "json")
    (row,) = [row for row in map(json.loads, output.splitlines()) if row["requests"] == requests]
    return row["state"], row["why"]


def test_a_foreign_owner_takes_one_shard_and_the_others_go_on(deployment: SidecarDeployment) -> None:
    contested, quiet = deployment.new_request_topics(2)
    target, sender = deployment.new_target(), deployment.sender()
    older = deployment.new_sidecar("older")
    older.start()
    older.wait_for_shards(2)
    newer = deployment.new_sidecar("newer")
    newer.group_id, newer.requests = f"a-{older.group_id}", [contested]
    newer.start()
    newer.wait_for_shards(1)
    requested = [_send(sender, contested, target)]  # the older owner is fenced in the transaction of this message
    sender.flush()
    older.wait_for_shards(1)
    wait_until(lambda: _status(older, contested)[0] == "FENCED", "the status of the older owner is FENCED")
    wait_until(lambda: f"group {newer.group_id}" in _status(older, contested)[1], "the status names the new owner")
    requested += [_send(sender, requests, target) for requests in (contested, quiet) for _ in range(5)]
    sender.flush()
    deployment.wait_for_ends(len(requested))
    assert older.is_alive()
    assert newer.stop() == 0
    postdate("shard", "resume", f"{contested}/0", "--data", str(older.data_dir))
    older.wait_for_shards(2)
    requested += [_send(sender, requests, target) for requests in (contested, quiet)]
    sender.flush()
    deployment.wait_for_ends(len(requested))
    assert older.stop() == 0
    deployment.judge(requested)
