"""Goal: if another deployment takes one shard, the others of the process continue, and an operator can take it back.

Method: a process serves two request topics. A second deployment, whose group comes first, serves one of them, too: that
shard must stop and say who has taken over, while the other delivers. Then the second deployment is stopped, and the
shard is resumed: each message comes once, whoever delivered it.
"""

from __future__ import annotations

import json
import time

from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.command import said_by
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, postdate, wait_until
from support.oracles.exactly_once import Sender, Sent


def _ask(sender: Sender, requests: str, target: str) -> Sent:
    due_ms = int(time.time() * 1000) + 200
    given: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
    return sender.send(requests, Sent(target, b"k", b"v", given, due_ms), 0)


def _stands(sidecar: Sidecar, requests: str) -> tuple[str, str]:
    """State of the topic's one shard, and why."""
    said = said_by("shard", "status", "--data", str(sidecar.data_dir), "--output", "json")
    (row,) = [row for row in map(json.loads, said.splitlines()) if row["requests"] == requests]
    return row["state"], row["why"]


def test_a_foreign_owner_takes_one_shard_and_the_others_go_on(env: SidecarDeployment) -> None:
    contested, quiet = env.new_request_topics(2)
    target, sender = env.new_target(), env.sender()
    older = env.new_sidecar("older")
    older.start()
    older.wait_for_shards(2)
    newer = env.new_sidecar("newer")
    newer.group_id, newer.requests = f"a-{older.group_id}", [contested]
    newer.start()
    newer.wait_for_shards(1)
    asked = [_ask(sender, contested, target)]  # its transaction is what the older owner is fenced in
    sender.flush()
    older.wait_for_shards(1)
    wait_until(lambda: _stands(older, contested)[0] == "FENCED", "the older one is fenced and says so")
    wait_until(lambda: f"group {newer.group_id}" in _stands(older, contested)[1], "it says by whom")
    asked += [_ask(sender, requests, target) for requests in (contested, quiet) for _ in range(5)]
    sender.flush()
    env.wait_for_ends(len(asked))
    assert older.is_alive()
    assert newer.stop() == 0
    postdate("shard", "resume", f"{contested}/0", "--data", str(older.data_dir))
    older.wait_for_shards(2)
    asked += [_ask(sender, requests, target) for requests in (contested, quiet)]
    sender.flush()
    env.wait_for_ends(len(asked))
    assert older.stop() == 0
    env.judge(asked)
